"""The folders of other programs that keep models, and how their files are named there.

LM Studio has PUBLISHER/REPOSITORY/FILE in its folder, llama.cpp PUBLISHER_REPOSITORY_FILE in its
own (before it used the Hugging Face cache), and Ollama blobs named by their SHA-256 (ollama.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def lm_studio_folders() -> list[Path]:
    home = Path.home()
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    try:
        settings = json.loads((home / ".lmstudio" / "settings.json").read_text(encoding="utf-8"))
        folders.insert(0, Path(settings["downloadsFolder"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return folders


def llama_cpp_folder() -> Path:
    """llama.cpp's folder for downloads; newer releases use the Hugging Face cache."""
    own = os.environ.get("LLAMA_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "llama.cpp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llama.cpp"


def llama_cpp_prefix(repo: str) -> str:
    """How the names of a repository's files begin in llama.cpp's folder."""
    return repo.replace("/", "_") + "_"


def repo_in_llama_cpp(folder: Path, file: str) -> str | None:
    """The repository of a file in llama.cpp's folder, of those that have a manifest there,
    `manifest=OWNER=REPOSITORY=TAG.json`; None if it is of none."""
    names = (path.name.split("=") for path in folder.glob("manifest=*=*=*.json"))
    # One name may begin with another.
    repos = sorted({f"{parts[1]}/{parts[2]}" for parts in names}, key=len, reverse=True)
    return next((repo for repo in repos if file.startswith(llama_cpp_prefix(repo))), None)


def checkpoint_in(folder: Path) -> tuple[Path, ...]:
    """The files of a checkpoint of which the folder has the weights, config.json first; empty
    without one."""
    config = folder / "config.json"
    weights = [path for ending in (".safetensors", ".bin") for path in folder.glob(f"*{ending}")]
    if not weights or not config.exists():
        return ()
    return (config, *sorted(weights), *sorted(folder.glob("*.index.json")))
