"""A comparison of ways to draft with plain decoding."""

from __future__ import annotations

import dataclasses
import math
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from eaglechat.chat.compared import (
    FEWEST_HEATS,
    Heat,
    Leg,
    Result,
    first_fork,
    level_of,
    level_of_last,
)
from eaglechat.chat.comparing import (
    FIRST_LOOK,
    HEAT_TOKENS,
    Asked,
    Comparison,
    contenders,
)
from eaglechat.chat.recording import Recording
from eaglechat.settings.model import GenerationSettings, Settings
from eaglechat.wire import protocol
from eaglechat.wire.protocol import AUTO, OWN_ENGINE, PLAINLY, Capabilities, Speculation
from eaglechat.wire.records import FinishReason, Origin, Token
from eaglechat.words import comparing
from tests.chat.headless import Headless
from tests.chat.records import plainly, recorded, round_of
from tests.tui.scripted import ScriptedReply
from tests.tui.scripted_reports import pair_info

THREE = Speculation(n_draft_max=3)
EIGHT = Speculation(n_draft_max=8)


def reply(reason: FinishReason = FinishReason.STOP) -> Recording:
    return recorded(round_of(1, 2), round_of(3), reason=reason)


def compared(*times: tuple[float, float], drafted: int = 2, who: Speculation = THREE) -> Result:
    """The result of heats of three tokens, by the milliseconds of plain decoding and of drafts."""
    heats = []
    for plain, ours in times:
        by_drafts = recorded(round_of(1, 2, 3, drafted=drafted), reason=FinishReason.LENGTH)
        by_itself = plainly(1, 2, 3, ms=plain, reason=FinishReason.LENGTH)
        legs = {"plain": Leg(by_itself, 3, plain), comparing.name(who): Leg(by_drafts, 3, ours)}
        heats.append(Heat("q", legs))
    who_by_name = comparing.named([PLAINLY, who], OWN_ENGINE)
    return Result((*heats,), who_by_name, temperature=0.7)


def test_a_gain_has_its_error_and_a_slow_moment_that_hits_both_is_none() -> None:
    result = compared((60.0, 40.0), (61.0, 41.0), (59.0, 39.0), (600.0, 400.0), (60.0, 40.0))
    (_, score) = result.scores
    assert score.gain.speed_up == pytest.approx(1.5, abs=0.01)
    said = comparing.sentence(result)
    assert said == (
        "1.50x ±0.01 as fast as plain with length 3. Of 15 tokens of each at temperature 0.7."
    )


@pytest.mark.parametrize(
    ("times", "drafted", "said"),
    [
        ([(60, 40), (60, 80), (60, 50), (60, 66)], 2, "Can't tell: 1.0x ±0.5 as fast as plain"),
        ([(60, 40), (60, 60), (60, 50), (60, 46)], 2, "Leaning faster: 1.2x ±0.4 as fast as"),
        ([(60, 60), (61, 60), (60, 61), (60, 60)], 2, "Same as plain with auto."),
        ([(60, 55), (60, 54), (60, 56), (60, 55)], 0, "Auto drafted nothing here"),
        ([(60, 80), (61, 80), (60, 81), (60, 80)], 2, "0.75x ±0.02 as fast as plain with auto."),
        ([(60, 40)] * (FEWEST_HEATS - 1), 2, "Too early to tell: 3 heats of at least 4"),
        ([], 2, "before anything was measured"),
    ],
)
def test_noise_is_no_gain(times: Sequence[tuple[float, float]], drafted: int, said: str) -> None:
    result = compared(*times, drafted=drafted, who=Speculation(n_draft_max=AUTO))
    assert said in comparing.sentence(result)


