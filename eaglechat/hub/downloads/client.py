"""The client of the Hugging Face Hub: a thin layer over huggingface_hub.

The token comes from huggingface_hub's usual places (HF_TOKEN, the file that `hf auth login`
writes). Only requests to the Hub's own origin carry it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import httpx2
import msgspec
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import (
    XetFileData,
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    logging,
    validate_repo_id,
)
from msgspec import Meta

from eaglechat.gguf.header import GGUFHeader, parse_as_read, parse_beginning
from eaglechat.hub.downloads.explain import NOT_JSON, explain
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.local.cache import cache_dir as default_cache_dir

# Warnings would be printed over the screen; every failure is an exception as well.
logging.set_verbosity_error()

_COMMIT, _HASH = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_WAIT = 5.0
_PEEK_BYTES = 1 << 20
_BEGINNING_BYTES = 256 << 10
_SEARCH_FIELDS = ["downloads", "gated", "tags"]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at one commit; `sha256` is None for small files stored in git."""

    repo: str
    path: str
    commit: str
    size: int
    sha256: str | None
    revision: str = "main"
    """The branch, tag or commit by which the repository was asked for."""

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"


@dataclass(frozen=True)
class RemoteRepo:
    """A model repository at one commit: its files, and what its card says. A search does not tell
    commit, files and base models."""

    repo: str
    commit: str = ""
    files: tuple[RemoteFile, ...] = field(default=(), repr=False)
    gated: bool = False
    licence: str | None = None
    base_models: tuple[str, ...] = ()
    downloads: int = 0
    tags: tuple[str, ...] = field(default=(), repr=False)
    renamed: str | None = None
    """Its current name, if it is not the name that was asked for."""

    def file(self, path: str) -> RemoteFile:
        """Raises HubError."""
        for file in self.files:
            if file.path == path:
                return file
        raise HubError(f"{self.repo} has no file {path} on the Hub.")

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


@dataclass(frozen=True)
class FileMetadata:
    """The answer to a HEAD request. The etag is the hash of the file."""

    commit: str
    etag: str
    location: str
    size: int
    xet: XetFileData | None = None
    """Where the file is in Xet storage, if it is."""


class _Lfs(msgspec.Struct, frozen=True):
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Sibling(msgspec.Struct, frozen=True):
    rfilename: str
    size: Annotated[int, Meta(ge=0)] | None = None
    lfs: _Lfs | None = None


class _Info(msgspec.Struct, frozen=True):
    """What the Hub's API says of a repository, in its own words."""

    id: str
    sha: Annotated[str, Meta(pattern=r"^[0-9a-f]{40}\Z")] | None = None
    siblings: list[_Sibling] | None = None
    gated: bool | str = False
    cardData: dict[str, Any] | None = None  # noqa: N815
    tags: list[str] | None = None
    downloads: int | None = None


