"""Where eaglechat keeps its files: in each platform's folders, or all in EAGLECHAT_HOME."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

_APP = "eaglechat"
_LOCK_S = 5.0


_FOLDERS = (
    "EAGLECHAT_HOME", "HF_ASSETS_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_STORED_TOKENS_PATH",
    "HF_TOKEN_PATH", "HF_XET_CACHE", "HUGGINGFACE_ASSETS_CACHE", "HUGGINGFACE_HUB_CACHE",
    "LLAMA_CACHE", "OLLAMA_MODELS",
)  # fmt: skip
_NUMBERS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
_OF_HUB = ("HF_", "HUGGINGFACE_", "HUGGING_FACE_")
_XDG = tuple(f"XDG_{kind}_HOME" for kind in ("CACHE", "CONFIG", "DATA", "STATE"))


def tidy_environment(environment: MutableMapping[str, str]) -> None:
    """Unset the variables of folders and of the Hub that are empty, as compose files leave them,
    and numbers that are none: the libraries that read them would take the current folder, or fail.

    XDG variables with a relative path count as unset too, as their specification says; the other
    paths are made absolute, and a `~` in them is replaced by the home. Quotes around a value, which
    an env file of Docker keeps, go.
    """
    for name, given in list(environment.items()):
        if not (name in (*_FOLDERS, *_XDG, "HOME") or name.startswith(_OF_HUB)):
            continue
        value = re.sub(r"""^(["'])(.*)\1$""", r"\2", given.strip()).strip()
        is_relative = name in _XDG and not Path(value).is_absolute()
        is_no_number = name in _NUMBERS and not value.isdecimal()
        if not value or is_relative or is_no_number:
            del environment[name]
        elif name in _FOLDERS:
            environment[name] = str(expanded(value).absolute())
        elif name == "HF_ENDPOINT" and not _is_read(value):
            # Whole, it would end the import of huggingface_hub; the client says what is wrong.
            environment[name] = value.rpartition("://")[2]
        else:
            environment[name] = value
    # huggingface_hub asks the Hub which agents there are, to tell it whether one of them runs this
    # program, and fails over an answer that is none.
    environment.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def _is_read(address: str) -> bool:
    """Whether an address can be taken apart."""
    try:
        return urlsplit(address).port != 0
    except ValueError:
        return False


def expanded(path: str | Path) -> Path:
    """The path with `~` replaced by a home folder, or as it is if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _directory(kind: str, platform_path: Path) -> Path:
    home = os.environ.get("EAGLECHAT_HOME")
    return expanded(home) / kind if home else platform_path


def config_dir() -> Path:
    """Holds config.toml, and the user's themes, roles and pairs."""
    return _directory("config", platformdirs.user_config_path(_APP, appauthor=False))


def data_dir() -> Path:
    """Holds the chats, the converted drafts and the re-encoded targets."""
    return _directory("data", platformdirs.user_data_path(_APP, appauthor=False))


def state_dir() -> Path:
    """Holds what the app remembers, such as recent pairs."""
    return _directory("state", platformdirs.user_state_path(_APP, appauthor=False))


def log_dir() -> Path:
    """Holds the engine's logs."""
    return _directory("log", platformdirs.user_log_path(_APP, appauthor=False))


def config_file() -> Path:
    return config_dir() / "config.toml"


def user_themes_dir() -> Path:
    return config_dir() / "themes"


def user_roles_dir() -> Path:
    return config_dir() / "roles"


def chats_file() -> Path:
    return data_dir() / "chats.sqlite3"


def user_catalogue() -> Path:
    """The user's own pairs, which are added to the built-in catalogue."""
    return config_dir() / "catalogue.toml"


def drafts_dir() -> Path:
    """Drafts converted from checkpoints, named eagle3-<pair>-<QUANTISATION>.gguf."""
    return data_dir() / "drafts"


def reencoded_dir() -> Path:
    """Holds copies of targets in a type that verifies faster. They may be deleted."""
    return data_dir() / "reencoded"


def engine_log() -> Path:
    return log_dir() / "engine.log"


def crash_log() -> Path:
    """The log of the engine that crashed last."""
    return log_dir() / "engine-crash.log"


def builtin_themes_dir() -> Path:
    """The built-in themes: package data in a wheel, themes/ in a checkout."""
    packaged = Path(__file__).parent / "themes"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "themes"


@contextmanager
def changing(file: Path) -> Iterator[None]:
    """Hold off other programs and threads that change this file, so that what is read within is
    what is replaced. Where no lock can be had, and after _LOCK_S, it goes on without."""
    from filelock import FileLock  # noqa: PLC0415 - most commands change no file

    lock = state_dir() / "locks" / f"{file.name}.lock"
    with ExitStack() as held:
        # A lock that is not free in time is an OSError too.
        with suppress(OSError, NotImplementedError):
            lock.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(lock).acquire(timeout=_LOCK_S))
        yield


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file as `replacing` does. Raises OSError."""
    with replacing(path) as new:
        new.write_bytes(content)


@contextmanager
def replacing(path: Path, ending: str = "") -> Iterator[Path]:
    """A file to write, beside `path`, which is `path` at the end: after a crash or a power cut that
    is either the old or the new one. With an `ending` its name is the same each time, and what a
    killed process left is overwritten; the caller sees to it that there is one writer. Of a
    symbolic link, the target is replaced. Permissions are kept. Raises OSError.
    """
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    unique = f".{os.getpid()}-{threading.get_ident()}.tmp"
    new = place.with_name(place.name + (ending or unique))
    try:
        new.unlink(missing_ok=True)
        yield new
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(place, new)
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)
    if os.name != "nt":
        # Let the disk keep the folder's entries; some network disks refuse it.
        with suppress(OSError):
            handle = os.open(place.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def why_unwritable(folder: Path) -> str | None:
    """Why nothing can be written in a folder, which need not exist yet; None if it can."""
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return f"{place}: {error.strerror or error}"
