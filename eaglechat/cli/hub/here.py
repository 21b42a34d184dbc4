"""What the commands on models share: what is on this machine, and how errors are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eaglechat import paths
from eaglechat.cli.status import CommandError, WrongUsageError, reason, report
from eaglechat.gguf.header import GGUFError
from eaglechat.hub import catalogue
from eaglechat.hub.errors import ConversionError, HubError
from eaglechat.hub.local import installed, library
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair
from eaglechat.hub.references import InvalidReferenceError
from eaglechat.settings import config_file


def on_this_machine() -> tuple[list[LocalModel], list[CataloguePair]]:
    """The models here, and the pairs of the catalogue. Prints what is wrong in config.toml and
    catalogue.toml."""
    configured, problems = config_file.load(paths.config_file())
    entries, of_catalogue = catalogue.load()
    report((*problems, *of_catalogue))
    models = library.scan(configured.library.folders)
    return models, installed.statuses(entries, models)


@contextmanager
def told() -> Iterator[None]:
    """What the Hub, a file or a name raises is told as the error of a command."""
    try:
        yield
    except InvalidReferenceError as error:
        raise WrongUsageError(str(error).rstrip(".")) from error
    except OSError as error:
        raise CommandError(reason(error)) from error
    except (HubError, GGUFError, ConversionError) as error:
        raise CommandError(str(error)) from error
