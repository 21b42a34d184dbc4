"""Download a model, or a pair of the catalogue with its draft."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from eaglechat import paths
from eaglechat.cli.loading import machine_of_engine
from eaglechat.cli.parsing import did_you_mean
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import (
    FAILED,
    INTERRUPTED,
    OK,
    WrongUsageError,
    complain,
    report,
)
from eaglechat.hub import catalogue, fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install, targets
from eaglechat.hub.downloads.client import Hub, RemoteRepo
from eaglechat.hub.downloads.download import FileSnapshot
from eaglechat.hub.downloads.find_drafts import checkpoint_files, pair_up
from eaglechat.hub.downloads.queue import Downloads, Install
from eaglechat.hub.errors import OfflineError
from eaglechat.hub.fit import Machine
from eaglechat.hub.local import installed, library
from eaglechat.hub.local.pairs import BUILTIN_NAME, Pair
from eaglechat.hub.references import (
    InvalidReferenceError,
    ModelFiles,
    ModelSource,
    choose,
    group_models,
    parse,
)
from eaglechat.hub.units import format_bytes, format_seconds
from eaglechat.settings import config_file
from eaglechat.words.drafting import about, of_model
from eaglechat.words.neutral import neutralise
from eaglechat.words.tables import aligned

_REDRAW_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reference",
        metavar="REF",
        help="a pair of the catalogue (see `eaglechat models`), user/repo, user/repo:Q4_K_M, "
        "user/repo/file.gguf, or an address on the Hub; a draft's checkpoint comes with its target",
    )
    parser.add_argument(
        "--draft",
        metavar="REF",
        help="the draft to download for this target, which may be a file here: a GGUF on the Hub, "
        "or a checkpoint to convert",
    )


def run(args: argparse.Namespace) -> int:
    entries, problems = catalogue.load()
    report(problems)
    downloads = Downloads(Hub())
    with closing(Progress()) as progress:
        try:
            return _pull(args, downloads, progress, entries)
        except InvalidReferenceError as error:
            near = did_you_mean(args.reference, [entry.name for entry in entries])
            if not near:
                raise
            raise WrongUsageError(f"{str(error).rstrip('.')}{near}") from error
        except KeyboardInterrupt:
            downloads.close()
            progress.close()
            complain("interrupted; what was downloaded stays, and pulling again resumes")
            return INTERRUPTED


def _pull(
    args: argparse.Namespace,
    downloads: Downloads,
    progress: Progress,
    entries: Sequence[CatalogueEntry],
) -> int:
    hub = downloads.hub
    if args.draft is not None:
        return _pull_pair(downloads, _with_draft(args, hub, entries), progress, is_new=True)
    entry = next((one for one in entries if one.name == args.reference), None)
    if entry is not None:
        return _pull_pair(downloads, entry, progress)
    if args.reference == BUILTIN_NAME:
        raise WrongUsageError(f"{BUILTIN_NAME} is built in: there is nothing to download")
    reference = parse(args.reference)
    if reference.path:
        raise WrongUsageError(
            f"{reference.path} is a path on this machine: there is nothing to download"
        )
    try:
        listing = hub.repo(reference.repo, reference.revision)
    except OfflineError:
        model = library.locate(library.files_here(cache=hub.cache_dir), reference)
        if model is None:
            raise
        print(model.path)
        return OK
    if not group_models(listing.paths) and checkpoint_files(listing):
        return _pull_pair(downloads, _of_checkpoint(listing, hub, entries), progress)
    return _pull_model(downloads, listing, _choose(reference, listing, hub), progress)


def _with_draft(
    args: argparse.Namespace, hub: Hub, entries: Sequence[CatalogueEntry]
) -> CatalogueEntry:
    """The pair of a target and the draft of --draft."""
    reference = parse(args.draft)
    if reference.path:
        raise InvalidReferenceError(
            f"{args.draft} is a path on this machine: `eaglechat run --target TARGET --draft "
            f"{args.draft}` loads it"
        )
    known = installed.statuses(entries, library.files_here(cache=hub.cache_dir))
    way = targets.draft_of(hub.repo(reference.repo, reference.revision), reference)
    return pair_up(targets.named(hub, args.reference, known, (), _choose), way, known)


def _of_checkpoint(
    listing: RemoteRepo, hub: Hub, entries: Sequence[CatalogueEntry]
) -> CatalogueEntry:
    """The pair of a checkpoint and its target: the catalogue's, or a model on this machine that it
    was made for. Raises InvalidReferenceError, with what the Hub has of it, if there is none."""
    for entry in entries:
        if entry.draft.checkpoint == listing.repo:
            return entry
    folders = config_file.load(paths.config_file())[0].library.folders
    models = library.scan(folders, hub.cache_dir)
    known = installed.statuses(entries, models)
    bases, hits = targets.of_draft(hub, listing, known)
    for model in models:
        target = targets.of_model(model, known) if model.is_target else None
        if target is not None and set(bases) & {*target.base_models, target.repo}:
            return pair_up(target, targets.draft_of(listing, ModelSource(repo=listing.repo)), known)
    made_for = f" for {', '.join(bases)}" if bases else ""
    some = ", ".join(hit.repo for hit in hits[:3])
    raise InvalidReferenceError(
        f"{listing.repo} is a draft{made_for}, and its target is not on this machine: name it with "
        f"`eaglechat pull TARGET --draft {listing.repo}`"
        + (f"; the Hub has {some}" if some else "")
    )


def _pull_model(
    downloads: Downloads, listing: RemoteRepo, chosen: ModelFiles, progress: Progress
) -> int:
    files = [listing.file(name) for name in chosen.files]
    downloads.fetch("pull", files)
    snapshot = _follow(downloads, progress)
    paths = [file.path for file in snapshot.files if file.path]
    if len(paths) < len(files):
        return FAILED
    _say_what_drafts(paths[0], f"{listing.repo}/{chosen.first}")
    print(paths[0])
    return OK


def _choose(reference: ModelSource, listing: RemoteRepo, hub: Hub) -> ModelFiles:
    """What the reference names; of a model with several quantisations, if it names none, the one
    to take on this machine. Standard error gets what each needs here."""
    weighed = install.left_open(hub, listing, reference)
    machine = _machine() if weighed else None
    best = fit.best(weighed, machine)
    rows = []
    for one in weighed:
        judged = fit.judge(one.need, machine)
        size = format_bytes(one.need.target_weights)
        said = ", ".join(filter(None, (judged.word, judged.text)))
        rows.append((f"{'▸' if one is best else ' '} {one.name}", size, said))
    for line in aligned(rows, right=(1,)):
        print(neutralise(line), file=sys.stderr)
    return best.model if best else choose(reference, listing.paths)


def _machine() -> Machine:
    return machine_of_engine(config_file.load(paths.config_file())[0])


def _pull_pair(
    downloads: Downloads, entry: CatalogueEntry, progress: Progress, *, is_new: bool = False
) -> int:
    hub = downloads.hub
    try:
        machine = _machine() if entry.target.is_open else None
        plan = install.plan(hub, entry, machine)
        install.check_draft(hub, plan, is_new=is_new)
        install.check_access(hub, plan)
    except OfflineError:
        here = installed.status(entry, hub.cache_dir)
        if here.pair is None:
            raise
        _print_pair(here.pair)
        return OK
    is_added = catalogue.remember(entry)
    downloads.install(plan)
    if is_added:
        complain(f"the pair is {entry.name}: `eaglechat run --pair {entry.name}` loads it")
    snapshot = _follow(downloads, progress)
    if snapshot.pair is None:
        return FAILED
    for note in snapshot.notes:
        complain(f"note: {note}")
    _print_pair(snapshot.pair)
    return OK


def _print_pair(pair: Pair) -> None:
    print(*filter(None, (pair.target, pair.draft)), sep="\n")


def _follow(downloads: Downloads, progress: Progress) -> Install:
    """Show the progress of the one install until it ends, and what failed."""
    while not downloads.wait(timeout=_REDRAW_S):
        show_install(progress, *downloads.snapshots())
    (snapshot,) = downloads.snapshots()
    show_install(progress, snapshot)
    progress.close()
    if snapshot.error:
        complain(snapshot.error)
    return snapshot


def show_install(progress: Progress, install: Install) -> None:
    """Its files, then its conversion."""
    if install.stage == "converting":
        step = "converting" if install.bytes_total else "looking at the files"
        progress.show_bytes(step, install.bytes_done, install.bytes_total)
        return
    for file in install.files:
        remote, done, state = file.remote, file.bytes_done, file.note or file.state
        name = remote.path.rpartition("/")[2]
        if file.state == "downloading" and not file.note:
            progress.show_bytes(name, done, remote.size, _pace(file), key=remote, state=state)
            continue
        text = f"done, {format_bytes(remote.size)}" if file.state == "done" else state
        progress.show(name, done, remote.size, text, key=remote, state=state)
    if progress.live and len(install.files) > 1:
        progress.show_bytes("total", install.bytes_done, install.bytes_total, _pace(install))


def _pace(moving: Install | FileSnapshot) -> str:
    speed = f"  {format_bytes(moving.speed)}/s" if moving.speed is not None else ""
    return speed + (f"  {format_seconds(moving.eta)} left" if moving.eta is not None else "")


def _say_what_drafts(path: Path, name: str) -> None:
    """What a model that was downloaded alone drafts with, on standard error."""
    model = library.look_at(path)
    drafters = library.drafters_of(model, ())
    said = about(model, drafters) or f"{model.kind.value}: {of_model(model, drafters)}"
    if model.is_target and not drafters:
        said += f" `eaglechat drafts {name}` looks for one."
    print(f"{model.name}: {said}", file=sys.stderr)
