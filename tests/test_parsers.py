"""What comes from outside is read, or refused with the parser's own error: never another one."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.engine.bench.prompts import parse_prompts
from eaglechat.engine.drafters.pairing import check_headers
from eaglechat.engine.llama import workarounds
from eaglechat.gguf.header import GGUFError, parse_beginning, parse_header, read_header
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import shard_of
from eaglechat.hub import catalogue
from eaglechat.hub.references import InvalidReferenceError, parse
from eaglechat.links.http.address import AddressError, parse_address, same_server
from eaglechat.links.http.faults import message_in
from eaglechat.wire.lines import ProtocolError, decode_event, decode_request
from tests import tiny

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
).map(msgspec.json.encode)
DEEP = b'{"a":' + b"[" * 100_000
BYTES = st.binary(max_size=60) | JSON


@cache
def gguf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return tiny.write_draft(Path(folder, "draft.gguf")).read_bytes()


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6),
    st.integers(0, 4000) | st.none(),
)
def test_a_gguf(changes: list[tuple[int, int]], end: int | None) -> None:
    data = bytearray(gguf())
    for place, value in changes:
        data[place] = value
    with suppress(GGUFError, PreflightError):
        header = parse_header(bytes(data[:end]), Path("m.gguf"), len(data))
        assert header.n_embd >= 0
        assert header.n_layers >= 0
        check_headers(header, header)
    parse_beginning(bytes(data[:end]), Path("m.gguf"), len(data))


@given(st.binary(max_size=200))
def test_a_file_that_is_no_gguf(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.gguf")
        path.write_bytes(content)
        with pytest.raises(GGUFError):
            read_header(path)


@given(BYTES)
@example(DEEP)
def test_a_line_of_the_protocol(line: bytes) -> None:
    for decode in (decode_request, decode_event):
        with suppress(ProtocolError):
            decode(line)


@given(st.text(max_size=60))
def test_a_name_of_a_model(text: str) -> None:
    shard_of(text)
    with suppress(InvalidReferenceError):
        parse(text)


@given(st.text(max_size=60) | st.text("[]:/@.%1h", max_size=20))
@example("http://[::1")
@example("h:99999")
@example("0\f?")
@example("http://h/a b")
def test_an_address_of_a_server(text: str) -> None:
    with suppress(AddressError):
        address = parse_address(text)
        assert same_server(text, address.root)


@given(BYTES)
@example(DEEP)
@example(b'{"error": {"message": "\\ud800"}}')
def test_a_refusal_of_a_server(body: bytes) -> None:
    assert len(message_in(body)) < 2000


PAIRS = st.text(max_size=60) | st.dictionaries(
    st.sampled_from(["name", "target", "draft", "license", "x"]),
    st.sampled_from(["1", '"a"', "[]", "{}", '{repo = "a/b", size = -1}', "2020-01-01", "nan"]),
).map(lambda pair: "[[pair]]\n" + "\n".join(f"{key} = {value}" for key, value in pair.items()))


@given(PAIRS)
@example("pair = " + "[" * 5000)
@example("x = " + "1" * 5000)
@example("[[pair]]\n" + '"a - at `$.x" = 1')
@example('[[pair]]\nname = "a"\ntarget = {repo = "/", "b - at `$.x" = 1}')
def test_a_catalogue(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "catalogue.toml")
        path.write_text(text, encoding="utf-8", errors="replace")
        catalogue.read(path)


@given(BYTES)
@example(DEEP)
def test_what_is_remembered_of_crashes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGLECHAT_HOME", folder)
        path = Path(folder, "state", "crashes.json")
        path.parent.mkdir()
        path.write_bytes(content)
        assert workarounds.remembered() == []
        workarounds.remember([Path(folder, "model.gguf")], ("gpu",), "SIGSEGV")
        (known,) = workarounds.remembered()
        assert known.left_out == ("gpu",)


@given(st.text(max_size=80) | st.lists(st.sampled_from(["=== ", "a", "\n"])).map("".join))
def test_prompts_of_a_bench(text: str) -> None:
    with suppress(ValueError):
        assert all(prompt.text for prompt in parse_prompts(text))
