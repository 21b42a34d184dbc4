"""Start the terminal app."""

from __future__ import annotations

import argparse
import os
import sys

from eaglechat import paths
from eaglechat.cli import options
from eaglechat.cli.status import OK, CommandError
from eaglechat.settings.model import TABLES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_pair_options(parser)
    options.add_server_options(parser)
    options.add_setting_options(parser, *TABLES)


def run(args: argparse.Namespace) -> int:
    options.check_pair(args)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            "the chat needs a terminal; for pipes and scripts there is eaglechat run"
        )
    if os.environ.get("TERM") == "dumb":
        raise CommandError(
            "the chat needs a terminal that moves its cursor, and this one says that it does not "
            "(TERM=dumb); eaglechat run writes plain text"
        )
    # --help needs none of these.
    from eaglechat.cli.loading import engine_link
    from eaglechat.cli.pairs import chosen_pair, served_pair
    from eaglechat.hub.local.pair_library import PairLibrary
    from eaglechat.tui.app import EagleApp

    settings, problems = options.load_settings(args)
    library = PairLibrary(paths.state_dir())
    start = served_pair(args, settings) or chosen_pair(args, library)
    app = EagleApp(
        settings=settings,
        problems=problems,
        engine=engine_link(settings, paths.engine_log()),
        pairs=library,
        config_file=paths.config_file(),
        chats_file=paths.chats_file(),
        theme_dirs=(paths.builtin_themes_dir(), paths.user_themes_dir()),
        start=start,
        n_draft_max=options.overrides(args).get("speculation.n_draft_max"),
    )
    app.run()
    return app.return_code or OK
