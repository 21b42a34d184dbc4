"""References to models, and the names that a repository or an address may give files."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.hub.errors import HubError
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.references import (
    InvalidReferenceError,
    ModelSource,
    choose,
    group_models,
    is_revision,
    is_safe_path,
    parse,
)

QWEN = "Qwen/Qwen3-4B-GGUF"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QWEN, ModelSource(repo=QWEN)),
        (f"{QWEN}:Q4_K_M", ModelSource(repo=QWEN, quantization="Q4_K_M")),
        (f"{QWEN}:q8_0", ModelSource(repo=QWEN, quantization="Q8_0")),
        (f"hf.co/{QWEN}:Q8_0", ModelSource(repo=QWEN, quantization="Q8_0")),
        (f"huggingface.co/{QWEN}", ModelSource(repo=QWEN)),
        (f"https://huggingface.co/{QWEN}", ModelSource(repo=QWEN)),
        (f"https://huggingface.co/{QWEN}/tree/main", ModelSource(repo=QWEN)),
        (
            f"https://huggingface.co/{QWEN}/resolve/v1/sub/a%20b.gguf?download=true",
            ModelSource(repo=QWEN, file="sub/a b.gguf", revision="v1"),
        ),
        (f"https://hf.co/{QWEN}/blob/main/a.gguf", ModelSource(repo=QWEN, file="a.gguf")),
        (f"hf.co/{QWEN}/blob/main/a.gguf?download=true#x", ModelSource(repo=QWEN, file="a.gguf")),
        (f"HTTPS://huggingface.co/{QWEN}/?library=llama-cpp-python", ModelSource(repo=QWEN)),
        (
            f"https://huggingface.co/{QWEN}?show_file_info=sub%2Fa.gguf",
            ModelSource(repo=QWEN, file="sub/a.gguf"),
        ),
        (f"{QWEN}/sub/a.gguf", ModelSource(repo=QWEN, file="sub/a.gguf")),
        ("./a.gguf", ModelSource(path="a.gguf")),
        ("/models/a.gguf", ModelSource(path="/models/a.gguf")),
        ("a.gguf", ModelSource(path="a.gguf")),
        ("C:\\models\\a.gguf", ModelSource(path="C:\\models\\a.gguf")),
    ],
)
def test_reads_what_people_write(text: str, expected: object) -> None:
    assert parse(text) == expected


def test_a_file_that_is_there_wins_over_a_repository_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user" / "repo").mkdir(parents=True)
    (tmp_path / "user" / "repo" / "m.gguf").touch()
    assert parse("user/repo/m.gguf") == ModelSource(path="user/repo/m.gguf")
    assert parse("user/repo") == ModelSource(repo="user/repo")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert parse("~/m.gguf") == ModelSource(path="/home/someone/m.gguf")


def test_a_home_that_nobody_has_stays_as_it_stands() -> None:
    assert parse("~nobody-of-this-name/m.gguf") == ModelSource(path="~nobody-of-this-name/m.gguf")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("x" * 5000, "names no model"),
        ("qwen", "names no model"),
        ("user/re po", "names no model"),
        ("https://example.com/user/repo", "not on the Hugging Face Hub"),
        ("https://huggingface.co/datasets/user/repo", "is a dataset"),
        ("user/repo/model.safetensors", "is not a GGUF file"),
        ("user/repo/a.gguf:Q8_0", "leave one of them out"),
        ("https://hf.co/user/repo/resolve/%2e%2e/a.gguf", "names no revision of user/repo"),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(InvalidReferenceError, match=reason) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_the_default_is_q4_k_m_then_q8_0_then_the_first() -> None:
    repo = ModelSource(repo="u/r")
    files = ["m-F16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "README.md"]
    assert choose(repo, files).first == "m-Q4_K_M.gguf"
    assert choose(repo, files[:2]).first == "m-Q8_0.gguf"
    assert choose(repo, ["m-MXFP4.gguf", "m-F16.gguf"]).first == "m-F16.gguf"


def test_sidecars_are_not_the_model() -> None:
    files = ["eagle3-gpt-oss-20b-Q8_0.gguf", "mmproj-Q8_0.gguf", "gpt-oss-20b-MXFP4.gguf"]
    assert choose(ModelSource(repo="u/r"), files).first == "gpt-oss-20b-MXFP4.gguf"
    named = ModelSource(repo="u/r", file=files[0])
    assert choose(named, files).first == files[0]
    assert choose(ModelSource(repo="u/draft"), files[:1]).first == files[0]


def test_a_split_model_is_one_and_an_incomplete_one_is_none() -> None:
    shards = [f"q8/m-Q8_0-0000{i}-of-00003.gguf" for i in (2, 3, 1)]
    (model,) = group_models(shards)
    assert model.files == tuple(sorted(shards))
    assert model.name == "m-Q8_0"
    assert choose(ModelSource(repo="u/r", quantization="Q8_0"), shards).first.endswith(
        "00001-of-00003.gguf"
    )
    for file in (shards[1], "q8/m-Q8_0.gguf"):
        assert choose(ModelSource(repo="u/r", file=file), shards) == model
    with pytest.raises(InvalidReferenceError, match="no complete"):
        choose(ModelSource(repo="u/r"), shards[:2])


def test_an_ambiguous_quantisation_lists_the_choices() -> None:
    files = ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"]
    with pytest.raises(InvalidReferenceError, match=r"could be a-Q4_K_M.gguf, b-Q4_K_M.gguf"):
        choose(ModelSource(repo="u/r", quantization="Q4_K_M"), files)
    with pytest.raises(InvalidReferenceError, match=r"has no Q2_K; it has a-Q4_K_M.gguf"):
        choose(ModelSource(repo="u/r", quantization="Q2_K"), files)
    exact = ["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"]
    assert choose(ModelSource(repo="u/r", quantization="Q4_K_M"), exact).first == exact[0]


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ("https://mirror.example", "https://mirror.example/user/repo"),
        ("https://mirror.example", "mirror.example/user/repo"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/user/repo/blob/main/m.gguf"),
        ("https://proxy.example/hf/", "https://proxy.example/hf/user/repo"),
        ("https://mirror.example", "https://huggingface.co/user/repo"),
    ],
)
def test_a_mirror_s_own_addresses_name_models(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, text: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    found = parse(text)
    assert found.repo == "user/repo"


def test_without_a_mirror_its_addresses_name_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with pytest.raises(InvalidReferenceError, match=r"set HF_ENDPOINT to https://mirror\.example"):
        parse("https://mirror.example/user/repo")


COMMIT = "0" * 40
GOOD_PATHS = ["m.gguf", "q8/m-00001-of-00002.gguf", "a b.gguf", "é.gguf", "console.gguf", ".hidden"]
BAD_PATHS = [
    "", "/", "..", "../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "..\\evil", "C:/evil.gguf",
    "C:evil.gguf", "a/C:/b.gguf", "m.gguf:stream", "CON", "con.gguf", "a/nul.tar.gguf", "LPT1.gguf",
    "com¹.gguf", "aux /m.gguf", "m.gguf.", "m.gguf ", "a./m.gguf", "...", "m\0.gguf", "m\n.gguf",
]  # fmt: skip
GOOD_REVISIONS = ["main", "v1.0", "refs/pr/1", "refs/convert/parquet", "a+b_c-d", COMMIT]
BAD_REVISIONS = [
    "", "..", "../../etc", "a/../b", "a..b", "/abs", "a//b", "a/.b", "a./b", "a.", "a/", ".a", "-a",
    "C:evil", "a\\b", "con", "refs/nul", "main\n", "a b", "a\0",
]  # fmt: skip


def test_usual_names_are_places_in_the_folder(tmp_path: Path) -> None:
    cache = RepoCache(tmp_path, "u/r")
    snapshots, refs = cache.folder / "snapshots", cache.folder / "refs"
    assert all(cache.pointer(COMMIT, path).is_relative_to(snapshots) for path in GOOD_PATHS)
    assert all(cache.reference(name).is_relative_to(refs) for name in GOOD_REVISIONS)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_names_that_no_folder_can_keep_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(HubError, match="leads out of its folder or means a device"):
        RepoCache(tmp_path, "u/r").pointer(COMMIT, path)


@pytest.mark.parametrize("revision", BAD_REVISIONS)
def test_what_is_no_revision_reads_and_writes_nothing(tmp_path: Path, revision: str) -> None:
    cache = RepoCache(tmp_path, "u/r")
    for ask in (cache.reference, cache.commit):
        with pytest.raises(HubError, match="is not the name of a revision of u/r"):
            ask(revision)
    assert list(tmp_path.iterdir()) == []


PARTS = st.sampled_from(
    [".", "..", "/", "\\", "C:", "a", "con", "NUL", ".gguf", " ", "~", "\0", "lpt9", "main", "-"]
)


@given(st.lists(PARTS | st.characters(), max_size=8).map("".join))
def test_whatever_passes_stays_inside_on_every_system(text: str) -> None:
    for passes in (is_safe_path, is_revision):
        if passes(text):
            there = PureWindowsPath("D:/cache", text)
            assert there.parts[:2] == ("D:\\", "cache")
            assert ".." not in there.parts
            assert not any(PureWindowsPath(part).is_reserved() for part in there.parts)
            assert Path("/cache", text).is_relative_to("/cache")


@pytest.mark.parametrize(
    ("reference", "files", "wanted"),
    [
        ("u/r:IQ4_XS", ["m-IMAT-IQ4_XS-Q8nextn.gguf"], "m-IMAT-IQ4_XS-Q8nextn.gguf"),
        ("u/r:Q8_0", ["A-Q4_K_M-imat.gguf", "A-Q8_0-imat.gguf"], "A-Q8_0-imat.gguf"),
        ("u/r:Q8_0", ["A-Q8_0-b.gguf", "A-Q8_0.gguf"], "A-Q8_0.gguf"),
        ("u/r:q8_0", ["Q4_0/m.gguf", "Q8_0/m.gguf"], "Q8_0/m.gguf"),
        ("u/r-Q4_0-GGUF:Q4_0", ["m.gguf"], "m.gguf"),
        ("u/r:m.gguf", ["m.gguf", "n.gguf"], "m.gguf"),
        ("u/r:latest", ["m-Q8_0.gguf", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        ("u/r:Q2_0", ["m-PQ2_0.gguf", "m-Q8_0.gguf"], None),
        ("u/r:Q4_K", ["m-Q4_K_M.gguf"], None),
        ("u/r:Q4_K", ["m-Q4_K_M-imat.gguf"], None),
        ("u/r-Q4_0-GGUF:Q8_0", ["m.gguf"], None),
        ("u/r-Q4_0:Q4_0", ["m.gguf", "n.gguf"], None),
        ("u/r:Q8_0", ["m-Q8_0.gguf.part1of2", "m-Q8_0.gguf.part2of2", "m-Q4_0.gguf"], None),
    ],
)
def test_a_quantisation_is_a_word_of_a_name(
    reference: str, files: list[str], wanted: str | None
) -> None:
    parsed = parse(reference)
    if wanted is None:
        with pytest.raises(InvalidReferenceError, match="has no "):
            choose(parsed, files)
    else:
        assert choose(parsed, files).first == wanted
