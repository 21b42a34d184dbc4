"""The fields of a request that a server refuses though they are optional: the same request without
them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_OF_MESSAGES = "reasoning_content"
"""An optional field of each message."""
_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_NEEDED = ("model", "messages", _NEW_LIMIT)
_OURS = (
    "stream_options", "chat_template_kwargs", "timings_per_token", "return_progress",
    "return_spec_tokens_details", _OF_MESSAGES,
)  # fmt: skip
"""Fields that no user sets: they go if a server refuses some field and does not name it."""
_UNNAMED = re.compile(
    "extra|unknown|unrecogni[sz]ed|unexpected|unsupported|not permitted|(bad|invalid) request"
    r"|^\s*<|^\W*$",
    re.I,
)
"""In a refusal that names no field; a page, or nothing at all, names none either."""


def refused_fields(body: Mapping[str, Any], said: str) -> frozenset[str]:
    """The optional fields of a request that a server names in its refusal; empty if another request
    would be refused too."""
    has_reasoning = any(_OF_MESSAGES in message for message in body["messages"])
    optional = {name: value for name, value in body.items() if name not in _NEEDED}
    optional |= {_OF_MESSAGES: None} if has_reasoning else {}
    named = {
        name
        for name, value in optional.items()
        if any(_is_named(one, said) for one in (name, *(value if isinstance(value, dict) else ())))
    }
    if "streaming" in said or "stream" in named:
        # A reply in one piece is read too.
        named |= {"stream", "stream_options"}.intersection(optional)
    if not named and _UNNAMED.search(said):
        named = set(_OURS).intersection(optional)
    if {"temperature", "top_p"} <= named:
        # A server that takes only one of them.
        named -= {"temperature"}
    if _NEW_LIMIT not in said:
        # The reply would be longer than was asked for.
        named -= {_LIMIT}
    return frozenset(named)


def without(body: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """The request without these fields."""
    left = {name: value for name, value in body.items() if name not in fields}
    if _LIMIT in fields and _LIMIT in body:
        left[_NEW_LIMIT] = body[_LIMIT]
    if _OF_MESSAGES in fields:
        left["messages"] = [
            {name: value for name, value in message.items() if name != _OF_MESSAGES}
            for message in body["messages"]
        ]
    return left


def _is_named(name: str, said: str) -> bool:
    """Whether a text names a field. A word such as `stop` has to stand in quotes, in a path, or
    where a name is expected."""
    if "_" in name:
        return re.search(rf"\b{name}\b", said) is not None
    before = (
        r"[\"'`“.]|[:,(\[] ?|^|\b(?:field|parameter|param|argument|property|option|key|input)s?:? +"
    )
    return re.search(rf"(?:{before}){name}\b", said) is not None