class Hub:
    """The Hub at `endpoint` (None: HF_ENDPOINT, else huggingface.co), and the cache for its files.

    Every method may be called from any thread, may wait for the network, and raises HubError.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        cache_dir: Path | None = None,
        connect_s: float = 5.0,
        read_s: float = 20.0,
        waits: tuple[float, ...] = (0.5, 1.5),
    ) -> None:
        """`connect_s` and `read_s` are waited for a connection and for the next byte of a response,
        and `waits` before each repetition of a request that failed transiently, in seconds."""
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.cache_dir = cache_dir or default_cache_dir()
        self.connect_s, self.read_s = connect_s, read_s
        self._waits = waits
        self._headers: dict[RemoteFile, GGUFHeader] = {}
        self._beginnings: dict[RemoteFile, GGUFHeader] = {}

    def repo(self, repo: str, revision: str = "main") -> RemoteRepo:
        """A repository at a revision."""

        url = f"{self.endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}"

        def ask() -> _Info:
            with self._explained(repo):
                validate_repo_id(repo)
                return self._ask(url, {"blobs": True}, _Info)

        info = self._repeat(ask)
        if info.sha is None:
            raise explain(msgspec.DecodeError("no commit"), repo)
        return _repo_of(info, repo, revision)

    def search(
        self, text: str = "", *, author: str = "", tags: tuple[str, ...] = (), limit: int = 30
    ) -> list[RemoteRepo]:
        """Repositories of `author` with `text` in their name and with all `tags`, most downloaded
        first."""
        wanted = text or author or ", ".join(tags)
        url = f"{self.endpoint}/api/models"
        question: dict[str, Any] = {"filter": list(tags), "sort": "downloads", "limit": limit}
        question |= {"expand": _SEARCH_FIELDS} | ({"search": text} if text else {})
        question |= {"author": author} if author else {}

        def ask() -> list[_Info]:
            # Not `list_models`: without a network it retries for half a minute before it fails.
            with self._explained(f"the search for {wanted}", f"to search for {wanted}"):
                return self._ask(url, question, list[_Info])

        return [_repo_of(info, info.id) for info in self._repeat(ask)]

    def _ask(self, url: str, question: dict[str, Any], answer: type[Answer]) -> Answer:
        response = self._session().get(url, params=question, headers=self.request_headers(url))
        hf_raise_for_status(response)
        return msgspec.json.decode(response.content, type=answer)

    def metadata(self, repo: str, path: str, revision: str) -> FileMetadata:
        """One HEAD request for a file; redirects are followed within the Hub only."""
        name = f"{repo}/{path}"
        url = hf_hub_url(repo, path, revision=revision, endpoint=self.endpoint)
        unsaid = HubError(
            f"{self.endpoint} does not say what {name} is: it is not a Hugging Face Hub, or a "
            "proxy strips its headers."
        )
        with self._explained(name):
            try:
                found = get_hf_file_metadata(url, timeout=self.read_s, endpoint=self.endpoint)
            except (HFValidationError, UnicodeError):
                raise
            except ValueError as error:  # a size that is no number
                raise unsaid from error
        commit, etag, size = found.commit_hash or "", found.etag or "", found.size
        # Both become file names, and the file is checked against the etag.
        if not (_COMMIT.fullmatch(commit) and _HASH.fullmatch(etag)) or size is None or size < 0:
            raise unsaid
        location = urljoin(url, found.location)
        return FileMetadata(commit, etag, location, size, found.xet_file_data)

    @contextmanager
    def stream(self, location: str, name: str, start: int, end: int | None = None) -> Iterator[Any]:
        """An open httpx2 response, status 200 or 206, for the bytes `start` to `end` (inclusive).

        Its body has not been read.
        """
        with self._explained(name):
            headers = self.request_headers(location) | {"Accept-Encoding": "identity"}
            if start or end is not None:
                headers["Range"] = f"bytes={start}-{'' if end is None else end}"
            with self._session().stream("GET", location, headers=headers) as response:
                hf_raise_for_status(response)
                yield response

    def peek(self, file: RemoteFile) -> GGUFHeader:
        """The header of a GGUF on the Hub, read with a few range requests. Raises GGUFError."""

        def ask() -> GGUFHeader:
            found = self.metadata(file.repo, file.path, file.commit)

            def read(start: int, count: int) -> bytes:
                return self._bytes(file, found, start, count)

            return parse_as_read(read, Path(file.path), found.size, _PEEK_BYTES)

        if file not in self._headers:
            self._headers[file] = self._repeat(ask)
        return self._headers[file]

    def peek_model(self, files: Sequence[RemoteFile]) -> GGUFHeader:
        """The header of a model, whose first file comes first. For a split model with MTP heads it
        also lists the tensors of the other files, because the heads are in the last one. Raises
        GGUFError."""
        first, *others = files
        header = self.peek(first)
        if not header.number("{arch}.nextn_predict_layers"):
            return header
        elsewhere = tuple(tensor for file in others for tensor in self.peek(file).tensors)
        return replace(header, tensors_elsewhere=elsewhere)

    def beginning(self, file: RemoteFile) -> GGUFHeader:
        """A GGUF's header up to its vocabulary, which is enough to compute the memory needed."""
        known = self._headers.get(file) or self._beginnings.get(file)
        if known is None:
            data = self._first_bytes(file, _BEGINNING_BYTES)
            known = parse_beginning(data, Path(file.path), file.size) or self.peek(file)
            self._beginnings[file] = known
        return known

    def read_small(self, file: RemoteFile, limit: int = 1 << 20) -> bytes:
        """The content of a small file such as config.json. Raises HubError if it is larger."""
        if file.size > limit:
            raise HubError(f"{file.name} is larger than a file of its kind is: it was not read.")
        return self._first_bytes(file, limit)

    def _first_bytes(self, file: RemoteFile, count: int) -> bytes:
        def ask() -> bytes:
            found = self.metadata(file.repo, file.path, file.commit)
            return self._bytes(file, found, 0, count)

        return self._repeat(ask)

    def _bytes(self, file: RemoteFile, found: FileMetadata, start: int, end: int) -> bytes:
        end = min(end, found.size)
        if start >= end:
            return b""
        data = bytearray()
        with self.stream(found.location, file.name, start, end - 1) as response:
            # Status 200 means that the server ignores ranges and sends the file from its start.
            skipped = start if response.status_code == 200 else 0
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) >= skipped + end - start:
                    break
        return bytes(data[skipped : skipped + end - start])

    def _repeat(self, ask: Callable[[], Answer]) -> Answer:
        """Repeat a request that failed transiently, unless the Hub asks for a longer wait."""
        for wait in self._waits:
            try:
                return ask()
            except HubError as error:
                pause = error.retry_after or wait
                if not error.transient or isinstance(error, OfflineError) or pause > _LONGEST_WAIT:
                    raise
                time.sleep(pause)
        return ask()

    def _session(self) -> httpx2.Client:
        try:
            session = get_session()
        except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
            why = str(getattr(error, "strerror", None) or error).rstrip(".")
            raise HubError(
                f"No connection to the Hub can be made: {why}; check ALL_PROXY, HTTPS_PROXY and "
                "SSL_CERT_FILE."
            ) from error
        # huggingface_hub's default is to wait for ever.
        session.timeout = httpx2.Timeout(self.read_s, connect=self.connect_s)
        return session

    def request_headers(self, url: str) -> dict[str, str]:
        """Headers for a request to this address, with the token only if it is the Hub's."""
        same = httpx2.URL(url).origin == httpx2.URL(self.endpoint).origin
        return build_hf_headers(token=None if same else False, library_name="eaglechat")

    @contextmanager
    def _explained(self, name: str, purpose: str = "") -> Iterator[None]:
        _check_address(self.endpoint)
        self._session()
        try:
            yield
        except (
            httpx2.RequestError,
            httpx2.InvalidURL,
            OSError,
            UnicodeError,
            HFValidationError,
            *NOT_JSON,
        ) as error:
            raise explain(error, name, purpose) from error


