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


def grid_options(command: F) -> F:
    """Add ``--mask``, ``--variance``, ``--quantiles`` and ``--exceedance`` to a command."""
    for decorate in (
        click.option(
            "--exceedance",
            type=float,
            metavar="T",
            help="Of a grid: also the probability that y exceeds T.",
        ),
        click.option(
            "--quantiles",
            metavar="A,B",
            help="Of a grid: also quantiles of y at these levels, such as 0.05,0.95.",
        ),
        click.option("--variance", is_flag=True, help="Of a grid: also the variance of y."),
        click.option(
            "--mask",
            metavar="NAME",
            help="Of a grid: leave out cells where this variable is NaN, false or an integer 0.",
        ),
    ):
        command = decorate(command)
    return command


def new_grid_options(command: F) -> F:
    """Add ``--like``, ``--resolution`` and ``--extent`` to a command."""
    for decorate in (
        click.option(
            "--extent",
            metavar="A=LOW:HIGH,...",
            help="Ends of axes, or a single value: lon=-10:30,depth=5.  [default: of the training "
            "data]",
        ),
        click.option(
            "--resolution",
            metavar="A=STEP,...",
            help="Instead of INPUT, a grid with these steps: lon=0.25,lat=0.25.",
        ),
        click.option(
            "--like",
            metavar="GRID",
            help="Instead of INPUT, a grid with the coordinates of this one.",
        ),
    ):
        command = decorate(command)
    return command


def steps_of(text: str | None) -> dict[str, float]:
    """Return resolutions by name."""
    pairs = _pairs("--resolution", text, "A=STEP")
    return {name: _number("--resolution", value) for name, value in pairs}


def extents_of(text: str | None) -> dict[str, tuple[float, float]]:
    """Return ends of axes by name."""
    found = {}
    for name, value in _pairs("--extent", text, "A=LOW:HIGH"):
        low, _, high = value.partition(":")
        found[name] = (_number("--extent", low), _number("--extent", high or low))
    return found


def _pairs(option: str, text: str | None, form: str) -> list[tuple[str, str]]:
    parts = [] if text is None else [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in parts):
        raise SettingError(f"{option} is {text!r}: give {form}, separated by commas")
    return [(name.strip(), value.strip()) for name, _, value in parts]


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingError(f"{option} has {text!r}, a number is needed") from None


def numeric(text: str) -> float | str:
    """Return the number that a text is, or the text for an error that names it."""
    try:
        return float(text)
    except ValueError:
        return text


def geographic_option(command: F) -> F:
    """Add ``--geographic`` to a command, as the argument ``geographic``."""
    decorate = click.option(
        "--geographic",
        metavar="LON,LAT",
        help="Features that are longitude and latitude, or none.  [default: as SOURCE says]",
    )
    return decorate(command)


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
