"""The files in the state directory: what the app remembers, and can do without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from eaglechat import paths

T = TypeVar("T")
Other = TypeVar("Other")


class StateFile(Generic[T]):
    """A JSON file of one type. One that cannot be read counts as not there, and one that cannot be
    written is left as it is: what it holds is found out again. `complain` is told the rest of a
    sentence about it: "cannot be read" or "written", and why."""

    def __init__(
        self,
        name: str,
        type: type[T],
        folder: Path | None = None,
        complain: Callable[[str], None] = lambda _: None,
        indent: int = 2,
    ) -> None:
        """`indent` is -1 for a file that nobody would read: it is half as large."""
        self._name, self._type, self._folder, self._complain = name, type, folder, complain
        self._indent = indent

    @property
    def path(self) -> Path:
        return (self._folder or paths.state_dir()) / self._name

    def read(self, otherwise: Other) -> T | Other:
        try:
            content = self.path.read_bytes()
            return msgspec.json.decode(content, type=self._type, dec_hook=_from_text)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            self._complain(f"cannot be read ({self.path}: {error}).")
        return otherwise

    def write(self, value: T) -> None:
        content = msgspec.json.format(_encoded(value), indent=self._indent)
        try:
            paths.write_atomically(self.path, content)
        except OSError as error:
            self._complain(f"cannot be written ({error}).")

    @contextmanager
    def changing(self, otherwise: T) -> Iterator[T]:
        """What the file holds, which is changed in place and written if it is another then. Other
        programs and threads wait."""
        with paths.changing(self.path):
            value = self.read(otherwise)
            before = _encoded(value)
            yield value
            if _encoded(value) != before:
                self.write(value)


def _encoded(value: object) -> bytes:
    """What JSON has no type for, such as a path, is a text."""
    return msgspec.json.encode(value, enc_hook=str)


def _from_text(type: type[Any], text: str) -> Any:
    return type(text)
