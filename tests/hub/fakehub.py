"""A loopback server that speaks the Hub's protocol, with switches for everything that goes wrong.

Two origins: the Hub, which answers questions, and a storage server on another port, where the
bytes of large files are and where no token may ever arrive. Paths and headers are those the real
huggingface_hub client sends and reads.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from eaglechat.hub.downloads.client import Hub, RemoteFile

LFS_ENDINGS = (".gguf", ".safetensors", ".bin")
XORB = 64 << 10
"""Bytes of a file that Xet storage keeps as one object."""
XET_TOKEN = "for_xet_only"


@lru_cache(maxsize=256)
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=256)
def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def xorb(data: bytes, number: int) -> bytes:
    """An object of Xet storage: one chunk, after the 8 bytes that say how long it is."""
    chunk = data[number * XORB : (number + 1) * XORB]
    length = len(chunk).to_bytes(3, "little")
    return bytes([0, *length, 0, *length]) + chunk


@dataclass
class Repo:
    """A model repository: one branch, its newest commit's files, and what its card says.

    `older` are its earlier commits, `renamed` its name now.
    """

    files: dict[str, bytes]
    licence: str | None = "apache-2.0"
    base_models: tuple[str, ...] = ()
    """Evaluations, as `model-index` of a card has them."""
    gated: bool = False
    tags: tuple[str, ...] = ()
    downloads: int = 0
    older: tuple[Repo, ...] = ()
    renamed: str = ""

    def at(self, revision: str) -> Repo | None:
        """The repository at a commit or on its branch."""
        named = {"main": self, **{repo.commit: repo for repo in (*self.older, self)}}
        return named.get(revision)

    @property
    def commit(self) -> str:
        return hashlib.sha1(
            repr(sorted((path, sha256(data)) for path, data in self.files.items())).encode()
        ).hexdigest()


@dataclass
class Fault:
    """Something that goes wrong with the next `times` requests to this server by this method."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    """Not even a header comes."""
    stall_after: int | None = None
    close_after: int | None = None
    flip_byte: int | None = None
    extra: bytes = b""
    ignore_range: bool = False
    shift_range: int = 0
    content_range: str | None = None
    redirect: str | None = None
    server: str = "storage"
    method: str = "GET"
    times: int = 1


@dataclass
class Seen:
    """A request as the server saw it."""

    server: str
    method: str
    path: str
    token: str | None
    range: str | None
    status: int = 0
    sent: int = 0


class FakeHub:
    """Use as a context manager; `endpoint` is the address to give to the client."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens: set[str] = {"hf_good"}
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.signature = 0
        """Of the addresses in the storage; those given out before it changed have run out."""
        self.is_xet = False
        """Whether it says of large files where they are in Xet storage."""
        self.piece = 16 << 10
        self.pace: Callable[[Seen, int], None] = lambda seen, offset: None
        """Called before each piece is sent, with the file's offset it begins at."""
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._hub = _server(self, _HubHandler)
        self._storage = _server(self, _StorageHandler)

    def __enter__(self) -> FakeHub:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        for server in (self._hub, self._storage):
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_port}"

    @property
    def storage(self) -> str:
        return f"http://127.0.0.1:{self._storage.server_port}"

    def add(self, name: str, files: dict[str, bytes], **card: Any) -> Repo:
        self.repos[name] = Repo(dict(files), **card)
        return self.repos[name]

    def fail(self, **fault: Any) -> None:
        self.faults.append(Fault(**fault))

    def take_fault(self, seen: Seen) -> Fault:
        with self._lock:
            for fault in self.faults:
                is_meant = (fault.server, fault.method) == (seen.server, seen.method)
                if fault.times and is_meant:
                    fault.times -= 1
                    return fault
        return Fault()

    def content(self, digest: str) -> bytes | None:
        every = [one for repo in self.repos.values() for one in (repo, *repo.older)]
        files = (data for repo in every for data in repo.files.values())
        return next((data for data in files if sha256(data) == digest), None)

    def requests(self, server: str, method: str = "GET") -> list[Seen]:
        return [seen for seen in self.seen if (seen.server, seen.method) == (server, method)]


