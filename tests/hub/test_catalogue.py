from pathlib import Path

import msgspec
import pytest

from eaglechat.gguf.pairing import RUNS_HEADS
from eaglechat.gguf.preflight import TARGET_ARCHITECTURES
from eaglechat.hub.catalogue import CatalogueEntry, load, read, remember
from eaglechat.hub.references import ModelSource


def user_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "catalogue.toml"
    path.write_text(text)
    return path


OWN = """
[[pair]]
name = "mine"
target = { repo = "me/target", quantization = "Q4_K_M" }
draft = { checkpoint = "me/draft" }
"""


def test_the_shipped_catalogue_is_sound_and_starts_small(tmp_path: Path) -> None:
    entries, problems = load(tmp_path / "none")
    assert problems == []
    assert [entry.name for entry in entries][:2] == ["qwen3.5-0.8b", "qwen3-1.7b"]
    # On what each rests: a measurement, or who publishes it.
    assert all(entry.acceptance or entry.note for entry in entries)
    # The newest upload is taken, whose hash the Hub knows.
    assert {source.revision for e in entries for source in (e.target, e.draft)} == {"main"}
    assert all(entry.base_model and entry.licence and entry.title for entry in entries)
    assert {entry.architecture for entry in entries} <= TARGET_ARCHITECTURES | RUNS_HEADS
    # A speed-up names its source.
    assert all(entry.acceptance for entry in entries if entry.speed_up)
    assert {entry.architecture for entry in entries if not entry.draft} <= RUNS_HEADS


def test_the_users_entries_come_after_and_replace_by_name(tmp_path: Path) -> None:
    shipped, _ = load(tmp_path / "none")
    override = OWN.replace("mine", "qwen3-1.7b").replace("me/target", "me/other")
    entries, problems = load(user_file(tmp_path, OWN + override))
    assert problems == []
    assert [entry.name for entry in entries] == [*(entry.name for entry in shipped), "mine"]
    assert entries[1].target.repo == "me/other"


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        (('"me/target"', "7"), "pair mine: target.repo", "expected str, got int"),
        (('"me/target"', '"target"'), "pair mine: target.repo", "must be user/repo"),
        (('name = "mine"', 'name = "My pair"'), "pair My pair: name", "must be small letters"),
        (('"me/draft"', '"me/draft", sha256 = "abc"'), "pair mine: draft.sha256", "64 hexadecimal"),
        (("Q4_K_M", '", file = "a.bin'), "pair mine: target.file", "must end in .gguf"),
        (("[[pair]]", "[[pair]]\nbase_model = 'x'"), "pair mine: base_model", "must be user/repo"),
        (('"me/draft"', '"me/draft", size = 0'), "pair mine: draft.size", ">= 1"),
        (
            ('"me/draft"', '"me/draft", revision = "../x"'),
            "pair mine: draft.revision",
            "a branch, a tag",
        ),
        (('"me/draft"', '"me/draft\\n"'), "pair mine: draft.checkpoint", "must be user/repo"),
        (('checkpoint = "me/draft"', "size = 5"), "pair mine: draft", "needs either repo"),
        (
            ('"me/draft"', '"me/draft", license = "mit"'),
            "pair mine: draft",
            "unknown field license",
        ),
        (('name = "mine"', ""), "pair 1", "missing required field name"),
        (("Q4_K_M", 'Q4_K_M", file = "a.gguf'), "pair mine: target", "leave one of them out"),
    ],
)
def test_a_bad_entry_is_named_and_costs_no_other(
    tmp_path: Path, change: tuple[str, str], key: str, reason: str
) -> None:
    good = OWN.replace("mine", "good")
    path = user_file(tmp_path, OWN.replace(*change) + good)
    entries, (problem,) = load(path)
    assert entries[-1].name == "good"
    assert (problem.file, problem.key) == (path, key)
    assert reason in problem.reason


def test_an_unknown_key_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    (plain,), _ = read(user_file(tmp_path, OWN))
    path = user_file(tmp_path, OWN.replace("[[pair]]", "[[pair]]\ntrained_for = 'me/base'"))
    entries, (problem,) = read(path)
    assert entries == [plain]
    assert str(problem) == f"{path}: pair mine: trained_for is unknown"


def test_a_name_given_twice_is_said(tmp_path: Path) -> None:
    _, (problem,) = load(user_file(tmp_path, OWN + OWN))
    assert problem.reason == "is given twice"


def test_a_pair_that_is_remembered_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = user_file(tmp_path, "# mine\n" + OWN)
    found = CatalogueEntry(
        name="found",
        title='Base "Q4" é\n\x7f',
        target=ModelSource(repo="a/b", file="x/y.gguf", size=7),
        draft=ModelSource(checkpoint="c/d"),
    )
    remember(found, path)
    remember(msgspec.structs.replace(found, name="second"), path)
    entries, problems = load(path)
    assert problems == []
    assert [entry.name for entry in entries[-3:]] == ["mine", "found", "second"]
    assert entries[-2] == found
    assert path.read_text().startswith("# mine\n")
    remember(found, tmp_path / "new" / "catalogue.toml")
    assert load(tmp_path / "new" / "catalogue.toml")[0][-1] == found


@pytest.mark.parametrize("before", ["# für mich\n".encode("latin-1"), b"[[pair]\n"])
def test_what_is_no_toml_is_named_and_left_as_it_is(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "catalogue.toml"
    path.write_bytes(before)
    source = ModelSource(repo="a/b", file="y.gguf")
    remember(
        CatalogueEntry(
            name="found", title="Found", target=source, draft=ModelSource(repo="c/d", file="d.gguf")
        ),
        path,
    )
    assert path.read_bytes().startswith(before)
    assert b'name = "found"' in path.read_bytes()
    entries, (problem,) = load(path)
    assert entries
    assert str(problem).startswith(f"{path}: cannot be read (")
