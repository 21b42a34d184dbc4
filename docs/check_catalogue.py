"""Asks the Hub about every pair of the catalogue, and says what is wrong with it now.

    python docs/check_catalogue.py [NAME ...]

A pair without a draft needs a target with MTP heads.
Exit status: 0 where every pair can be had as the catalogue says, 1 where one cannot, 2 where the
Hub cannot be reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from eaglechat.hub import catalogue
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.errors import OfflineError
from eaglechat.hub.units import format_bytes
from eaglechat.wire.errors import EngineError


def problems(hub: Hub, entry: CatalogueEntry) -> Iterator[str]:
    """What is wrong with one pair. Raises OfflineError."""
    try:
        for repo in filter(None, (entry.target.of_hub, entry.draft.of_hub)):
            if renamed := hub.repo(repo).renamed:
                yield f"{repo} is now called {renamed}"
        plan = install.plan(hub, entry)
        yield from (f"{repo} is gated" for repo in plan.gated)
        for what, source, files in (
            ("target", entry.target, plan.target),
            ("draft", entry.draft, plan.draft),
        ):
            size = sum(file.size for file in files)
            if source.size not in (None, size):
                known = format_bytes(source.size or 0)
                yield f"{what}: {known} became {format_bytes(size)} ({size} bytes)"
        if plan.gated:
            return
        if not plan.draft:
            facts = install.facts_of(hub, plan, 0)
            if facts is None or not facts.drafters:
                yield f"nothing drafts for it: {plan.target[0].path} has no MTP heads"
        elif problem := install.why_unfit(hub, plan):
            yield f"does not fit: {problem}"
    except OfflineError:
        raise
    except EngineError as error:
        yield str(error)


def main(arguments: Sequence[str], hub: Hub, file: Path = catalogue.SHIPPED) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args(arguments)
    entries, _ = catalogue.read(file)
    unknown = set(args.names) - {entry.name for entry in entries}
    if unknown:
        parser.error(f"no pair of the catalogue is named {', '.join(sorted(unknown))}")
    status = 0
    try:
        for entry in entries:
            if not args.names or entry.name in args.names:
                found = list(problems(hub, entry))
                print(f"{entry.name}: {'; '.join(found) or 'as it says'}", flush=True)
                status = 1 if found else status
    except OfflineError as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Hub()))
