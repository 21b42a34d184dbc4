"""The commands of the chat, its prompt and sliders, and of the bench."""

from __future__ import annotations

from eaglechat.chat import controls
from eaglechat.chat.controls import Choice, Range
from eaglechat.tui.commands.command import Argument, Command
from eaglechat.wire.protocol import AUTO

CHAT = (
    Command(
        id="chat.stop",
        title="Stop the reply",
        help="Stop the reply and keep what is written",
        scopes=("chat",),
        keys=("escape",),
        footer="Stop",
    ),
    Command(
        id="chat.new",
        title="New chat",
        help="Start a new chat; this one is saved",
        scopes=("chat",),
        keys=("ctrl+n",),
        action="new_chat",
        priority=True,
        footer="New",
    ),
    Command(
        id="chats.open",
        title="Past chats",
        help="Resume an earlier chat",
        scopes=("menu", "chat"),
        keys=("ctrl+t",),
        action="past_chats",
        priority=True,
        footer="Chats",
    ),
    Command(
        id="chat.compare",
        title="Compare with plain decoding",
        help="Run the last prompt again without speculation and measure the difference",
        scopes=("chat",),
        keys=("leader c",),
        action="compare",
        priority=True,
        footer="Compare",
    ),
    Command(
        id="chat.menu",
        title="Menu",
        help="Save the chat and return to the menu",
        scopes=("chat",),
        keys=("ctrl+o",),
        priority=True,
        footer="Menu",
    ),
    Command(
        id="chat.copy",
        title="Copy the reply",
        help="Copy the last reply, without rejected tokens",
        scopes=("chat",),
        keys=("leader y",),
    ),
    Command(
        id="chat.thought",
        title="Reasoning",
        help="Fold or unfold what the model thought before its last answer",
        scopes=("chat",),
        keys=("leader i",),
        action="fold_thought",
        priority=True,
    ),
    Command(
        id="chat.answer_now",
        title="Answer now",
        help="End the reasoning and have the model answer",
        scopes=("chat",),
        keys=("leader e",),
        action="answer_now",
        priority=True,
    ),
    Command(
        id="chat.prompt",
        title="What the model sees",
        help="Show what the model would read if you sent what you have typed",
        scopes=("chat",),
        keys=("leader m",),
        priority=True,
    ),
    Command(
        id="seen.copy",
        title="Copy the prompt",
        help="Copy what the model would read, control tokens included",
        scopes=("seen",),
        keys=("leader y",),
    ),
    Command(
        id="chat.pane",
        title="Speculation panel",
        help="Show or hide the speculation panel",
        scopes=("chat",),
        keys=("leader p",),
        aliases=("f2",),
        action="toggle_panel",
        priority=True,
    ),
    Command(
        id="chat.reading",
        title="Reading view",
        help="Show finished replies as formatted text instead of tokens",
        scopes=("chat",),
        keys=("leader v",),
        aliases=("f4",),
        action="toggle_view('reading')",
        priority=True,
    ),
    Command(
        id="chat.colours",
        title="Token colours",
        help="Colour tokens by origin",
        scopes=("chat",),
        keys=("leader t",),
        aliases=("f5",),
        action="toggle_view('token_colours')",
        priority=True,
    ),
    Command(
        id="chat.rejected",
        title="Rejected tokens",
        help="Show the first rejected draft token of a round",
        scopes=("chat",),
        keys=("leader r",),
        aliases=("f6",),
        action="toggle_view('show_rejected')",
        priority=True,
    ),
    Command(
        id="chat.load_again",
        title="Reload the models",
        help="Reload the models after the engine stopped",
        scopes=("chat",),
        keys=("ctrl+l",),
        priority=True,
    ),
    Command(
        id="chat.page_up",
        title="Scroll up",
        help="Scroll up through the chat",
        scopes=("chat",),
        keys=("pageup",),
        action="page(-1)",
        priority=True,
    ),
    Command(
        id="chat.page_down",
        title="Scroll down",
        help="Scroll down through the chat",
        scopes=("chat",),
        keys=("pagedown",),
        action="page(1)",
        priority=True,
    ),
)


