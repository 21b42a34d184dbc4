"""Sentences and numbers that several screens show."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from eaglechat.chat.comparing import Compared, Fork
from eaglechat.chat.conversation.session import STAND_IN, ChatSession
from eaglechat.chat.refusals import BUSY, ENGINE_GONE, engine_as_subject
from eaglechat.links.base import Died
from eaglechat.tui.commands.registry import key_of, with_keys
from eaglechat.wire.protocol import (
    Hello,
    PairInfo,
    RecommendedSampling,
    Rendered,
    Sampling,
)
from eaglechat.wire.records import NGRAM, AutoDraft, AutoReason, Round

_FORK_EXCERPT, _LOG_LINE = 24, 160
VISIBLE_WHITESPACE = str.maketrans({"\n": "↵", "\t": "⇥"})
"""Makes newlines and tabs visible in a text that is shown on one line."""


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def two_decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """A message of an engine as a sentence: with a full stop, and with a capital letter unless it
    begins with an address or a name."""
    if not text.startswith(("http", "llama.cpp", "llama-")):
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def pair_in_short(info: PairInfo | None, name: str) -> str:
    """The pair, as it is written in the title bar."""
    if info is None:
        return f"{name}  not loaded"
    if info.server:
        return f"{name}  {info.target.name}"
    draft = f" + draft {info.draft.quantization}" if info.draft else ", no draft"
    return f"{name}  {info.target.quantization}{draft}"


NO_ROUNDS = "There are no rounds to show: nothing has been generated here yet."


def prompt_seen(prompt: Rendered, n_ctx: int, typed: str) -> str:
    """The sentence above the prompt on the screen “What the model sees”. `typed` is empty if the
    user has not typed a question yet."""
    said = [f"{prompt.tokens:,} of {plural(n_ctx, 'token')}"]
    if prompt.first_turn:
        n = prompt.first_turn
        left = "the first turn is" if n == 1 else f"the first {n:,} turns are"
        said.append(f"{left} not in the context")
    if prompt.checkpoints:
        mib = one_decimal(prompt.checkpoint_bytes / 2**20)
        said.append(f"{plural(prompt.checkpoints, 'checkpoint')} to go back to, {mib} MiB")
    if not typed:
        said.append(f"“{STAND_IN}” stands for the question that you have not typed yet")
    return "; ".join(said) + "."


def own_sampling(recommended: RecommendedSampling | None, in_force: Sampling) -> str:
    """The sampling settings without a control that have the value the model's file recommends."""
    keys = ("top_k", "top_p", "min_p", "repeat_penalty")
    own = [
        f"{key} {getattr(in_force, key):g}"
        for key in keys
        if recommended and getattr(recommended, key) == getattr(in_force, key)
    ]
    return f"The model's: {', '.join(own)}" if own else ""


COMPARISON = (
    "Comparison: the same prompt, sampling and seed without speculation. It is not part of the "
    "conversation."
)
NOTHING_COMPARED = "Nothing was written, so there is nothing to compare."


def write_first() -> str:
    """Why an empty prompt is not sent."""
    return f"Write something first; {key_of('prompt.send')} sends it."


UNSAVED = (
    "This chat cannot be saved to disk: when you leave it, everything unsaved is lost. "
    "{chat.export} in the chat writes it to another folder, or copies it."
)
NO_TURNS = "Nothing has been asked in this chat yet."
NO_EARLIER = "There is no earlier question."
EDITING = "Editing: {prompt.send} sends it, {chat.stop} cancels"


def cannot_bench(session: ChatSession) -> str | None:
    """Why the pair cannot be measured now, or None if it can."""
    hello = session.hello
    if session.is_engine_gone or session.info is None:
        return with_keys(ENGINE_GONE)
    if reason := session.info.no_bench(ngram=session.controls.ngram):
        return f"There is nothing to compare: {reason}."
    if session.running is not None:
        return with_keys(BUSY)
    if hello is not None and not hello.can.bench:
        subject = engine_as_subject(hello)
        return f"{subject} cannot run the bench; `eaglechat bench` measures it."
    return None


def not_reported(hello: Hello | None, what: str) -> str | None:
    """What stands in place of a number that an engine does not report; None if it does, or if no
    engine runs. `what` is a field of `Capabilities`."""
    if hello is None or getattr(hello.can, what):
        return None
    return f"not reported by {hello.engine}"


def fitting(text: str, width: int) -> str:
    """A text cut to `width` cells, with an ellipsis at its end if it was cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


def latest_draft(round_: Round | None) -> str:
    """Who drafted in a round, and what shape the draft has."""
    if round_ is None or not round_.drafted:
        return "plain" if round_ else ""
    count = len(round_.drafted)
    shape = f"tree of {count}, {round_.depth} deep" if round_.is_tree else f"chain of {count}"
    return f"{drafter(round_.drafter)}, {shape}"


def drafter(name: str | None) -> str:
    """A drafter's name for people."""
    return {NGRAM: "n-grams", "eagle3": "draft", None: "draft"}.get(name) or str(name)


def auto_in_short(auto: AutoDraft) -> str:
    """The choice of the automatic draft length, in one or three words."""
    if not auto.n:
        return "plain"
    return f"tree of {auto.n}" if auto.shape == "tree" else str(auto.n)


