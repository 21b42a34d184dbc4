"""What is on this machine, told by headers, and taken off it again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import RetryPolicy, download
from eaglechat.hub.errors import HubError
from eaglechat.hub.local import headers, removal
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.library import files_here, find, find_file, locate, scan
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.hub.references import ModelSource
from tests import ggufs
from tests.hub.fakehub import FakeHub

TARGET, DRAFT = ggufs.target(), ggufs.draft()
SPLIT = [f"q8/m-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]


def put(path: Path, data: bytes = TARGET) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def pull(hub: Hub, repo: str, path: str) -> Path:
    return download(hub, hub.repo(repo).file(path), policy=RetryPolicy(attempts=1))


def by_name(models: list[LocalModel]) -> dict[str, LocalModel]:
    return {model.name: model for model in models}


def test_every_place_is_searched(hub: Hub, fake: FakeHub, home: Path, tmp_path: Path) -> None:
    fake.add("user/model", {"m.gguf": TARGET})
    pull(hub, "user/model", "m.gguf")
    put(home / ".lmstudio" / "models" / "lm" / "repo" / "l.gguf")
    put(home / ".cache" / "llama.cpp" / "user_repo_c.gguf")
    put(home / "eaglechat" / "data" / "drafts" / "eagle3-mine-Q8_0.gguf", DRAFT)
    put(tmp_path / "own" / "o.gguf")
    found = scan([tmp_path / "own", tmp_path / "nowhere"], hub.cache_dir)
    assert {(model.name, model.source, model.kind) for model in found} == {
        ("user/model/m.gguf", Source.HUGGING_FACE, ModelKind.TARGET),
        ("lm/repo/l.gguf", Source.LM_STUDIO, ModelKind.TARGET),
        ("user_repo_c", Source.LLAMA_CPP, ModelKind.TARGET),
        ("eagle3-mine-Q8_0", Source.CONVERTED, ModelKind.DRAFT),
        ("o", Source.FOLDER, ModelKind.TARGET),
    }
    assert all(model.size_bytes == len(model.path.read_bytes()) for model in found)


def test_the_header_counts_not_the_name(tmp_path: Path, hub: Hub) -> None:
    own = tmp_path / "own"
    put(own / "eagle3-looks-like-a-draft.gguf", TARGET)
    put(own / "looks-like-a-target.gguf", DRAFT)
    put(own / "projector.gguf", ggufs.target("clip"))
    put(own / "gemma3.gguf", ggufs.target("gemma3"))
    put(own / "cut.gguf", TARGET[:-40])
    put(own / "text.gguf", b"hello")
    kinds = {model.name: model.kind for model in scan([own], hub.cache_dir)}
    assert kinds == {
        "eagle3-looks-like-a-draft": ModelKind.TARGET,
        "looks-like-a-target": ModelKind.DRAFT,
        "projector": ModelKind.OTHER,
        "gemma3": ModelKind.PLAIN,
        "cut": ModelKind.BROKEN,
        "text": ModelKind.BROKEN,
    }
    models = by_name(scan([own], hub.cache_dir))
    assert "cut short" in (models["cut"].problem or "")
    assert "No draft runs with models of architecture gemma3" in (models["gemma3"].problem or "")


def test_a_split_model_is_one_and_says_which_part_is_missing(tmp_path: Path, hub: Hub) -> None:
    own = tmp_path / "own"
    for shard in SPLIT:
        put(own / shard)
    (model,) = scan([own], hub.cache_dir)
    assert (model.name, model.size_bytes) == ("q8/m-Q8_0.gguf", 2 * len(TARGET))
    for missing, there in ((1, 0), (0, 1)):
        (own / SPLIT[missing]).unlink()
        (model,) = scan([own], hub.cache_dir)
        assert (model.name, model.kind) == ("q8/m-Q8_0.gguf", ModelKind.BROKEN)
        assert f"missing: {SPLIT[missing][3:]}." in (model.problem or "")
        put(own / SPLIT[missing])
        assert model.files == (own / SPLIT[there],)


def test_a_split_model_of_another_program_has_a_plain_name(hub: Hub, home: Path) -> None:
    for number in (1, 2):
        shard = f"m-0000{number}-of-00002.gguf"
        put(home / ".lmstudio" / "models" / "lm" / "repo" / shard)
        put(home / ".cache" / "llama.cpp" / f"user_repo_{shard}", DRAFT)
    found = by_name(scan([], hub.cache_dir))
    assert found.keys() == {"lm/repo/m.gguf", "user_repo_m"}
    assert found["user_repo_m"].path.name == "user_repo_m-00001-of-00002.gguf"
    assert found["user_repo_m"].size_bytes == 2 * len(DRAFT)
    assert find([*found.values()], "lm/repo/m.gguf") == [found["lm/repo/m.gguf"]]
    put(home / ".cache" / "llama.cpp" / "manifest=user=repo=latest.json", b"{}")
    assert "user/repo/m.gguf" in by_name(scan([], hub.cache_dir))


def test_a_split_model_is_not_put_together_from_two_folders(hub: Hub, home: Path) -> None:
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    half, other = (folder / "lm" / "repo" for folder in folders)
    put(half / SPLIT[0])
    put(other / SPLIT[1])
    source, size = ModelSource(repo="lm/repo", quantization="Q8_0"), len(TARGET)

    def here() -> list[LocalModel]:
        return files_here(cache=hub.cache_dir)

    assert locate(here(), source) is None
    assert find_file(here(), "lm/repo", SPLIT[0], size, None) is None
    put(other / SPLIT[0])
    found = locate(here(), source)
    assert found is not None
    assert found.path == other / SPLIT[0]
    assert find_file(here(), "lm/repo", SPLIT[0], size, None) == found.path


def test_a_link_into_the_cache_is_not_a_second_model(
    hub: Hub, fake: FakeHub, tmp_path: Path
) -> None:
    fake.add("user/model", {"m.gguf": TARGET})
    path = pull(hub, "user/model", "m.gguf")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "linked.gguf").symlink_to(path)
    (tmp_path / "own" / "circle").symlink_to(tmp_path / "own")
    assert [model.name for model in scan([tmp_path / "own"], hub.cache_dir)] == [
        "user/model/m.gguf"
    ]


def test_checkpoints_and_unfinished_downloads_are_listed(hub: Hub, fake: FakeHub) -> None:
    files = {"config.json": b'{"architectures": ["Eagle3LlamaForCausalLM"]}'}
    fake.add("user/eagle", {**files, "model.safetensors": b"x" * 1000})
    for path in ("config.json", "model.safetensors"):
        pull(hub, "user/eagle", path)
    fake.add("user/big", {"big.gguf": TARGET})
    fake.fail(close_after=100)
    with pytest.raises(HubError):
        pull(hub, "user/big", "big.gguf")
    models = by_name(scan([], hub.cache_dir))
    assert models["user/eagle"].kind is ModelKind.CHECKPOINT
    assert models["user/eagle"].size_bytes == 1000 + len(files["config.json"])
    left = models["user/big/big.gguf"]
    assert (left.kind, left.size_bytes) == (ModelKind.UNFINISHED, 100)
    assert f"stopped at {100 * 100 // len(TARGET)}%" in (left.problem or "")
    freed = removal.plan_removal([left])
    removal.remove(freed)
    assert "user/big/big.gguf" not in by_name(scan([], hub.cache_dir))
    assert not list(hub.cache_dir.rglob("*.part*"))


def test_why_the_system_does_not_give_a_file_is_said_in_words(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    put(tmp_path / "own" / "m.gguf")
    monkeypatch.setattr(headers, "read_header", refuse)
    (model,) = scan([tmp_path / "own"], hub.cache_dir)
    assert model.problem == "Permission denied."


def test_a_download_that_goes_on_is_not_deleted(hub: Hub) -> None:
    cache = RepoCache(hub.cache_dir, "user/big")
    put(cache.partial("e"), b"x" * 1000)
    cache.write_record("e", "big.gguf", "main", 1_000_000)
    cache.lock("e").parent.mkdir(parents=True)
    with WeakFileLock(cache.lock("e")):
        (model,) = scan([], hub.cache_dir)
        assert model.problem == "It is being downloaded."
        with pytest.raises(OSError, match="it is being downloaded"):
            removal.plan_removal([model])
    assert tuple(removal.plan_removal([model]).files) == model.files


@pytest.mark.parametrize(
    "text",
    [
        "user/model/m-Q4_K_M.gguf", "user/model:q4_k_m", "m-Q4_K_M", "m-Q4_K_M.gguf", "PATH",
        "USER/Model:Q4_K_M", "M-q4_k_m.GGUF", "hf.co/user/model:Q4_K_M", "hf:user/model:Q4_K_M",
        "huggingface.co/user/model:Q4_K_M", "user/model:m-Q4_K_M.gguf",
        "https://huggingface.co/user/model/resolve/main/m-Q4_K_M.gguf?download=true",
    ],
)  # fmt: skip
def test_a_model_is_found_by_what_people_call_it(hub: Hub, fake: FakeHub, text: str) -> None:
    fake.add("user/model", {"m-Q4_K_M.gguf": TARGET, "m-Q8_0.gguf": TARGET + b"0"})
    wanted = pull(hub, "user/model", "m-Q4_K_M.gguf")
    pull(hub, "user/model", "m-Q8_0.gguf")
    models = scan([], hub.cache_dir)
    (found,) = find(models, text.replace("PATH", str(wanted)))
    assert found.path == wanted
    assert len(find(models, "user/model")) == 2
    assert find(models, "user/other") == []
