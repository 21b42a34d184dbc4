"""Search the Hub for targets and drafts, by name, author or address."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from eaglechat.cli.status import OK, CommandError
from eaglechat.hub.downloads import targets
from eaglechat.hub.downloads.client import Hub, RemoteRepo
from eaglechat.hub.downloads.find_drafts import is_named_like_draft
from eaglechat.words.tables import aligned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="WORDS",
        help="words of a name, an author, user/repo, or an address on the Hub",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    words = " ".join(args.words)
    hits = targets.search(Hub(), words)
    if args.json:
        found = [
            {
                "repo": hit.repo,
                "kind": "draft" if is_named_like_draft(hit) else "target",
                "downloads": hit.downloads,
                "licence": hit.licence,
                "gated": hit.gated,
            }
            for hit in hits
        ]
        print(json.dumps({"repositories": found}, indent=2))
    elif not hits:
        raise CommandError(f"the Hub has no GGUF and no draft for {words!r}")
    else:
        _print([hit for hit in hits if not is_named_like_draft(hit)], "Targets", "drafts")
        _print([hit for hit in hits if is_named_like_draft(hit)], "Drafts", "pull")
    return OK


def _print(hits: Sequence[RemoteRepo], title: str, command: str) -> None:
    if not hits:
        return
    does = {"drafts": "finds drafts for one", "pull": "downloads one"}[command]
    print(f"{title} (`eaglechat {command} REPO` {does})")
    rows = []
    for hit in hits:
        facts = [f"{hit.downloads:,} downloads", hit.licence or "", "gated" if hit.gated else ""]
        rows.append((hit.repo, " · ".join(filter(None, facts))))
    for line in aligned(rows):
        print(f"  {line}")
