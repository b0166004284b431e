"""Options that several commands have, each group as one decorator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from daskgp.errors import SettingError

MODELS = (
    "sgpr",
    "lma",
    "pic",
    "vecchia",
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

AUTO = "auto"
"""Name of the model that chooses one of the methods."""

F = TypeVar("F", bound=Callable[..., Any])


def _added(command: F, *options: Callable[[F], F]) -> F:
    """Add options to a command, which its help lists in this order."""
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


def estimator_options(command: F) -> F:
    """Add ``--model``, ``--mean``, ``--set`` and ``--config`` to a command."""
    return _added(
        command,
        click.option(
            "--model",
            metavar="NAME",
            help=f"Method: auto, which chooses one, {', '.join(MODELS[:-1])} or {MODELS[-1]}.  "
            "[default: auto]",
        ),
        click.option(
            "--mean",
            metavar="MEAN",
            help="Mean function: zero, constant, linear, ols, or columns of a trend: a,b.  "
            "[default: constant]",
        ),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of the model, such as n_inducing=512; wins over --config. Repeatable.",
        ),
        click.option(
            "--config", metavar="FILE", help="TOML file: model at its top, settings in [settings]."
        ),
    )


def search_options(command: F) -> F:
    """Add ``--time-budget``, ``--memory``, ``--task`` and ``--metric``, of model auto alone."""
    return _added(
        command,
        click.option(
            "--time-budget",
            metavar="TIME",
            help="Of auto: time of search and fit, such as 10min or 600 (seconds).  "
            "[default: 5min]",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Of auto: most memory of a process, such as 4GiB.  [default: what there is]",
        ),
        click.option(
            "--task",
            type=click.Choice(["interpolate", "gaps", "forecast"]),
            help="Of auto: what predictions are for.  [default: interpolate]",
        ),
        click.option(
            "--metric",
            type=click.Choice(["nlpd", "crps", "rmse"]),
            help="Of auto: the score that decides.  [default: nlpd]",
        ),
    )


def lock_options(command: F) -> F:
    """Add ``--wait`` and ``--clear-lock`` to a command, as arguments of these names."""
    return _added(
        command,
        click.option(
            "--wait",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="SECONDS",
            help="Wait for another run on the same store to end.  [default: stop at once]",
        ),
        click.option(
            "--clear-lock",
            is_flag=True,
            help="Take over the lock that a dead run left; that of a live one stays.",
        ),
    )


def geographic_option(command: F) -> F:
    """Add ``--geographic`` to a command, as the argument ``geographic``."""
    return _added(
        command,
        click.option(
            "--geographic",
            metavar="LON,LAT",
            help="Features that are longitude and latitude, or none.  [default: as the source, or "
            "a fitted MODEL, says]",
        ),
    )


def column_options(command: F) -> F:
    """Add ``--features`` and what else names columns of a source to a command."""
    return _added(
        command,
        click.option("--features", metavar="A,B,C", help="Columns of X.  [default: all others]"),
        click.option("--y-std", metavar="NAME", help="Column of the target's standard errors."),
        click.option(
            "--y-variance", metavar="NAME", help="Column of the target's error variances."
        ),
        click.option("--weight", metavar="NAME", help="Column of the rows' weights."),
        click.option(
            "--mask",
            metavar="NAME",
            help="Of a grid: leave out cells where this variable is NaN, false or an integer 0.",
        ),
        geographic_option,
        click.option(
            "--dates",
            metavar="A,B",
            help="Features that are dates written as numbers, such as 20210131, or none.  "
            "[default: times by their names with valid dates]",
        ),
    )


ROLES = {"model": "MODEL", "destination": "the output"}
"""Stores of a command whose options may differ from those of the others."""


def store_options(*arguments: str, **roles: str) -> Callable[[F], F]:
    """Add ``--storage-options`` for the addresses in some arguments of a command, which uses them.

    ``roles`` are arguments with options of their own: ``model="model_store"`` adds
    ``--model-options``.  A function is called with the arguments that are addresses.
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            from daskgp.cli.settings import plain_settings
            from daskgp.data.stores import remote

            texts = {role: given.pop(f"{role}_options") for role in ("storage", *roles)}
            taken = roles_of(given)
            settings = []
            for role, assignments in texts.items():
                option = f"--{role}-options"
                options = plain_settings(assignments, option, "anon=true")
                settings.append((option, options, taken[role]))
            with remote.given(remote.chosen(*settings)):
                return command(**given)

        def roles_of(given: dict[str, Any]) -> dict[str, list[str]]:
            """Return addresses by roles; the last one of INPUT and OUTPUT is the output."""
            found = {role: given.get(name) or given.get("inputs") for role, name in roles.items()}
            every = list(given.get("sources", ()))
            every += [given.get(name) for name in (*arguments, *roles.values())]
            alone = {role: [one] for role, one in found.items() if one is not None}
            return {"storage": [one for one in every if one is not None], **alone}

        options = [
            click.option(
                f"--{role}-options",
                multiple=True,
                metavar="KEY=VALUE",
                help=f"The same for {ROLES[role]}, where it needs others. Repeatable.",
            )
            for role in roles
        ]
        storage = click.option(
            "--storage-options",
            multiple=True,
            metavar="KEY=VALUE",
            help="Option of the remote file systems, such as anon=true. Repeatable.",
        )
        wrapped: Any = _added(run, storage, *options)
        made: F = wrapped
        return made

    return decorate