@pytest.mark.parametrize("truth", [1.0, 1.04, 1.2])
def test_of_200_comparisons_at_most_one_in_20_ends_with_a_false_verdict(truth: float) -> None:
    """Heats of a second, whose texts differ in what drafts gain, on a machine that drifts, is half
    as fast for a minute, and is disturbed for moments."""
    rng = random.Random(1)
    by_drafts, plain = recorded(round_of(1)), plainly(1, ms=1.0)

    def heats_of(n: int) -> list[Heat]:
        begin, drift, heats = rng.uniform(-30, 100), rng.uniform(-0.3, 0.3), []
        for second in range(n):
            # The mean time of the drafted text is that of `truth`.
            gains, ms = {"plain": 1.0, "3": truth * math.exp(rng.gauss(0.15**2 / 2, 0.15))}, {}
            for who, gain in gains.items():
                busy = 2.0 if begin <= second + len(ms) / 2 < begin + 60 else 1.0
                disturbed = 3.0 if rng.random() < 0.01 else 1.0
                speed = (1.0 + drift * second / n) * math.exp(rng.gauss(0.0, 0.05))
                ms[who] = 500.0 * busy * disturbed / speed / gain
            legs = {who: Leg(plain if who == "plain" else by_drafts, 20, ms[who]) for who in ms}
            heats.append(Heat("q", legs))
        return heats

    def verdict(heats: list[Heat]) -> str:
        look, who = 0, {"plain": PLAINLY, "3": THREE}
        while (n := FIRST_LOOK * 2**look) < len(heats):
            so_far = Result((*heats[:n],), who, level_of(look))
            if so_far.is_certain:
                return so_far.scores[1].verdict
            look += 1
        return Result((*heats,), who, level_of_last(look)).scores[1].verdict

    verdicts = Counter(verdict(heats_of(80)) for _ in range(200))
    right = {"faster": truth > 1.0, "slower": truth < 1.0, "same": 0.95 <= truth <= 1.05}
    assert sum(count for one, count in verdicts.items() if not right.get(one, True)) <= 10, verdicts
    if abs(truth - 1.0) > 0.15:
        assert verdicts["faster"] > 160


def comparison(chat: Headless, *who: Speculation, asked: Asked | None = None) -> Comparison:
    asked = asked or chat.session.to_compare()
    hello = chat.session.hello
    assert asked is not None
    assert hello is not None
    named = comparing.named([PLAINLY, *who], hello.can)
    running = Comparison(chat.engine, hello, chat.info, asked, named, changed=lambda: None)
    running.start()
    return running


def requests(chat: Headless) -> list[protocol.Chat]:
    """The requests of a comparison: those after the chat's own."""
    return chat.engine.requests(protocol.Chat)[1:]


@pytest.mark.parametrize("seed", [-1, 5])
def test_in_each_heat_all_continue_the_same_text_with_the_same_seed(
    tmp_path: Path, seed: int
) -> None:
    """If one is set: otherwise drafts are drawn, as in a chat."""
    chat = Headless(tmp_path, settings=Settings(generation=GenerationSettings(seed=seed)))
    chat.ask("why?")
    turns = chat.texts
    running = comparison(chat, THREE, EIGHT)
    chat.pump_until(lambda: running.result)

    asked = requests(chat)
    heats = [asked[at : at + 3] for at in range(0, len(asked), 3)]
    assert len(heats) == FIRST_LOOK
    for heat in heats:
        assert {one.speculation.n_draft_max for one in heat if one.speculation.enabled} == {3, 8}
        assert len({(one.begun, one.sampling.seed) for one in heat}) == 1
    # The scripted reply has 54 tokens: it ends in the third heat, and begins again.
    assert [len(heat[0].begun) for heat in heats[:4]] == [0, HEAT_TOKENS, 2 * HEAT_TOKENS, 0]
    seeds = {heat[0].sampling.seed for heat in heats}
    assert seeds == {None} if seed == -1 else len(seeds) == FIRST_LOOK
    assert {heat[0].messages for heat in heats} == {chat.last_request.messages}

    result = running.so_far()
    best = result.best
    assert best is not None
    assert (best.name, best.verdict, result.fork(best)) == ("length 3", "faster", None)
    assert result.scores[0].tokens_per_second == pytest.approx(1000 / 12)
    assert chat.texts == turns


