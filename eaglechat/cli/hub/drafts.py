"""Find everything that can draft for a model: its own heads, drafts here and on the Hub."""

from __future__ import annotations

import argparse
import json
from contextlib import closing, suppress
from typing import Any

from eaglechat import paths
from eaglechat.cli.hub.here import on_this_machine
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import OK, complain
from eaglechat.hub.downloads import targets
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.find_drafts import Found, Target, Way, find_drafts
from eaglechat.hub.local import library
from eaglechat.hub.local.pair_library import NotInstalledError, PairLibrary
from eaglechat.hub.units import format_bytes
from eaglechat.words import ways


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a GGUF on this machine, a pair (see `eaglechat models`), user/repo:Q4_K_M, "
        "user/repo/file.gguf, or an address on the Hub",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    models, known = on_this_machine()
    models.append(library.built_in_draft())
    hub, pair = Hub(), None
    with closing(Progress(vanish=True)) as bars:
        with suppress(NotInstalledError):
            pair = PairLibrary(paths.state_dir()).find(args.model)
        text = str(pair.target) if pair is not None else args.model
        bars.show(f"Reading {args.model}…", 0, None)
        target = targets.named(hub, text, known, models)
        for found in find_drafts(hub, target, known, models):
            if found.asking:
                bars.show(found.asking, 0, None)
    if args.json:
        print(json.dumps(_document(found), indent=2))
    else:
        _print(found)
    if found.trouble:
        complain(found.trouble)
    return OK


def _document(found: Found) -> dict[str, Any]:
    target = found.target
    return {
        "target": {
            "name": target.name,
            "path": str(target.path) if target.path else None,
            "repo": target.repo or None,
            "base_models": target.base_models,
            "architecture": target.header.architecture if target.header else None,
        },
        "ways": [_way(target, way) for way in found.ways],
        "problem": found.trouble or None,
    }


def _way(target: Target, way: Way) -> dict[str, Any]:
    return {
        "where": way.where,
        "drafter": "ngram" if way.where == "n_grams" else way.kind,
        "fits": way.fits,
        "problem": way.problem,
        "warning": way.warning,
        "note": way.note or None,
        "repo": way.repo or None,
        "files": way.files,
        "path": str(way.path) if way.path else None,
        "size_bytes": way.size_bytes or None,
        "converts": way.is_checkpoint and way.needs_download,
        "licence": way.licence,
        "gated": way.gated,
        "reported": way.reported or None,
        "command": ways.command(target, way) or None,
    }


def _print(found: Found) -> None:
    target = found.target
    about = []
    if (header := target.header) is not None:
        size = format_bytes(header.size_bytes)
        about.append(f"{header.architecture} {header.quantization} {size}")
    about += [f"made from {', '.join(target.base_models)}"] if target.base_models else []
    print(f"{target.name}  {', '.join(about)}".rstrip())
    for way in found.ways:
        mark = {True: "●", None: "?", False: "✗"}[way.fits]
        print(f"\n{mark} {ways.name(way)}  {ways.facts(way)}".rstrip())
        print(f"    {ways.judgement(way)}")
        if way.reported:
            print(f"    reported: {way.reported}")
        if command := ways.command(target, way):
            print(f"    {command}")
