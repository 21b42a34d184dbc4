"""What comes from outside is read, or refused with the parser's own error: never another one. Model
files are changed in tests/hub/local/test_hostile_files.py."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.engine.bench.prompts import parse_prompts
from eaglechat.engine.llama import workarounds
from eaglechat.gguf.shards import shard_of
from eaglechat.hub import catalogue
from eaglechat.hub.references import InvalidReferenceError, parse
from eaglechat.links.http.address import AddressError, parse_address, same_server
from eaglechat.links.http.faults import message_in
from eaglechat.wire.protocol import ProtocolError, decode_event, decode_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
).map(msgspec.json.encode)
DEEP = b'{"a":' + b"[" * 100_000
BYTES = st.binary(max_size=60) | JSON


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