def test_several_prompts_have_heats_in_turn_and_the_error_is_between_them(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    asked = chat.session.to_compare()
    assert asked is not None
    (messages,) = asked.prompts.values()
    names = [f"prompt {number}" for number in range(5)]
    prompts = dict.fromkeys(names, messages)
    asked = Asked(prompts, asked.terms, in_a_row=2, least_minutes=4)
    running = comparison(chat, THREE, asked=asked)
    assert running.minutes == 4
    chat.pump_until(lambda: running.result)
    each = [name for name in names for _ in range(2)]
    assert [heat.prompt for heat in running.heats] == each
    # The second heat of a prompt continues the first.
    assert [len(one.begun) for one in requests(chat)] == [0, 0, HEAT_TOKENS, HEAT_TOKENS] * 5
    result = running.so_far()
    assert result.best is not None
    assert [*result.best.by_prompt] == names
    # All five gain the same: more of them would say the same.
    assert result.best.gain.error == pytest.approx(0.0, abs=1e-6)
    assert "over 5 prompts" in comparing.sentence(result)
    assert result.best.verdict == "faster"


@pytest.mark.parametrize("repeats", [True, False])
def test_a_text_that_repeats_itself_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, repeats: bool
) -> None:
    """Drafts guess it nearly always; the headline of a chat gives no verdict of it either."""
    of_text = staticmethod(lambda text, _position: zlib.crc32(text.encode()))
    monkeypatch.setattr(ScriptedReply, "_id", of_text)
    chat = Headless(tmp_path)
    words = ("over and over again" if repeats else f"this is word {n}" for n in range(100))
    chat.engine.reply = " ".join(words)
    chat.ask("why?")
    asked = chat.session.to_compare()
    assert asked is not None
    running = comparison(chat, THREE, asked=dataclasses.replace(asked, repeats=12))
    chat.pump_until(lambda: running.result)
    longest = max(len(one.begun) for one in requests(chat))
    assert (100 <= longest <= 140) if repeats else longest > 140


def test_the_first_difference_is_told_with_the_text_around_it(tmp_path: Path) -> None:
    cold = Settings(generation=GenerationSettings(temperature=0.0))
    chat = Headless(tmp_path, settings=cold)
    chat.engine.plain_fork_at = 30
    chat.ask("why?")
    running = comparison(chat, THREE)
    chat.pump_until(lambda: running.result)
    result = running.so_far()
    said = comparing.sentence(result)
    assert result.best is not None
    fork = result.fork(result.best)
    assert fork is not None
    assert f"first difference after “{fork.before[-24:]}”: “ side:" in said
    assert chat.session.shown is not None
    assert chat.session.shown.text.startswith(f"{fork.before} side:")
    assert fork.ours.startswith(" side:")
    assert f"plain wrote “{fork.plain[:24]}”." in said
    shown = comparing.texts(result)
    assert fork.before in shown
    assert "[plain]  otherwise" in shown
    assert "[length 3]  side:" in shown
    drawn = dataclasses.replace(result, temperature=0.7)
    assert drawn.fork(result.best) is None
    # Nothing follows from a difference then: what all continued stays in sight.
    last = result.heats[-1]
    assert comparing.texts(drawn) == last.before + last.legs["plain"].text
    assert comparing.sentence(drawn).endswith("of each at temperature 0.7.")


