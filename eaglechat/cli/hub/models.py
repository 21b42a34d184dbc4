"""List the models on this machine and the pairs of the catalogue."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from eaglechat.cli.hub.here import on_this_machine
from eaglechat.cli.status import OK, complain
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.newer import newer
from eaglechat.hub.errors import HubError
from eaglechat.hub.local import installed, library
from eaglechat.hub.local.library import drafters_of
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair, none_here
from eaglechat.hub.units import format_bytes
from eaglechat.words.drafting import about, of_model
from eaglechat.words.tables import aligned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--newer", action="store_true", help="ask the Hub which models have a newer version"
    )


def run(args: argparse.Namespace) -> int:
    models, pairs = on_this_machine()
    known = [*models, library.built_in_draft()]
    newer = _newer(models) if args.newer else set()
    if args.json:
        document = {
            "models": [
                _model(m, known) | ({"newer": m.name in newer} if args.newer else {})
                for m in models
            ],
            "pairs": [_pair(pair) for pair in pairs],
        }
        print(json.dumps(document, indent=2))
        return OK
    _print_models(models, known, installed.converted_checkpoints(pairs), newer)
    print()
    _print_pairs(pairs)
    return OK


def _newer(models: Sequence[LocalModel]) -> set[str]:
    """The names of the models of which the Hub has another version; a complaint if it cannot be
    asked."""
    try:
        return newer(Hub(), models)
    except HubError as error:
        complain(str(error))
        return set()


def _model(model: LocalModel, models: Sequence[LocalModel]) -> dict[str, Any]:
    header = model.header
    return {
        "name": model.name,
        "kind": model.kind.value,
        "source": model.source.value,
        "also": [one.name for one in model.also],
        "path": str(model.path),
        "files": [str(file) for file in model.files],
        "size_bytes": model.size_bytes,
        "repo": model.repo,
        "architecture": header.architecture if header else None,
        "quantization": header.quantization if header else None,
        "context_length": header.n_ctx_train if header else None,
        "drafters": drafters_of(model, models),
        "problem": model.problem,
    }


def _pair(pair: CataloguePair) -> dict[str, Any]:
    entry = pair.entry
    return {
        "name": entry.name,
        "title": entry.title,
        "state": pair.state,
        "base_model": entry.base_model,
        "target": str(entry.target),
        "draft": str(entry.draft) or None,
        "converts": bool(entry.draft.checkpoint),
        "target_path": str(pair.target) if pair.target else None,
        "draft_path": str(pair.draft) if pair.draft else None,
        "licence": entry.licence or None,
        "acceptance": entry.acceptance or None,
        "note": entry.note or None,
    }


def _print_models(
    models: Sequence[LocalModel],
    known: Sequence[LocalModel],
    converted: Collection[Path],
    newer: Collection[str],
) -> None:
    if not models:
        print(f"{none_here()} `eaglechat pull` downloads more.")
        return
    print("On this machine")
    found = [(model, drafters_of(model, known)) for model in models]
    rows = [
        (m.name, m.kind.value, of_model(m, drafts), format_bytes(m.size_bytes), m.source.value)
        for m, drafts in found
    ]
    for line, one in zip(aligned(rows), found, strict=True):
        print(f"  {line}")
        model = one[0]
        said = [about(*one)]
        if model.also:
            others = ", ".join(f"{other.name} ({other.source.value})" for other in model.also)
            said.append(f"The same as {others}.")
        if model.path in converted:
            said.append(f"Its draft is converted; `eaglechat remove {model.name}` deletes this.")
        if model.name in newer:
            said.append(f"Newer on the Hub; `eaglechat pull {model.name}` downloads it.")
        if any(said):
            print(f"    {' '.join(filter(None, said))}")
    print(f"  {format_bytes(sum(model.disk_bytes for model in models))} in all")


def _print_pairs(pairs: Sequence[CataloguePair]) -> None:
    print("Pairs of the catalogue (`eaglechat pull NAME` downloads one)")
    rows = [
        (
            pair.name,
            pair.state,
            "download + convert" if pair.entry.draft.checkpoint else "download",
            pair.entry.licence,
        )
        for pair in pairs
    ]
    for line in aligned(rows):
        print(f"  {line}")
