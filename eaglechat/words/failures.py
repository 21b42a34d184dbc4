"""Why something of the user cannot be used: a file to attach, a role, a saved chat, the editor."""

from __future__ import annotations

from collections.abc import Mapping

from eaglechat.chat.writing import roles
from eaglechat.chat.writing.editor import WITHOUT_A_SETTING, EditorError, NotEdited
from eaglechat.chat.writing.files import AttachError, CannotAttach
from eaglechat.chat.writing.roles import RoleProblem, WrongRole
from eaglechat.hub.units import format_bytes

ATTACHING: Mapping[CannotAttach, str] = {
    CannotAttach.NOT_A_FILE: "is not a file.",
    CannotAttach.TOO_LARGE: "is too large: {bytes}, and at most {most_bytes} can be attached.",
    CannotAttach.UNREADABLE: "cannot be read: {cause}.",
    CannotAttach.NOT_TEXT: "is not a text file.",
    CannotAttach.NOT_UTF8: "is not text in UTF-8.",
    CannotAttach.TOO_LONG: "has about {size:,} tokens, and the context holds {most:,}.",
}

EDITING: Mapping[NotEdited, str] = {
    NotEdited.NO_EDITOR: (
        "No editor is set, and {others} were not found. Set $VISUAL or $EDITOR to the command "
        "of your editor, such as EDITOR='code --wait', and start eaglechat again."
    ),
    NotEdited.WRONG_COMMAND: "$VISUAL or $EDITOR is {command}, which cannot be read: {cause}.",
    NotEdited.UNUSABLE: "{command} could not be used: {cause}.",
    NotEdited.FAILED: "{command} exited with status {status}; nothing was changed.",
    NotEdited.NOT_UTF8: "{command} saved what is not text in UTF-8; nothing was changed.",
}

ROLES: Mapping[WrongRole, str] = {
    WrongRole.TOO_LONG: "is longer than {most:,} bytes",
    WrongRole.UNREADABLE: "cannot be read: {cause}",
    WrongRole.NO_TEXT: "must be text",
    WrongRole.UNKNOWN_KEY: "is no key of a role; there are {keys}",
    WrongRole.WRONG_VALUE: "{cause}",
}


def cannot_attach(error: AttachError) -> str:
    """Why a file cannot be attached, as a sentence."""
    size, most = error.size, error.most
    why = ATTACHING[error.why].format(
        size=size,
        most=most,
        bytes=format_bytes(size),
        most_bytes=format_bytes(most),
        cause=error.cause,
    )
    return f"{error.path} {why}"


def not_edited(error: EditorError) -> str:
    """Why the user's editor changed nothing, as a sentence."""
    *others, last = WITHOUT_A_SETTING
    return EDITING[error.why].format(
        command=error.command,
        status=error.status,
        cause=error.cause,
        others=f"{', '.join(others)} and {last}",
    )


def wrong_role(problem: RoleProblem) -> str:
    """What is wrong with the file of a role, without a full stop."""
    what = ROLES[problem.what].format(
        most=roles.MOST_BYTES, cause=problem.cause, keys=", ".join(roles.KEYS)
    )
    return f"{problem.file}: {problem.key} {what}" if problem.key else f"{problem.file} {what}"


def why(error: Exception) -> str:
    """Why a chat or a file cannot be read or changed, as it stands behind a colon."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
