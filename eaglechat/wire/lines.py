"""Messages as lines, and back: one JSON object a line, with its `type`.

The same lines work over any pipe, so the engine may run on another machine: only the model paths
must mean something there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from eaglechat.wire.protocol import AnyEvent, AnyRequest, Event, Request, RequestId

M = TypeVar("M")
_EXCERPT = 60


class ProtocolError(ValueError):
    """A line that is not a message of this protocol, or a message that is no line of it.

    The text says why; `request_id` is the line's, if it has one.
    """

    def __init__(self, text: str, request_id: int | None = None) -> None:
        super().__init__(text)
        self.request_id = request_id


class _Envelope(msgspec.Struct, frozen=True):
    """The only field that is read of a line that is not understood otherwise."""

    id: RequestId | None = None


_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_events: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
# RecursionError is for a line that is nested too deeply.
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(message: Request | Event) -> bytes:
    """One line, with its newline. Raises ProtocolError for what JSON cannot say."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError as error:
        # The end of the text up to what cannot be encoded, and a little behind it.
        text = error.object[: error.end + _EXCERPT][-2 * _EXCERPT :]
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise ProtocolError(f"“{shown}” is not text in UTF-8") from error
    except OverflowError as error:
        raise ProtocolError(str(error)) from error


def decode_request(line: bytes) -> AnyRequest:
    """Parse a request line. Raises ProtocolError."""
    return _decoded(_requests, line)


def decode_event(line: bytes) -> AnyEvent:
    """Parse an event line. Raises ProtocolError."""
    return _decoded(_events, line)


def _decoded(decoder: msgspec.json.Decoder[M], line: bytes) -> M:
    try:
        return decoder.decode(line)
    except _NOT_UNDERSTOOD as error:
        request_id = None
        with suppress(*_NOT_UNDERSTOOD):
            request_id = msgspec.json.decode(line, type=_Envelope).id
        raise ProtocolError(str(error), request_id) from error
