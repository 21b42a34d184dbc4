"""The servers of config.toml in `eaglechat doctor`: what each is, or what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat import settings
from eaglechat.cli.doctor import Doctor
from tests.links.http.fault_server import fault_server

KEY = "hidden-key"


def test_each_server_is_named_with_what_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", KEY)
    config = home / "eaglechat" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    with fault_server() as there, fault_server() as locked:
        locked.models = lambda handler: handler.json({"error": f"wrong key: {KEY}"}, 401)
        entries = {
            "there": there.url,
            "away": "http://127.0.0.1:9",
            "locked": locked.url,
            "elsewhere": f"{there.url}/deeper",
            "mistyped": "ftp://box",
        }
        config.write_text(
            "".join(
                f'[[server]]\nname = "{name}"\nurl = "{url}"\nkey_env = "BOX_KEY"\n'
                for name, url in entries.items()
            )
        )
        doctor = Doctor(*settings.load(config))
        said = list(doctor.servers())

    assert said == [
        "there: an OpenAI-compatible server, m",
        *(f"{name}: cannot be used now" for name in ("away", "locked", "elsewhere", "mistyped")),
    ]
    away, locked_out, elsewhere, mistyped = doctor.wrong
    assert "away: nothing answers at http://127.0.0.1:9: is the server running there?" in away
    assert f"{locked.url} does not accept the key (HTTP 401)" in locked_out
    assert "has no such page (HTTP 404" in elsewhere
    assert elsewhere.endswith("; check its address (url)")
    assert "write http://host:port" in mistyped
    assert KEY not in "".join((*said, *doctor.wrong))
