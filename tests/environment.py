"""What the tests see of the machine: a home and an environment of their own, and no network."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OFFLINE = Path(__file__).parent / "offline"
_VARIABLE = "TESTS_STARTED_WITH"
_OF_THE_USER = re.compile(
    r"(EAGLECHAT|HF|HUGGING|LLAMA|OLLAMA|OPENAI|XDG|SSH|SSL)_.*|TEXTUAL_(?!SNAPSHOT_).*|.*_PROXY"
    # Where bytecode is not written, each process that a test starts compiles the whole program.
    r"|PYTHON(PATH|DONTWRITEBYTECODE)"
    r"|(WAYLAND_)?DISPLAY|TMUX|WSL_DISTRO_NAME|EDITOR|VISUAL|PAGER|NO_COLOR|FORCE_COLOR|COLORTERM"
    r"|COLUMNS|LINES|CLICOLOR(_FORCE)?|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
"""Variables that a test sets where it means them."""
_OF_THE_TESTS = {
    "EAGLECHAT_LEAVE_OUT",
    "EAGLECHAT_LLAMA_RPC",
}


def of_the_user() -> dict[str, str]:
    """The environment that the tests were started in: an installation needs its caches."""
    started_with: dict[str, str] = json.loads(os.environ[_VARIABLE])
    return started_with


def isolate() -> Path:
    """Let this process and its children know neither the user's files nor the network; the folder
    in which homes are made. Called before anything of the program is imported, which reads
    variables as it is."""
    os.environ.setdefault(_VARIABLE, json.dumps(dict(os.environ)))
    for name in [*os.environ]:
        if _OF_THE_USER.fullmatch(name) and name not in _OF_THE_TESTS:
            del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="eaglechat-tests-"))
    os.environ.update(
        variables_of(folder),
        TERM="xterm-256color",
        COLUMNS="80",
        LINES="24",
        PYTHONPATH=os.pathsep.join([str(OFFLINE), str(ROOT)]),
        HF_HUB_OFFLINE="1",
        # One authority, of which nobody has the key: reading the system's 150 takes each client a
        # twentieth of a second, and without any hf_xet does not begin.
        SSL_CERT_FILE=str(OFFLINE / "nobody.pem"),
        # Nothing is copied to the clipboard of whoever runs the tests.
        SSH_CONNECTION="1.2.3.4 5 6.7.8.9 22",
    )
    # huggingface_hub asks the Hub for it before the first question of each process.
    (folder / "hf").mkdir()
    (folder / "hf" / ".agent_harnesses.json").write_text('{"harnesses": {}}')
    sys.path.append(str(OFFLINE))
    return folder


def variables_of(home: Path) -> dict[str, str]:
    """What leads the program to the files of a home."""
    return {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "EAGLECHAT_HOME": str(home / "eaglechat"),
        "HF_HOME": str(home / "hf"),
    }
