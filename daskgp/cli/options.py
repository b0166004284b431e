"""Options that several commands have, each group as one decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from daskgp.errors import SettingError

MODELS = (
    "sgpr",
    "lma",
    "pic",
    "experts",
    "opticom",
    "cagp",
    "cggp",
    "decoupled",
    "svgp",
    "ssgp",
    "exact",
)
"""Names of the methods, known without the imports of their estimators."""

F = TypeVar("F", bound=Callable[..., Any])


def estimator_options(command: F) -> F:
    """Add ``--model``, ``--set`` and ``--config`` to a command."""
    for decorate in (
        click.option(
            "--config", metavar="FILE", help="TOML file: model at its top, settings in [settings]."
        ),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the model, such as n_inducing=512; wins over --config. Repeatable.",
        ),
        click.option(
            "--model",
            metavar="NAME",
            help=f"Method: {', '.join(MODELS[:-1])} or {MODELS[-1]}.",
        ),
    ):
        command = decorate(command)
    return command


def refuse_no_model(model: str | None, config: str | None) -> None:
    """Raise SettingError if nothing names a method, before seconds of imports."""
    if model is None and config is None:
        raise SettingError(f"no model is given: add --model with one of {', '.join(MODELS)}")


def lock_options(command: F) -> F:
    """Add ``--wait`` and ``--clear-lock`` to a command, as arguments of these names."""
    for decorate in (
        click.option(
            "--clear-lock",
            is_flag=True,
            help="Take over the lock that a dead run left; that of a live one stays.",
        ),
        click.option(
            "--wait",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="SECONDS",
            help="Wait for another run on the same store to end.  [default: stop at once]",
        ),
    ):
        command = decorate(command)
    return command


def storage_options(command: F) -> F:
    """Add ``--storage-options`` and ``--destination-options`` to a command."""
    for decorate in (
        click.option(
            "--destination-options",
            multiple=True,
            metavar="KEY=VALUE",
            help="The same for DESTINATION, where it needs others. Repeatable.",
        ),
        click.option(
            "--storage-options",
            "source_options",
            multiple=True,
            metavar="KEY=VALUE",
            help="Option of the remote file systems, such as anon=true. Repeatable.",
        ),
    ):
        command = decorate(command)
    return command


def device_option(command: F) -> F:
    """Add ``--device`` to a command, as the argument ``device``."""
    decorate = click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "gpu"]),
        help="Where to compute.  [default: as the model was fitted]",
    )
    return decorate(command)


def cluster_options(command: F) -> F:
    """Add ``--scheduler``, ``--workers`` and ``--memory-limit``, as arguments of these names."""
    for decorate in (
        click.option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory of each local worker, such as 2GiB.  [default: its share]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Local worker processes of one thread.  [default: one a core]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler to use, such as tcp://host:8786, instead of a local cluster.",
        ),
    ):
        command = decorate(command)
    return command