def test_a_comparison_that_is_stopped_keeps_the_heats_that_ended(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    running = comparison(chat, THREE)
    chat.pump_until(lambda: len(running.heats) == FEWEST_HEATS)
    running.stop()
    chat.pump_until(lambda: running.result)
    assert len(running.heats) == FEWEST_HEATS
    assert running.so_far().is_certain


def test_what_it_takes_to_switch_to_a_contender_counts_for_none(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.engine.switching_ms = 50.0
    running = comparison(chat, THREE)
    chat.pump_until(lambda: running.result)
    assert running.so_far().scores[0].tokens_per_second == pytest.approx(1000 / 12)


def test_a_slow_model_gets_the_time_of_two_times_the_heats_before_the_first_look(
    tmp_path: Path,
) -> None:
    """8 heats of 20 tokens, twice, by two contenders: 640 seconds."""
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.info = msgspec.structs.replace(chat.info, verify_ms={1: 1000.0})
    assert comparison(chat, THREE).minutes == 11


def test_a_comparison_that_cannot_tell_goes_on_until_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    chat.engine.accepted_of_each_round = (0, 3)
    chat.ask("why?")
    now = 0.0
    monkeypatch.setattr("eaglechat.chat.comparing.monotonic", lambda: now)
    monkeypatch.setattr(Result, "is_certain", False)
    running = comparison(chat, THREE)
    assert running.minutes == 2
    chat.pump_until(lambda: len(running.heats) > 2 * FIRST_LOOK)
    assert running.so_far().scores[1].verdict == "early"
    now = 121.0
    chat.pump_until(lambda: running.result)
    assert len(running.heats) > 2 * FIRST_LOOK
    assert running.so_far().scores[1].gain.error is not None


def test_a_comparison_ends_with_the_engine(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    running = comparison(chat, THREE)
    chat.engine.die()
    chat.pump_until(lambda: running.result)
    assert running.failure is not None


def test_a_server_writes_short_replies_from_the_beginning(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    hello = chat.engine.hello
    assert hello is not None
    chat.engine.hello = msgspec.structs.replace(hello, can=Capabilities(plain=True))
    chat.ask("why?")
    asked = chat.session.to_compare()
    assert asked is not None
    (as_started,) = contenders(asked.terms.speculation, chat.info, chat.engine.hello)
    running = comparison(chat, as_started)
    chat.pump_until(lambda: running.result)
    assert {one.begun for one in requests(chat)} == {()}
    result = running.so_far()
    assert result.scores[1].verdict == "faster"
    assert "as fast as plain with the server's own drafting." in comparing.sentence(result)


def test_who_can_be_compared() -> None:
    info = pair_info("t.gguf", "d.gguf", None)
    everything = protocol.Hello(
        protocol=protocol.PROTOCOL_VERSION, can=OWN_ENGINE, eaglechat="", llama_cpp="", devices=()
    )
    now = Speculation(enabled=False, n_draft_max=0)
    names = [comparing.name(one) for one in contenders(now, info, everything)]
    # What is set would decode plainly, so auto is compared.
    assert names[:3] == ["auto", "length 1", "length 2"]
    assert names[-1] == "n-grams"


def fork_of(ours: Recording, plain: Recording) -> tuple[str, str, str] | None:
    """The text up to the first difference, and what both wrote from there on."""
    heat = Heat("q", {"ours": Leg(ours, 1, 1.0), "plain": Leg(plain, 1, 1.0)})
    fork = first_fork(heat, "ours", "plain")
    return (fork.before, fork.ours, fork.plain) if fork else None


@pytest.mark.parametrize(
    ("plain_ids", "plain_end", "fork"),
    [
        ((1, 2), FinishReason.STOP, (" t1 t2", " t3", "")),
        ((1, 2), FinishReason.CANCELLED, None),
        ((1, 9, 3), FinishReason.STOP, (" t1", " t2 t3", " t9 t3")),
        ((1, 2, 3, 4), FinishReason.LENGTH, (" t1 t2 t3", "", " t4")),
        ((1, 2, 3), FinishReason.LENGTH, None),
    ],
)
def test_the_first_fork(
    plain_ids: tuple[int, ...], plain_end: FinishReason, fork: tuple[str, str, str] | None
) -> None:
    assert fork_of(reply(), plainly(*plain_ids, ms=10.0, reason=plain_end)) == fork


def sent(*chunks: str, reason: FinishReason = FinishReason.STOP) -> Recording:
    """A reply of a server that names no tokens, by what it sent at once."""
    tokens = (Token(None, text, Origin.UNKNOWN) for text in chunks)
    rounds = (replace(round_of(1, drafted=0), tokens=(token,)) for token in tokens)
    return recorded(*rounds, reason=reason)


@pytest.mark.parametrize(
    ("speculative", "plain", "fork"),
    [
        (sent("A", " cat sat", "."), sent("A", " cat", " sat", "."), None),
        (sent("A", " cat sat"), sent("A", " cat", " ran"), ("A", " cat sat", " cat ran")),
        (sent("A", " cat"), sent("A", " cat", " ran"), ("A cat", "", " ran")),
        (sent("A"), sent("A", " cat", reason=FinishReason.LENGTH), ("A", "", " cat")),
        (sent("A", reason=FinishReason.LENGTH), sent("A", " cat"), None),
    ],
)
def test_what_a_server_sends_at_once_is_no_difference(
    speculative: Recording, plain: Recording, fork: tuple[str, str, str] | None
) -> None:
    assert fork_of(speculative, plain) == fork
