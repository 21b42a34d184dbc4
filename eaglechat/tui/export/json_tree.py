"""A chat as JSON: every turn of every branch, with the rounds of each reply."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from eaglechat.chat.headline import headline_of
from eaglechat.chat.turns import Question, Reply
from eaglechat.tui.export.chat import ExportedChat
from eaglechat.wire.records import Part, Round
from eaglechat.words import headline
from eaglechat.words.statistics import all_in_json

VERSION = 1


def tree(chat: ExportedChat) -> str:
    """The JSON object that docs/chatting.md describes."""
    chosen = {turn.id for turn in chat.turns.path}
    header = chat.header
    document = {
        "format": "eaglechat",
        "version": VERSION,
        "title": chat.title,
        "created": header.created,
        "pair": header.pair,
        "target": header.target,
        "draft": header.draft,
        "turns": [_turn(chat, turn, turn.id in chosen) for turn in chat.turns],
    }
    # A lone UTF-16 surrogate cannot be encoded; escaped, JSON allows it.
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _turn(chat: ExportedChat, turn: Question | Reply, is_chosen: bool) -> dict[str, Any]:
    about = {"id": turn.id, "parent": turn.parent, "role": turn.role, "chosen": is_chosen}
    if isinstance(turn, Question):
        return {**about, "text": turn.text}
    return {**about, **_recorded(chat, turn)}


def _recorded(chat: ExportedChat, turn: Reply) -> dict[str, Any]:
    recording = turn.recording
    rounds = recording.rounds if chat.with_reasoning else map(_answered, recording.rounds)
    thought = {"reasoning": recording.reasoning} if chat.with_reasoning else {}
    end = recording.end
    if end is not None and not chat.with_reasoning and end.tail_part is Part.REASONING:
        end = replace(end, tail="")
    return {
        "text": recording.text,
        **thought,
        "terms": msgspec.to_builtins(recording.terms),
        "end": msgspec.to_builtins(end),
        "stats": all_in_json(recording.measured),
        "against_plain": headline.in_json(headline_of(recording)),
        "rounds": [msgspec.to_builtins(round_) for round_ in rounds if round_ is not None],
    }


def _answered(round_: Round) -> Round | None:
    """A round with only its tokens of the answer; None if it has none. If it has tokens of the
    reasoning too, its draft is left out, because that shows some of the reasoning."""
    tokens = tuple(token for token in round_.tokens if token.part is Part.ANSWER)
    if len(tokens) == len(round_.tokens):
        return round_
    return replace(round_, tokens=tokens, drafted=(), given=(), likely=()) if tokens else None