def auto_choice(auto: AutoDraft, width: int) -> str:
    """What the automatic draft length chose and why, in one line."""
    chosen = f"{auto.shape} of {auto.n}" if auto.n else "plain"
    if auto.reason is AutoReason.LOOKED_UP:
        chosen = f"{auto.n} looked up"
    whys = {
        AutoReason.BEST: "expected fastest",
        AutoReason.EXPLORING: "exploring",
        AutoReason.PLAIN_CHECK: "checking its speed",
        AutoReason.LEDGER: "loss limit reached",
        AutoReason.LOOKED_UP: "expected fastest",
    }
    return _longest(
        (f"Auto: {chosen}, {whys[auto.reason]}", f"{chosen}, {auto.reason.value}"), width
    )


def auto_speeds(auto: AutoDraft, width: int) -> str:
    """The expected tokens per second of the chosen length and of plain decoding, the latter with
    its uncertainty."""
    plain = f"{auto.tokens_per_second[0]:.1f} ±{auto.plain_error:.1f}"
    if not auto.length:
        return _longest((f"Plain would be {plain} tok/s", f"plain {plain}"), width)
    chosen = f"{auto.tokens_per_second[auto.length]:.1f}"
    return _longest((f"{chosen} tok/s, plain {plain}", f"plain {plain}"), width)


def auto_ledger(auto: AutoDraft, width: int) -> str:
    """How many milliseconds the reply is behind plain decoding, and how many it may be."""
    lost, allowed = f"{max(auto.lost_ms, 0.0):,.0f}", f"{auto.allowed_ms:,.0f} ms"
    said = f"Behind plain: {lost} of {allowed}"
    return _longest((f"{said} allowed", said, f"lost {lost} of {allowed}"), width)


def _longest(texts: Iterable[str], width: int) -> str:
    """The first text that fits into `width` cells; if none does, the last one cut."""
    *longer, last = texts
    return next((text for text in longer if len(text) <= width), fitting(last, width))


def comparison_result(result: Compared) -> str:
    """The result of a comparison, in two to four lines."""
    lines = [_speed_sentence(result), _fork_sentence(result.fork, result)]
    if result.changed:
        names = " and ".join(result.changed)
        lines.append(f"{names} changed during the reply: its speed is the mean over all of it.")
    if result.plain_cancelled:
        lines.append(f"The plain run was stopped after {plural(result.plain_tokens, 'token')}.")
    return "\n".join(lines)


def _speed_sentence(result: Compared) -> str:
    speculative, plain = result.speculative_tokens_per_second, result.plain_tokens_per_second
    numbers = f"{speculative:.1f} tok/s with speculation, {plain:.1f} tok/s without"
    if round(result.speed_up, 2) > 1:
        return f"{result.speed_up:.2f}x faster with speculation: {numbers}."
    if round(result.speed_up, 2) < 1:
        slower = plain / speculative
        return f"Slower with speculation: plain decoding was {slower:.2f}x faster here. {numbers}."
    return f"No faster and no slower: {numbers}."


def _fork_sentence(fork: Fork | None, result: Compared) -> str:
    if fork is None:
        shared = min(result.speculative_tokens, result.plain_tokens)
        return f"Both wrote the same {shared} tokens."
    return (
        f"First difference at token {fork.index + 1}: "
        f"{_quoted(fork.speculative)} with speculation, {_quoted(fork.plain)} without."
    )


def _quoted(text: str | None) -> str:
    if text is None:
        return "the end of the reply"
    return f"“{text.translate(VISIBLE_WHITESPACE)[:_FORK_EXCERPT]}”"


def engine_stopped(event: Died) -> str:
    """That the engine process has ended, and the last lines of its log."""
    return f"{sentence(event.reason)} {'' if event.why else _log(event.log_tail)}".rstrip()


def died_in_chat(event: Died) -> str:
    """The same in a chat. The log comes first, because the reader sees the last line."""
    log = "" if event.why else f"{_log(event.log_tail)}\n"
    return (
        f"{log}{sentence(event.reason)} "
        f"Your chat is saved. {key_of('chat.load_again')} loads the models again."
    )


def _log(lines: Iterable[str]) -> str:
    text = "\n".join(f"  {_shortened(line)}" for line in lines)
    return f"The last lines of the engine's log:\n{text}" if text else "The engine's log is empty."


def _shortened(line: str) -> str:
    return line if len(line) <= _LOG_LINE else f"{line[: _LOG_LINE - 1]}…"


_WHAT_TO_DO = {
    "preflight": "Choose other files, or load the target without a draft.",
    "load": "A smaller context (engine.n_ctx) or fewer layers on the GPU (engine.n_gpu_layers) "
    "need less memory; both are in the settings. The engine's log says more.",
    "rpc": "Start ggml-rpc-server there, or change engine.rpc_servers in the settings.",
    "program": "Change engine.llama_server in the settings and start eaglechat again; if it is "
    "empty, eaglechat's own engine runs the pairs.",
    "settings": "Change it in the settings, under engine.",
    "native_library": "Run “eaglechat doctor”: it names what is missing.",
    "start": "Check engine.command in the settings.",
    "protocol": "Install the same version of eaglechat on both machines.",
    "died": "Try again; if it happens again, “eaglechat doctor” says what is wrong here.",
    "server": "Check the server, and its entry in config.toml if it has one, and try again.",
    "missing": "Choose another model of the server: --model, or model in its entry.",
    "which_model": "Then start again.",
    "session_init": "Choose the draft that was made for this target, or load without one.",
}


def what_to_do(code: str) -> str:
    """Advice to the user for an error with this code."""
    return _WHAT_TO_DO.get(code, "The engine's log says more.")
