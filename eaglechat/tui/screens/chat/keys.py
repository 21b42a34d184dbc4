"""The keys of the chat. All reach it while the prompt has the focus, so they avoid its own."""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _key(
    keys: str, action: str, description: str, id: str, tooltip: str, *, show: bool = False
) -> Binding:
    return Binding(
        keys, action, description, show=show, id=f"chat.{id}", tooltip=tooltip, priority=True
    )


CHAT_BINDINGS: list[BindingType] = [
    _key("escape", "stop", "Stop", "stop", "Stop the reply; what is written stays", show=True),
    _key("ctrl+n", "new_chat", "New", "new", "Begin a new chat; this one is kept", show=True),
    _key(
        "ctrl+r",
        "compare",
        "Compare",
        "compare",
        "Run the last prompt again without speculation and measure the difference",
        show=True,
    ),
    _key("f2", "toggle_panel", "Panel", "panel", "Show or hide the speculation panel", show=True),
    _key(
        "f3", "toggle_speculation", "Speculation on/off", "speculation", "Draft or decode plainly"
    ),
    _key(
        "f4",
        "toggle_view('reading')",
        "Reading view",
        "reading",
        "Show finished replies as formatted text instead of tokens",
    ),
    _key(
        "f5", "toggle_view('token_colours')", "Token colours", "colours", "Colour tokens by origin"
    ),
    _key(
        "f6",
        "toggle_view('show_rejected')",
        "Rejected tokens",
        "rejected",
        "Show the first rejected draft token of a round",
    ),
    _key("f7,alt+down", "draft_length(-1)", "Draft less", "less", "Lower n_draft_max by 1"),
    _key("f8,alt+up", "draft_length(1)", "Draft more", "more", "Raise n_draft_max by 1"),
    _key(
        "f12,alt+a",
        "auto_length",
        "Automatic draft length",
        "auto",
        "Let measurement choose the draft length of every round, or take it over again",
    ),
    _key(
        "f11,alt+b",
        "bench",
        "Bench",
        "bench",
        "Measure this pair with each draft length and keep the best",
    ),
    _key("ctrl+o", "menu", "Menu", "menu", "Leave the chat for the menu; it is kept", show=True),
    _key("ctrl+t", "past_chats", "Past chats", "chats", "Go on with an earlier chat"),
    _key(
        "ctrl+l", "load_again", "Load again", "load", "Load the models again after the engine died"
    ),
    _key("pageup", "page(-1)", "Scroll up", "page_up", "Scroll up through the chat"),
    _key("pagedown", "page(1)", "Scroll down", "page_down", "Scroll down through the chat"),
    # While the prompt has the focus these are text.
    Binding("minus", "draft_length(-1)", "Draft less", show=False, id="chat.minus"),
    Binding("plus", "draft_length(1)", "Draft more", show=False, id="chat.plus"),
]
