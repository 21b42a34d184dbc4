"""Everything that a session or a failure can say has its sentence."""

from __future__ import annotations

from eaglechat.chat.conversation.continuation import CannotContinue
from eaglechat.chat.refusals import EngineLimit, Limit, Off, Remark
from eaglechat.chat.writing.editor import NotEdited
from eaglechat.chat.writing.files import CannotAttach
from eaglechat.chat.writing.roles import WrongRole
from eaglechat.words.failures import ATTACHING, EDITING, ROLES
from eaglechat.words.refusals import LIMITS, REASONS, SENTENCES, sentence_of


def test_every_member_has_its_words() -> None:
    assert set(SENTENCES) == {*Remark, *CannotContinue}
    assert set(LIMITS) == {*Limit}
    assert set(REASONS) == {*Off}
    assert set(ATTACHING) == {*CannotAttach}
    assert set(EDITING) == {*NotEdited}
    assert set(ROLES) == {*WrongRole}


def test_a_sentence_ends_with_a_full_stop() -> None:
    limits = [EngineLimit("vLLM", limit) for limit in Limit]
    sentences = [sentence_of(said) for said in (*SENTENCES, *limits)]
    assert [text for text in sentences if not text.endswith(".")] == []


def test_an_engine_s_own_message_stays_as_it_is() -> None:
    assert sentence_of("the context is full") == "the context is full"
