"""A folder with a model of each kind: targets with and without heads, and drafts."""

from __future__ import annotations

from pathlib import Path

from tests import ggufs, tiny_kinds


def write_one_of_each(folder: Path) -> Path:
    """The name of a file says what it is; the drafts fit `plain`, except for `eagle3` and `eagle4`,
    which fit `other`, `sidecar`, which fits `heads`, and `assistant`, which fits `gemma4`."""
    folder.mkdir(parents=True)
    tiny_kinds.write_llama(folder / "plain.gguf")
    tiny_kinds.write_hy_v3(folder / "heads.gguf")
    tiny_kinds.write_hy_v3(folder / "stripped.gguf", strip=True)
    tiny_kinds.write_hy_v3(folder / "sidecar.gguf", mtp_only=True)
    tiny_kinds.write_gemma4(folder / "gemma4.gguf")
    tiny_kinds.write_gemma4_assistant(folder / "assistant.gguf")
    for variant in ("dflash", "dspark", "dflash2"):
        tiny_kinds.write_dflash(folder / f"{variant}.gguf", variant=variant)
    (folder / "other.gguf").write_bytes(ggufs.target())
    (folder / "eagle3.gguf").write_bytes(ggufs.draft())
    (folder / "eagle4.gguf").write_bytes(ggufs.draft(**{"eaglechat.eagle4": True}))
    (folder / "unreadable.gguf").write_bytes(ggufs.target("gemma3"))
    (folder / "projector.gguf").write_bytes(ggufs.target("clip"))
    return folder