def _server(hub: FakeHub, handler: type[_Handler]) -> ThreadingHTTPServer:
    bound = type(handler.__name__, (handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    server_name_seen = ""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        self.saw = Seen(
            self.server_name_seen, self.command, self.path, token, self.headers.get("Range")
        )
        self.hub.seen.append(self.saw)
        self.fault = self.hub.take_fault(self.saw)
        try:
            if self.fault.hang:
                self.hub.closing.wait(30)
                self.close_connection = True
            elif self.fault.redirect:
                self.reply(302, b"", {"Location": self.fault.redirect})
            elif self.fault.status:
                self.reply(self.fault.status, b"broken", self.fault.headers)
            else:
                self.serve(urlsplit(self.path), token)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def serve(self, address: Any, token: str | None) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.saw.status = status
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.reply(status, b"{}", {"X-Error-Code": code, "Content-Type": "application/json"})

    def send_file(self, data: bytes) -> None:
        """The bytes asked for, in pieces, with whatever fault is on."""
        fault, hub = self.fault, self.hub
        start, end, status = 0, len(data), 200
        headers = {"ETag": f'"{git_hash(data)}"'}
        if self.saw.range and not fault.ignore_range:
            first, _, last = self.saw.range.removeprefix("bytes=").partition("-")
            start, end = int(first) + fault.shift_range, int(last) + 1 if last else len(data)
            status = 206
            if start >= len(data):
                return self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            sent = f"bytes {start}-{end - 1}/{len(data)}"
            headers["Content-Range"] = fault.content_range or sent
        if fault.flip_byte is not None:
            at = fault.flip_byte
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        body = data[start:end] + fault.extra
        self.saw.status = status
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        limits = (n for n in (fault.stall_after, fault.close_after) if n is not None)
        stop = min(next(limits, len(body)), len(body))
        while self.saw.sent < stop:
            hub.pace(self.saw, start + self.saw.sent)
            piece = body[self.saw.sent : min(self.saw.sent + hub.piece, stop)]
            self.wfile.write(piece)
            self.saw.sent += len(piece)
        if fault.stall_after is not None:
            hub.closing.wait(30)
        if stop < len(body):
            self.close_connection = True
        return None


class _HubHandler(_Handler):
    server_name_seen = "hub"

    def serve(self, address: Any, token: str | None) -> None:
        path = unquote(address.path).lstrip("/")
        if path == "api/models":
            self.list_models(parse_qs(address.query))
        elif path.startswith("v2/reconstructions/"):
            self.reconstruct(path.rsplit("/", 1)[-1], token)
        else:
            self.serve_repo(path, token)

    def serve_repo(self, path: str, token: str | None) -> None:
        parts = path.removeprefix("api/models/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        repo = self.hub.repos.get(name)
        if repo is None:
            return self.refuse(401 if token is None else 404, "RepoNotFound")
        if path.startswith("api/models/"):
            return self.model_info(name, repo, rest)
        if repo.gated and token not in self.hub.tokens:
            return self.refuse(401 if token is None else 403, "GatedRepo")
        found = repo.at(rest[1]) if rest[:1] == ["resolve"] else None
        if found is None:
            return self.refuse(404, "RevisionNotFound")
        return self.resolve(name, found, "/".join(rest[2:]))

    def resolve(self, name: str, repo: Repo, path: str) -> None:
        data = repo.files.get(path)
        if data is None:
            return self.refuse(404, "EntryNotFound")
        if not path.endswith(LFS_ENDINGS):
            headers = {"X-Repo-Commit": repo.commit, "ETag": f'"{git_hash(data)}"'}
            return self.reply(200, data, headers)
        digest = sha256(data)
        headers = {
            "Location": f"{self.hub.storage}/blobs/{digest}?signature={self.hub.signature}",
            "X-Repo-Commit": repo.commit,
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(data)),
        }
        if self.hub.is_xet:
            headers["X-Xet-Hash"] = digest
            route = f"{self.hub.endpoint}/api/models/{name}/xet-read-token/{repo.commit}"
            headers["X-Xet-Refresh-Route"] = route
        return self.reply(302, b"", headers)

    def reconstruct(self, digest: str, token: str | None) -> None:
        """Which objects of the storage a range of a file is made of: each one chunk here."""
        data = self.hub.content(digest)
        if data is None or token != XET_TOKEN:
            return self.reply(404 if data is None else 401, b"", {})
        first, _, last = (self.saw.range or "bytes=0-").removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)), len(data) - 1)
        terms, places = [], {}
        for number in range(start // XORB, end // XORB + 1):
            piece = xorb(data, number)
            name, chunk = sha256(piece), {"start": 0, "end": 1}
            terms.append({"hash": name, "unpacked_length": len(piece) - 8, "range": chunk})
            url = f"{self.hub.storage}/xorbs/{digest}/{number}?signature={self.hub.signature}"
            spans = [{"chunks": chunk, "bytes": {"start": 0, "end": len(piece) - 1}}]
            places[name] = [{"url": url, "ranges": spans}]
        return self.reply_json(
            {"offset_into_first_range": start % XORB, "terms": terms, "xorbs": places}
        )

    def model_info(self, name: str, repo: Repo, rest: list[str]) -> None:
        found = repo.at(rest[1]) if rest[:1] == ["revision"] else repo
        if found is None:
            return self.refuse(404, "RevisionNotFound")
        if rest[:1] == ["xet-read-token"]:
            expiry = int(time.time()) + 3600
            found_at = {"accessToken": XET_TOKEN, "exp": expiry, "casUrl": self.hub.endpoint}
            return self.reply_json(found_at)
        if repo.renamed:
            address = "/".join(["/api/models", repo.renamed, *rest])
            return self.reply(307, b"", {"Location": address})
        return self.reply_json(self.describe(name, found))

    def list_models(self, query: dict[str, list[str]]) -> None:
        text = query.get("search", [""])[0].lower()
        author = query.get("author", [""])[0].lower()
        wanted = set(query.get("filter", []))
        found = [
            self.describe(name, repo)
            for name, repo in self.hub.repos.items()
            if all(word in name.lower() for word in text.split())
            and author in ("", name.lower().partition("/")[0])
            and wanted <= set(self.tags(repo))
        ]
        found.sort(key=lambda info: -info["downloads"])
        return self.reply_json(found[: int(query.get("limit", ["1000"])[0])])

    def describe(self, name: str, repo: Repo) -> dict[str, Any]:
        card: dict[str, Any] = {"license": repo.licence, "base_model": list(repo.base_models)}
        return {
            "_id": name,
            "id": name,
            "modelId": name,
            "sha": repo.commit,
            "gated": "auto" if repo.gated else False,
            "private": False,
            "downloads": repo.downloads,
            "likes": 0,
            "tags": self.tags(repo),
            "cardData": {key: value for key, value in card.items() if value},
            "siblings": [self.file_info(p, d) for p, d in repo.files.items()],
        }

    def tags(self, repo: Repo) -> list[str]:
        gguf = ["gguf"] if any(path.endswith(".gguf") for path in repo.files) else []
        licence = [f"license:{repo.licence}"] if repo.licence else []
        return [*repo.tags, *gguf, *licence, *(f"base_model:{base}" for base in repo.base_models)]

    def file_info(self, path: str, data: bytes) -> dict[str, Any]:
        info: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git_hash(data)}
        if path.endswith(LFS_ENDINGS):
            info["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
        return info

    def reply_json(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


class _StorageHandler(_Handler):
    server_name_seen = "storage"

    def serve(self, address: Any, token: str | None) -> None:
        _, kind, digest, *number = address.path.split("/")
        data = self.hub.content(digest)
        if data is not None and kind == "xorbs":
            data = xorb(data, int(number[0]))
        if data is None:
            return self.reply(404, b"", {})
        if parse_qs(address.query).get("signature") != [str(self.hub.signature)]:
            return self.reply(403, b"", {})
        return self.send_file(data)


class Shelf(Hub):
    """A Hub whose files are a folder's: what is asked for over the network is read from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def listing(self) -> list[RemoteFile]:
        files = sorted(self.folder.iterdir())
        return [RemoteFile("u/m", one.name, "0" * 40, one.stat().st_size, None) for one in files]

    def read_small(self, file: RemoteFile, limit: int = 1 << 20) -> bytes:
        return (self.folder / file.path).read_bytes()


def slowly(bytes_per_second: float) -> Callable[[Seen, int], None]:
    """A pace for FakeHub: as slow as this."""

    def wait(seen: Seen, offset: int) -> None:
        time.sleep((16 << 10) / bytes_per_second)

    return wait