def _argument(control: Range | Choice) -> Argument:
    if isinstance(control, Choice):
        return Argument(words=control.words)
    kind = float if control.decimals else int
    return Argument(kind, control.minimum, control.maximum, (AUTO,) if control.has_auto else ())


CONTROLS = (
    Command(
        id="chat.speculation",
        title="Speculation",
        help="Switch speculation on or off",
        scopes=("chat",),
        keys=("leader s",),
        aliases=("f3",),
        action="toggle_speculation",
        priority=True,
    ),
    Command(
        id="chat.ngram",
        title="n-grams",
        help="Switch looking up what followed the last tokens before on or off",
        scopes=("chat",),
        keys=("leader number_sign",),
        action="toggle_ngram",
        priority=True,
    ),
    Command(
        id="chat.auto",
        title="Automatic draft length",
        help="Choose the draft length of every round by measurement, or set it by hand again",
        scopes=("chat",),
        keys=("leader a",),
        aliases=("f12",),
        action="auto_length",
        priority=True,
    ),
    Command(
        id="chat.less",
        title="Draft less",
        help="Lower n_draft_max by 1",
        scopes=("chat",),
        keys=("leader minus",),
        aliases=("f7", "alt+down"),
        action="draft_length(-1)",
        priority=True,
    ),
    Command(
        id="chat.more",
        title="Draft more",
        help="Raise n_draft_max by 1",
        scopes=("chat",),
        keys=("leader plus",),
        aliases=("f8", "alt+up"),
        action="draft_length(1)",
        priority=True,
    ),
    Command(
        id="chat.own_sampling",
        title="The model's own temperature",
        help="Turn the temperature back to what the model's file recommends",
        scopes=("chat",),
        keys=("leader equals_sign",),
        priority=True,
    ),
    *(
        Command(
            id=f"chat.{control.name}",
            title=control.name,
            help=control.explanation.removesuffix("."),
            scopes=("chat",),
            action=f"control('{control.name}', {{}})",
            argument=_argument(control),
        )
        for control in (*controls.CONTROLS, *controls.THOUGHT_CONTROLS)
        if isinstance(control, Range | Choice)
    ),
    Command(
        id="slider.less",
        title="Less",
        help="One step less",
        scopes=("slider",),
        keys=("left", "down"),
        action="step(-1)",
        footer="Less",
    ),
    Command(
        id="slider.more",
        title="More",
        help="One step more",
        scopes=("slider",),
        keys=("right", "up"),
        action="step(1)",
        footer="More",
    ),
    Command(
        id="slider.least",
        title="Minimum",
        help="The minimum, or auto where there is one",
        scopes=("slider",),
        keys=("home",),
        action="end(-1)",
    ),
    Command(
        id="slider.most",
        title="Maximum",
        help="The maximum",
        scopes=("slider",),
        keys=("end",),
        action="end(1)",
    ),
)

PROMPT = (
    Command(
        id="prompt.send",
        title="Send",
        help="Send the prompt",
        scopes=("prompt",),
        keys=("enter",),
    ),
    Command(
        id="prompt.newline",
        title="New line",
        help="Start a new line",
        scopes=("prompt",),
        keys=("ctrl+j",),
        # Shift+Enter comes under two names: Kitty's protocol, and xterm's modifyOtherKeys.
        aliases=("shift+enter", "ctrl+enter", "alt+enter", "shift+\\r"),
    ),
)

BENCH = (
    Command(
        id="chat.bench",
        title="Bench",
        help="Measure this pair with each draft length and keep the best",
        scopes=("chat",),
        keys=("leader b",),
        aliases=("f11",),
        priority=True,
    ),
    Command(
        id="bench.back",
        title="Stop or back",
        help="Stop measuring, or go back to the chat",
        scopes=("bench",),
        keys=("escape",),
        footer="Stop, back",
    ),
    Command(
        id="bench.measure",
        title="Measure",
        help="Start measuring",
        scopes=("bench",),
        keys=("leader m",),
        action="start",
        footer="Measure",
    ),
    Command(
        id="bench.quick",
        title="Quick bench",
        help="Measure two prompts once, with short replies",
        scopes=("bench",),
        keys=("leader q",),
        footer="Quick",
    ),
)