def grid_options(command: F) -> F:
    """Add ``--mask``, ``--variance``, ``--quantiles`` and ``--exceedance`` to a command."""
    return _added(
        command,
        click.option(
            "--mask",
            metavar="NAME",
            help="Of a grid: leave out cells where this variable is NaN, false or an integer 0.",
        ),
        click.option("--variance", is_flag=True, help="Of a grid: also the variance of y."),
        click.option(
            "--quantiles",
            metavar="A,B",
            help="Of a grid: also quantiles of y at these levels, such as 0.05,0.95.",
        ),
        click.option(
            "--exceedance",
            type=float,
            metavar="T",
            help="Of a grid: also the probability that y exceeds T.",
        ),
    )


def sample_options(command: F) -> F:
    """Add ``--samples`` and ``--seed`` to a command."""
    for decorate in (
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            metavar="K",
            help="Seed of --samples.  [default: 0]",
        ),
        click.option(
            "--samples",
            type=click.IntRange(min=1),
            metavar="N",
            help="Also N sample paths of f, the same functions in every chunk.",
        ),
    ):
        command = decorate(command)
    return command


def new_grid_options(command: F) -> F:
    """Add ``--like``, ``--resolution`` and ``--extent`` to a command."""
    return _added(
        command,
        click.option(
            "--like",
            metavar="GRID",
            help="Instead of INPUT, a grid with the coordinates of this one.",
        ),
        click.option(
            "--resolution",
            metavar="A=STEP,...",
            help="Instead of INPUT, a grid with these steps: lon=0.25,lat=0.25.",
        ),
        click.option(
            "--extent",
            metavar="A=LOW:HIGH,...",
            help="Ends of axes, or a single value: lon=-10:30,depth=5.  [default: of the training "
            "data]",
        ),
    )


TIME = r"\d{4}-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d*)?)?)?)?)?"
"""A date, or one with a time of day."""


def steps_of(text: str | None) -> dict[str, float]:
    """Return resolutions by name."""
    pairs = _pairs("--resolution", text, "A=STEP")
    return {name: _number("--resolution", value) for name, value in pairs}


def extents_of(text: str | None) -> dict[str, tuple[float | str, float | str]]:
    """Return ends of axes by name, dates as text."""
    found = {}
    for name, value in _pairs("--extent", text, "A=LOW:HIGH"):
        low, high = _ends(value)
        found[name] = (numeric(low), numeric(high))
    return found


def _ends(text: str) -> tuple[str, str]:
    """Return the ends that a text separates by a colon; times of day have colons, too."""
    cuts = [cut.start() for cut in re.finditer(":", text)]
    for cut in cuts:
        low, high = text[:cut], text[cut + 1 :]
        if re.fullmatch(TIME, low) and re.fullmatch(TIME, high):
            return low, high
    if not cuts or re.fullmatch(TIME, text):
        return text, text
    low, _, high = text.partition(":")
    return low, high or low


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


def fill_option(command: F) -> F:
    """Add ``--fill`` to a command, as the argument ``fill``."""
    return _added(
        command,
        click.option(
            "--fill",
            multiple=True,
            metavar="VALUE",
            help="A number that stands for missing values, such as -9999; none takes all numbers "
            "for measurements. Repeatable.  [default: auto]",
        ),
    )


def fill_values(texts: Sequence[str]) -> Any:
    """Return the setting that ``--fill`` gives."""
    if not texts:
        return "auto"
    if [*texts] == ["none"]:
        return None
    return [_number("--fill", text) for text in texts]


def json_option(command: F) -> F:
    """Add ``--json`` to a command that prints tables, as the argument ``as_json``."""
    return _added(
        command,
        click.option(
            "--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables."
        ),
    )


def device_option(command: F) -> F:
    """Add ``--device`` to a command, as the argument ``device``."""
    return _added(
        command,
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "gpu"]),
            help="Where to compute.  [default: as the model was fitted]",
        ),
    )


def cluster_options(command: F) -> F:
    """Add ``--scheduler``, ``--workers`` and ``--memory-limit``, as arguments of these names."""
    return _added(
        command,
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler to use, such as tcp://host:8786, instead of a local cluster.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Local worker processes of one thread.  [default: one per core]",
        ),
        click.option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory of each local worker, such as 2GiB.  [default: its share]",
        ),
    )
