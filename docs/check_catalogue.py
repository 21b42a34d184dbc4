"""Asks the Hub about every pair of the catalogue, and says what has changed since it was written.

    python docs/check_catalogue.py [--write] [NAME ...]

A pair is asked for at its pinned revisions and at the newest ones. `--write` pins those pairs to
the newest revisions, sizes and hashes whose draft still fits there; the others stay as they are.
Of a target without a file, which comes in the quantisation that fits the machine, only the revision
is pinned. A pair without a draft needs a target with MTP heads.
Exit status: 0 where nothing has changed, 1 where something has, 2 where the Hub cannot be reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from eaglechat.gguf.header import GGUFError
from eaglechat.hub import catalogue
from eaglechat.hub.catalogue import NO_DRAFT, CatalogueEntry, DraftSource, GGUFSource
from eaglechat.hub.downloads import install
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.units import format_bytes
from eaglechat.paths import write_atomically

BRANCH = "main"


@dataclass(frozen=True)
class Finding:
    """What the Hub says of a pair: what has changed, and the pair as it could be pinned now."""

    entry: CatalogueEntry
    changes: tuple[str, ...]
    newest: CatalogueEntry | None
    """None where it cannot be had, or where its draft no longer fits."""


def look_at(hub: Hub, entry: CatalogueEntry) -> Finding:
    """Ask about one pair. Raises OfflineError."""
    changes = list(_pinned(hub, entry))
    loose = msgspec.structs.replace(
        entry,
        target=msgspec.structs.replace(entry.target, revision=BRANCH, sha256=None),
        draft=_loosened(entry.draft),
    )
    try:
        plan = install.plan(hub, loose)
        changes += [f"{repo} is gated" for repo in plan.gated]
        problem = None if plan.gated else _problem(hub, plan)
    except OfflineError:
        raise
    except (HubError, GGUFError, ValueError) as error:
        return Finding(entry, (*changes, str(error)), None)
    changes += _moved("target", entry.target, plan.target)
    if plan.draft:
        changes += _moved("draft", entry.draft, plan.draft)
    if problem is not None:
        return Finding(entry, (*changes, f"no longer fits: {problem}"), None)
    newest = msgspec.structs.replace(
        entry,
        target=_pin(entry.target, plan.target),
        draft=_pin(entry.draft, plan.draft) if plan.draft else entry.draft,
    )
    return Finding(entry, tuple(changes), newest)


def _loosened(draft: DraftSource) -> DraftSource:
    return (
        draft if draft == NO_DRAFT else msgspec.structs.replace(draft, revision=BRANCH, sha256=None)
    )


def _problem(hub: Hub, plan: install.Plan) -> str | None:
    """Why the draft does not fit, or a target without one has no heads either."""
    if plan.draft or install.drafters_of(hub, plan):
        return install.why_unfit(hub, plan)
    return f"nothing drafts for it: {plan.target[0].path} has no MTP heads"


def _pinned(hub: Hub, entry: CatalogueEntry) -> Iterator[str]:
    """Pinned revisions that cannot be had, and repositories that have another name now."""
    for source in (entry.target, *([] if entry.draft == NO_DRAFT else [entry.draft])):
        repo = source.repo or getattr(source, "checkpoint", "")
        try:
            listing = hub.repo(repo, source.revision)
        except OfflineError:
            raise
        except HubError as error:
            # `look_at` asks for the branch itself.
            if source.revision != BRANCH:
                yield f"pinned to {source.revision[:8]}: {error}"
            continue
        if listing.renamed:
            yield f"{repo} is now called {listing.renamed}"


def _moved(
    what: str, source: GGUFSource | DraftSource, files: Sequence[RemoteFile]
) -> Iterator[str]:
    """What has changed on the branch since the source was pinned or last looked at."""
    if source.revision not in (BRANCH, files[0].commit):
        yield f"{what}: {BRANCH} has moved on to {files[0].commit[:8]}"
    size = sum(file.size for file in files)
    if source.size not in (None, size):
        yield f"{what}: {format_bytes(source.size or 0)} became {format_bytes(size)} ({size} bytes)"
    if source.sha256 not in (None, files[0].sha256):
        yield f"{what}: another file (sha256 {(files[0].sha256 or '')[:12]}...)"


def _pin(source: Any, files: Sequence[RemoteFile]) -> Any:
    """A source as it is on the branch now."""
    facts: dict[str, Any] = {"revision": files[0].commit}
    if source.repo is not None and not source.file and not source.quantization:
        # Which of its files is taken depends on the machine.
        return msgspec.structs.replace(source, **facts)
    facts["size"] = sum(file.size for file in files)
    if source.repo is not None:
        facts |= {"file": files[0].path, "quantization": None, "sha256": files[0].sha256}
    return msgspec.structs.replace(source, **facts)


def write(file: Path, findings: Sequence[Finding]) -> None:
    """Pin pairs in a catalogue's file; comments and everything else in it stay as they are."""
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    newest = {one.entry.name: one.newest for one in findings if one.newest is not None}
    for pair in document["pair"]:
        entry = newest.get(pair["name"])
        if entry is not None:
            pair["target"] = _table(entry.target)
            if entry.draft != NO_DRAFT:
                pair["draft"] = _table(entry.draft)
    write_atomically(file, tomlkit.dumps(document).encode())


def _table(source: GGUFSource | DraftSource) -> tomlkit.items.InlineTable:
    table = tomlkit.inline_table()
    table.update({key: value for key, value in msgspec.to_builtins(source).items() if value})
    return table


def main(arguments: Sequence[str], hub: Hub, file: Path = catalogue.SHIPPED) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="pin what still fits")
    args = parser.parse_args(arguments)
    entries, _ = catalogue.read(file)
    unknown = set(args.names) - {entry.name for entry in entries}
    if unknown:
        parser.error(f"no pair of the catalogue is named {', '.join(sorted(unknown))}")
    wanted = [entry for entry in entries if not args.names or entry.name in args.names]
    findings = []
    try:
        for entry in wanted:
            found = look_at(hub, entry)
            findings.append(found)
            print(f"{entry.name}: {'; '.join(found.changes) or 'unchanged'}", flush=True)
    except OfflineError as error:
        print(error, file=sys.stderr)
        return 2
    if args.write:
        write(file, findings)
    return 1 if any(found.changes for found in findings) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Hub()))