def _check_address(endpoint: str) -> None:
    """Raises HubError if nothing can be asked there."""
    with suppress(ValueError):
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    raise HubError(
        f"HF_ENDPOINT is {endpoint}, which is no address of a Hub: write https:// and its host, or "
        "unset it."
    )


def _repo_of(info: _Info, repo: str, revision: str = "main") -> RemoteRepo:
    commit, card, tags = info.sha or "", info.cardData or {}, info.tags or []

    def tagged(key: str) -> list[str]:
        return [tag.rpartition(":")[2] for tag in tags if tag.startswith(f"{key}:")]

    licence = card.get("license") or next(iter(tagged("license")), None)
    bases = card.get("base_model") or []
    bases = [*(bases if isinstance(bases, list) else [bases]), *tagged("base_model")]
    files = (
        RemoteFile(
            repo,
            file.rfilename,
            commit,
            file.size or 0,
            file.lfs.sha256 if file.lfs else None,
            revision,
        )
        for file in info.siblings or ()
    )
    return RemoteRepo(
        repo=repo,
        commit=commit,
        files=tuple(files),
        gated=bool(info.gated),
        licence=None if licence is None else str(licence),
        base_models=tuple(dict.fromkeys(map(str, bases))),
        downloads=info.downloads or 0,
        tags=tuple(tags),
        renamed=info.id if info.id != repo else None,
    )
