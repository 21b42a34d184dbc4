"""Download a model, or a pair of the catalogue with its draft."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.cli.parsing import checked_type, did_you_mean
from eaglechat.cli.status import (
    FAILED,
    INTERRUPTED,
    OK,
    CommandError,
    WrongUsageError,
    complain,
    reason,
)

if TYPE_CHECKING:
    from eaglechat.cli.hub.progress import ProgressPrinter
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
    from eaglechat.hub.downloads.queue import Downloads
    from eaglechat.hub.references import HubReference, ModelFiles

_REDRAW_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reference",
        metavar="REF",
        help="a pair of the catalogue (see `eaglechat models`), user/repo, user/repo:Q4_K_M, "
        "user/repo/file.gguf, or an address on huggingface.co",
    )
    parser.add_argument(
        "--type",
        dest="draft_type",
        metavar="TYPE",
        help="quantisation of a draft that is converted after the download (default: q8_0)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the files that are here, and download damaged ones again",
    )


def run(args: argparse.Namespace) -> int:
    from eaglechat.cli.hub.progress import ProgressPrinter
    from eaglechat.gguf.header import GGUFError
    from eaglechat.hub import catalogue
    from eaglechat.hub.downloads.client import Hub
    from eaglechat.hub.downloads.queue import Downloads
    from eaglechat.hub.errors import HubError
    from eaglechat.hub.local.pairs import BUILTIN_NAME
    from eaglechat.hub.references import InvalidReferenceError, LocalReference, parse

    entries, problems = catalogue.load()
    for problem in problems:
        complain(str(problem))
    downloads, printer = Downloads(Hub()), ProgressPrinter()
    entry = next((e for e in entries if e.name == args.reference), None)
    try:
        if entry is not None:
            return _pull_pair(args, downloads, entry, printer)
        if args.reference == BUILTIN_NAME:
            raise InvalidReferenceError(f"{BUILTIN_NAME} is built in: there is nothing to download")
        reference = parse(args.reference)
        if isinstance(reference, LocalReference):
            raise WrongUsageError(
                f"{reference.path} is a path on this machine: there is nothing to download"
            )
        return _pull_model(args, downloads, reference, printer)
    except InvalidReferenceError as error:
        near = did_you_mean(args.reference, [entry.name for entry in entries])
        raise WrongUsageError(f"{str(error).rstrip('.')}{near}") from error
    except (HubError, GGUFError, OSError) as error:
        raise CommandError(reason(error) if isinstance(error, OSError) else str(error)) from error
    except KeyboardInterrupt:
        downloads.close()
        printer.close()
        complain("interrupted; what was downloaded stays, and pulling again resumes")
        return INTERRUPTED
    finally:
        printer.close()


def _pull_model(
    args: argparse.Namespace,
    downloads: Downloads,
    reference: HubReference,
    printer: ProgressPrinter,
) -> int:
    from eaglechat.hub.errors import OfflineError
    from eaglechat.hub.local import installed, stores
    from eaglechat.hub.references import choose

    hub = downloads.hub
    if args.draft_type:
        raise WrongUsageError("--type is for the pairs of the catalogue whose draft is converted")
    try:
        listing = hub.repo(reference.repo, reference.revision)
    except OfflineError:
        path = installed.cached_model(hub.cache_dir, reference) or stores.find_model(reference)
        if path is None:
            raise
        print(path)
        return OK
    model = choose(reference, listing.paths)
    files = [listing.file(name) for name in model.files]
    if args.check:
        _drop_damaged(hub, files)
    paths = _download(downloads, files, printer)
    if paths is None:
        return FAILED
    _say_what_drafts(paths, hub, listing, model)
    print(paths[0])
    return OK


def _pull_pair(
    args: argparse.Namespace, downloads: Downloads, entry: CatalogueEntry, printer: ProgressPrinter
) -> int:
    from eaglechat.hub.downloads import install
    from eaglechat.hub.errors import OfflineError
    from eaglechat.hub.local import installed

    hub = downloads.hub
    draft_type = installed.DEFAULT_DRAFT_TYPE
    if args.draft_type:
        # Checked before the download, because the conversion comes long after it.
        from eaglechat.hub.convert import TYPES  # brings numpy and gguf

        draft_type = checked_type(args.draft_type, TYPES)
    try:
        plan = install.plan(hub, entry, draft_type)
        install.check_draft(hub, plan)
        install.check_access(hub, plan)
    except OfflineError:
        here = installed.status(entry, hub.cache_dir)
        if here.pair is None:
            raise
        print(here.pair.target, here.pair.draft, sep="\n")
        return OK
    if args.check:
        _drop_damaged(hub, plan.files)
    install.begin(plan, hub.cache_dir)
    if _download(downloads, plan.files, printer) is None:
        return FAILED
    try:
        pair, notes = install.finish(plan, hub.cache_dir, draft_type, printer.stage)
    except ValueError as error:
        # What the converter refuses: a sentence about the checkpoint.
        raise CommandError(f"the draft of {entry.name} cannot be converted: {error}") from error
    printer.close()
    for note in notes:
        complain(f"note: {note}")
    print(pair.target, pair.draft, sep="\n")
    return OK


def _download(
    downloads: Downloads, files: Iterable[RemoteFile], printer: ProgressPrinter
) -> list[Path] | None:
    """Download the files; their paths, or None after printing what failed."""
    downloads.fetch("pull", files)
    while not downloads.wait(timeout=_REDRAW_S):
        printer.show(*downloads.snapshots())
    (snapshot,) = downloads.snapshots()
    printer.show(snapshot)
    printer.close()
    errors = [file.error for file in snapshot.files if file.error]
    for error in errors:
        complain(error)
    return None if errors else [file.path for file in snapshot.files if file.path]


def _say_what_drafts(paths: list[Path], hub: Hub, listing: RemoteRepo, remote: ModelFiles) -> None:
    """What a model that was downloaded alone drafts with, on standard error; if nothing does, what
    in its repository would."""
    from eaglechat.gguf.header import GGUFError
    from eaglechat.hub.downloads.find_drafts import what_helps
    from eaglechat.hub.errors import HubError
    from eaglechat.hub.local import library
    from eaglechat.tui.texts.drafting import about, of_model

    for model in library.look_at(paths[:1]):
        drafters = library.drafters_of(model, ())
        said = about(model, drafters) or f"{model.kind.value}: {of_model(model, drafters)}"
        print(f"{model.name}: {said}", file=sys.stderr)
        if drafters or model.header is None or not model.is_target:
            continue
        # The model is here: what else there is must not fail the command.
        with suppress(HubError, GGUFError):
            if (helps := what_helps(hub, listing, remote, model.header)) is not None:
                print(helps, file=sys.stderr)


def _drop_damaged(hub: Hub, files: Iterable[RemoteFile]) -> None:
    from eaglechat.hub.local.cache import RepoCache, matches_etag

    for file in files:
        cache = RepoCache(hub.cache_dir, file.repo)
        path = cache.find(file.path, file.revision)
        if path is not None and not matches_etag(path, file.sha256):
            complain(f"{file.name} is damaged; downloading it again")
            cache.delete(path)
