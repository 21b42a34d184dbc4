"""The app from the menu to quitting, on a scripted engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events

from eaglechat.chat.compared import FEWEST_HEATS
from eaglechat.chat.writing.question import text_of
from eaglechat.hub.local import fingerprint, pairs
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.hub.local.speeds import setup_of
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.compare import CompareScreen, ContendersDialog
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.services.engine import FramePace
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.tui.widgets.panel.measures import Measures
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from eaglechat.wire.protocol import Capabilities
from eaglechat.wire.records import FinishReason
from tests.chat.headless import saved_chats
from tests.ggufs import write_target
from tests.tui.driving import Driver
from tests.tui.scripted import REPLY

Drive = Callable[..., Driver]


async def test_a_chat_from_the_menu_to_the_end(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        (load,) = user.engine.requests(protocol.Load)
        assert (Path(load.target).name, Path(load.draft or "").name) == (
            "target.gguf",
            "draft.gguf",
        )

        await user.ask("Explain the Pythagorean theorem", rounds=4)
        await user.press("f8", "f8")
        assert user.engine.requests(protocol.Set) == [
            protocol.Set(n_draft_max=4),
            protocol.Set(n_draft_max=5),
        ]
        await user.more_rounds(4)
        await user.until(
            lambda: "↑5" in user.chat.query_one(Measures).render().plain, "the mark of the change"
        )

        await user.press("escape")
        await user.idle()
        partial = user.messages[-1]
        assert partial.role == "assistant"
        assert REPLY.startswith(partial.content)
        await user.sees("stopped")

        await user.ask("And for three dimensions?")
        second = user.engine.requests(protocol.Chat)[-1]
        assert [m.role for m in second.messages] == ["user", "assistant", "user"]
        assert second.messages[1] == partial
        assert second.speculation.n_draft_max == 5
        prefill = user.chat.session.shown.end.timings  # type: ignore[union-attr]
        assert prefill.reused_tokens == 43

        await user.press("ctrl+n")
        assert user.messages == ()
        # What was loaded is said once.
        await user.until(lambda: "Pythagorean" not in user.text, "an empty chat")
        assert "Loaded in" not in user.text
        await user.command("chat.menu", to=MenuScreen)
        await user.type("smol", "enter", to=ChatScreen)
        await user.sees("Loaded in")
        await user.command("chat.menu", to=MenuScreen)
        await user.sees("type to filter")
        await user.press("ctrl+q")
    await user.until_closed()


async def test_the_last_question_is_measured_and_what_was_fastest_used(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("eaglechat.chat.comparing.FIRST_LOOK", FEWEST_HEATS)
    monkeypatch.setattr(fingerprint.Witness, "others", lambda _: 0.0)
    async with drive(n_draft_max=3) as user:
        await user.open_chat()
        await user.ask("hello")
        messages = user.messages

        user.engine.budget = 2
        await user.command("chat.compare", to=CompareScreen)
        await user.sees("Up to 2 minutes, until it can tell")
        await user.sees("Of your last question, heat 1: plain writes")
        await user.press("escape")
        await user.sees("stopped before anything was measured")

        # Two tokens a round: 12 ms plainly, 10.5 with drafts of 3, 18 with drafts of 8.
        user.engine.accepted_of_each_round = (1,)
        user.engine.budget = None
        await user.press("c", to=ContendersDialog)
        ticked = user.text.count("[X]")
        await user.click_text("[ ] length 8")
        await user.sees("[X] length 8")
        await user.press("up", "space", "space", "space", "down", "space", "space")
        await user.sees("[X] length 6")
        assert user.text.count("[X]") == ticked + 2 < user.text.count("[ ]")
        await user.press("up", "space")
        await user.sees("[ ] length 6")
        await user.press("enter")
        await user.sees("length 8")
        await user.sees("as fast as plain with length 3. Of")
        lanes = [line for line in user.text.splitlines() if "tok/s" in line]
        gains = [line.partition("tok/s")[2].strip()[:2] for line in lanes]
        assert gains == ["", "1.", "0."]
        await user.sees("Enter keeps length 3.")
        await user.pilot.resize_terminal(80, 24)
        await user.until(
            lambda: (
                [line.rstrip()[-1] for line in user.text.splitlines() if "tok/s" in line]
                == [*"s%%"]
            ),
            "each contender in one line of 80 cells",
        )

        # Drafts of 3 tokens were used, drafts of 8 too, and nothing else ran.
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(fingerprint, "sha256", lambda _: "f" * 64)
        await user.press("w")
        await user.sees("The card is in ")
        (file,) = tmp_path.glob("card-*.md")
        assert "| length 8 |" in file.read_text()
        await user.press("a", to=ChatScreen)
        assert user.chat.session.controls.n_draft_max == protocol.AUTO
        assert user.messages == messages
        await user.sees("as fast as plain with length 3")
        assert user.text.count("as fast as plain") == 1
        setup = setup_of(user.chat.session.pair, user.app.services.settings.current.engine)
        for length in (3, 8):
            gain = user.app.services.pairs.speeds.gain(setup, length)
            assert gain is not None
            assert (gain.n_draft_max, gain.by) == (length, "question")


async def test_other_prompts_are_measured_and_the_pair_keeps_what_was_fastest(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive(n_draft_max=3) as user:
        await user.open_chat()
        # Nothing was asked yet.
        await user.command("chat.compare", to=CompareScreen)
        await user.sees("Of the prompt “chat”, heat ")
        await user.sees("as fast as plain with length 3. Of 320 tokens of each, over 8 prompts")
        for name in ("chat", "code", "long file", "reasoning"):
            await user.sees(f" {name} ")
        await user.press("enter", to=ChatScreen)
        await user.sees("smollm2-135m starts with n_draft_max 3 from now on.")
        library = user.app.services.pairs
        assert library.kept_length(user.chat.session.pair) == 3
        setup = setup_of(user.chat.session.pair, user.app.services.settings.current.engine)
        gain = library.speeds.gain(setup, 3)
        assert gain is not None
        assert gain.by == "bench"
        await user.command("chat.compare", to=CompareScreen)
        await user.sees("as fast as plain with")
        await user.press("f")
        await user.sees("From the next chat on, the pair follows the settings.")
        assert library.kept_length(user.chat.session.pair) is None
        await user.press("c", to=ContendersDialog)
        await user.press("escape", "escape", to=ChatScreen)


@pytest.mark.parametrize("end", ["dies", "another pair", "quit"])
async def test_a_comparison_ends_with_the_engine_the_pair_or_the_app(
    drive: Drive, end: str
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("hello")
        user.engine.budget = 30
        await user.command("chat.compare", to=CompareScreen)
        await user.sees("tok/s")
        if end == "dies":
            user.engine.die("GGML_ASSERT(false) failed")
            await user.sees("The engine stopped by itself")
            await user.press("escape", to=ChatScreen)
            await user.sees("engine stopped")
            await user.command("chat.compare")
            await user.sees("This needs the models: ")
        elif end == "another pair":
            user.app.call_later(user.app.load_instead, pairs.builtin_pair())
            await user.on(ChatScreen)
            kinds = [type(request) for request in user.engine.sent]
            load = len(kinds) - 1 - kinds[::-1].index(protocol.Load)
            assert kinds.index(protocol.Cancel) < load
        else:
            await user.press("ctrl+q")
    await user.until_closed()


async def test_a_frame_that_is_due_in_a_moment_is_drawn(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = itertools.cycle([1e-9, 0.0])
    monkeypatch.setattr(FramePace, "wait_s", lambda _pace: next(waits))
    async with drive() as user:
        await user.open_chat()
        await user.ask("hello")


def asked(user: Driver) -> list[str]:
    requests = user.engine.requests(protocol.Chat)
    return [request.messages[-1].content for request in requests]


@pytest.mark.parametrize("edits", [False, True])
async def test_a_question_sent_during_a_reply_is_asked_when_that_ends(
    drive: Drive, edits: bool
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("first", rounds=2)
        if edits:
            await user.command("chat.edit")
        await user.type(" second", "enter")
        await user.sees("Sent when the reply ends")
        typed = user.prompt.text
        assert asked(user) == ["first"]
        # Whatever is typed then is kept, and nothing is sent without being asked for.
        await user.type("!")
        await user.until(lambda: "Sent when" not in user.text, "not sent")
        await user.press("backspace", "enter")
        await user.sees("Sent when the reply ends")
        await user.press("escape")
        await user.until(lambda: "Sent when" not in user.text, "not sent")
        assert user.prompt.text == typed
        assert not user.engine.requests(protocol.Cancel)
        await user.press("enter")
        await user.sees("Sent when the reply ends")
        user.engine.budget = None
        await user.until(lambda: len(asked(user)) == 2, "the second question")
        assert asked(user)[-1] == typed.strip()
        await user.until(lambda: user.prompt.text == "", "an empty prompt")
        await user.idle()
        assert len(asked(user)) == 2


@pytest.mark.parametrize("ends", ["dies", "leaves"])
async def test_a_question_that_waits_for_a_reply_is_never_lost(drive: Drive, ends: str) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("first", rounds=2)
        await user.type("second", "enter")
        await user.sees("Sent when the reply ends")
        if ends == "dies":
            user.engine.die()
            await user.sees("The engine stopped by itself")
        else:
            await user.command("chat.new")
            await user.until(lambda: not user.messages, "a new chat")
        await user.until(lambda: "Sent when" not in user.text, "not sent")
        assert user.prompt.text == "second"
        assert asked(user) == ["first"]


async def test_an_empty_prompt_is_not_sent_and_escape_only_stops(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.press("space", "enter")
        await user.sees("Write something first")
        assert not user.engine.requests(protocol.Chat)
        await user.press("escape", "escape")
        assert isinstance(user.app.screen, ChatScreen)
        assert not user.engine.requests(protocol.Cancel)
        await user.ask("hello", rounds=2)
        await user.type("mine")
        await user.press("escape", "escape")
        await user.idle()
        assert len(user.engine.requests(protocol.Cancel)) == 1
        assert user.prompt.text == "mine"


async def test_speculation_off_says_why(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.sees("[X] speculation")

        def rows_of_why() -> list[bool]:
            return ["WHY" in line for line in user.text.splitlines()]

        why = rows_of_why()
        await user.press("f3")
        await user.until(lambda: " Off " in user.text, "that it is off")
        assert rows_of_why() == why
        await user.sees("[ ] speculation")
        await user.press("f3")
        await user.press("f7", "f7", "f7")
        await user.sees("Off: n_draft_max is 0")
        await user.press("f7")
        assert user.chat.session.controls.n_draft_max == 0


async def test_a_pair_without_a_draft_and_a_base_model_say_so(drive: Drive) -> None:
    async with drive() as user:
        user.engine.speculation_off = "the target's architecture does not export layer inputs"
        user.engine.untemplated = "the target's file has no chat template"
        await user.open_chat()
        await user.sees("Speculation is off: the target's architecture")
        await user.sees("The target's file has no chat template.")
        # And in the panel.
        await user.sees("Off: the target's architecture does")


async def test_without_a_drafter_the_panel_has_only_what_n_grams_follow(
    drive: Drive, models: Path
) -> None:
    async with drive(start=pair_of_files(models / "target.gguf", None)) as user:
        await user.on(ChatScreen)
        await user.sees("No draft model: n-grams only")
        shown = {one.id for one in user.chat.query(Knob) if one.display}
        assert shown == {"n_draft_max", "enabled", "ngram", "temperature"}


PASTED = "\n".join(f"line {n}" for n in range(132))
HALF = "half a thought [pasted: 132 lines, ~270 tokens]"


async def test_history_is_written_as_the_chat_goes_and_reopened(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Explain the Pythagorean theorem")
        await user.type("half a thought ")
        user.app.post_message(events.Paste(PASTED))
        await user.until(lambda: user.prompt.text == HALF, "the paste on one line")
        await user.press("ctrl+o", to=MenuScreen)
    (saved,) = saved_chats(tmp_path)
    assert text_of(saved.unsent) == f"half a thought {PASTED}"
    assert [turn.text for turn in saved.turns.path] == ["Explain the Pythagorean theorem", REPLY]
    reply = saved.turns.last_reply
    assert reply is not None
    assert reply.recording.end is not None
    assert reply.recording.end.finish_reason is FinishReason.STOP

    async with drive() as user:
        await user.press("ctrl+t")
        await user.sees("1 chat")
        await user.press("enter", to=ChatScreen)
        assert user.prompt.text == HALF
        assert [m.content for m in user.messages] == [turn.text for turn in saved.turns.path]
        await user.press("enter")
        await user.idle()
        chat = user.engine.requests(protocol.Chat)[-1]
        assert len(chat.messages) == 3
    (reopened,) = saved_chats(tmp_path)
    assert len(reopened.turns.path) == 4


async def test_the_transcript_shows_where_the_context_begins(drive: Drive, tmp_path: Path) -> None:
    def above_the_mark(user: Driver) -> list[str]:
        """The questions that are marked as no longer in the context."""
        entries = [one.entry for one in user.chat.transcript.rows.drawn]
        marks = [place for place, entry in enumerate(entries) if entry.kind == "window"]
        if not marks:
            return []
        (mark,) = marks
        return [entry.text for entry in entries[:mark] if entry.kind == "question"]

    async with drive() as user:
        user.engine.turns_in_context, user.engine.reply = 2, "In short: yes."
        await user.open_chat()
        for question in ("one", "two"):
            await user.ask(question)
        assert above_the_mark(user) == []
        # A question that is taken back is no turn, and in no context.
        user.engine.chat_error = ("prompt", "the prompt is too long")
        await user.ask("far too long")
        await user.sees("too long")
        assert user.prompt.text == "far too long"
        user.engine.chat_error = None
        for question in ("three", "four"):
            await user.ask(question)
        assert above_the_mark(user) == ["one", "two"]
        assert len(user.engine.requests(protocol.Chat)[-1].messages) == 7

        user.engine.turns_in_context, user.engine.reply = 2, REPLY
        await user.ask("five", rounds=2)
        await user.press("escape")
        await user.idle()
        assert above_the_mark(user) == ["one", "two", "three"]
        await user.press("ctrl+o", to=MenuScreen)
    (saved,) = saved_chats(tmp_path)
    assert saved.first_question == saved.turns.path[6].id

    async with drive() as user:
        await user.press("ctrl+t")
        await user.sees("1 chat")
        await user.press("enter", to=ChatScreen)
        assert above_the_mark(user) == ["one", "two", "three"]
        # A larger context than last time holds all of it again.
        user.engine.turns_in_context = None
        await user.ask("six")
        assert above_the_mark(user) == []
    (saved,) = saved_chats(tmp_path)
    assert saved.first_question is None


async def test_a_key_or_a_word_changes_the_view_which_is_remembered(
    drive: Drive, tmp_path: Path
) -> None:
    legend = "bonus · plain · rejected"
    async with drive() as user:
        await user.open_chat()
        transcript = user.chat.query_one(Transcript)
        await user.ask("hello")
        await user.idle()
        assert " umbrella" not in user.text
        assert legend not in user.text
        await user.press("f4")
        assert transcript.view == "read"
        await user.command("chat.view")
        await user.sees(" umbrella")
        await user.sees(legend)
        await user.press("f4")
        await user.until(lambda: legend not in user.text, "no legend in the live view")
        await user.type("/view read", "enter")
        await user.until(lambda: transcript.view == "read", "the view that was typed")
        assert user.app.services.settings.current.interface.view == "read"
        assert 'view = "read"' in user.app.services.settings.file.read_text()


async def test_a_past_chat_of_other_models_loads_those(drive: Drive, models: Path) -> None:
    other = write_target(models / "other.gguf")
    async with drive(start=pair_of_files(other, None)) as user:
        await user.on(ChatScreen)
        await user.ask("on the other models")
        await user.press("ctrl+o", to=MenuScreen)
        await user.type("built-in")
        await user.sees("● smollm2-135m")
        await user.press("enter", to=ChatScreen)
        await user.press("ctrl+t")
        await user.sees("on the other models")
        await user.press("enter")
        await user.until(
            lambda: len(user.engine.requests(protocol.Load)) == 3, "a load of the other models"
        )
        await user.on(ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert load.target == str(other)
        assert user.messages[0].content == "on the other models"


async def test_page_keys_scroll_the_transcript_while_the_prompt_has_the_focus(
    drive: Drive,
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("hello")
        await user.ask("hello again")
        transcript = user.chat.query_one(Transcript)
        await user.until(lambda: transcript.scroll_y > 0, "more than a page")
        bottom = transcript.scroll_y
        await user.press("pageup")
        await user.until(lambda: transcript.scroll_y < bottom, "scrolled up")
        await user.press("ctrl+home")
        await user.until(lambda: transcript.scroll_y == 0, "the beginning")
        await user.press("ctrl+end")
        await user.until(lambda: transcript.scroll_y == bottom, "the end")
        assert user.prompt.has_focus


async def test_an_engine_that_reports_little_is_named_where_a_number_would_be(
    drive: Drive,
) -> None:
    user = drive(size=(120, 50))
    user.engine.engine_name, user.engine.can = (
        "llama-server",
        Capabilities(origins=True, draft_length=True),
    )
    async with user:
        await user.open_chat()
        await user.ask("hello")
        await user.sees("draft + check")
        await user.command("chat.context")
        await user.sees("draft times   not reported by llama-server")
        await user.press("escape")
        await user.command("chat.view", "chat.view")
        await user.sees("plain · rejected: not reported")
