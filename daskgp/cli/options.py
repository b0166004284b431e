"""Options that several commands have, each group as one decorator."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.methods import MODELS
from daskgp.cli.run import numeric
from daskgp.errors import SettingError

if TYPE_CHECKING:
    from daskgp.estimators import GaussianProcess
    from daskgp.posterior.posterior import Posterior

F = TypeVar("F", bound=Callable[..., Any])
Options = Sequence[Callable[[F], F]]


def _added(command: F, options: Options[F]) -> F:
    """Add options to a command, which its help lists in this order."""
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


def _as_one(name: str, make: Callable[..., Any], *options: Any) -> Callable[[F], F]:
    """Return what adds options to a command, which gets ``make`` of them as one argument."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            own = {key: given.pop(key) for key in keys}
            return command(**given, **{name: make(**own)})

        wrapped: Any = _added(run, options)
        keys = [option.name for option in wrapped.__click_params__[-len(options) :]]
        made: F = wrapped
        return made

    return decorate


class Model(NamedTuple):
    """Options that describe a model, in the order of `settings.build_estimator`."""

    model: str | None
    assignments: tuple[str, ...]
    config: str | None
    mean: str | None


def estimator_options(auto: str = "auto, which chooses one") -> Callable[[F], F]:
    """Return what adds the options of a model to a command; ``auto`` says what that name means."""
    return _as_one(
        "described",
        Model,
        click.option(
            "--model",
            metavar="NAME",
            help=f"Method: {auto}, {', '.join(MODELS[:-1])} or {MODELS[-1]}.  [default: auto]",
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
            help="Setting of the model, such as n_inducing=512; overrides --config. Repeatable.",
        ),
        click.option(
            "--config",
            metavar="FILE",
            help="TOML file with model at the top and settings under [settings].",
        ),
    )


search_options = _as_one(
    "search",
    dict,
    click.option(
        "--time-budget",
        metavar="TIME",
        help="For auto: time of search and fit, such as 10min or 600 (seconds).  [default: 5min]",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        help="For auto: maximum memory of a process, such as 4GiB.  [default: all available]",
    ),
    click.option(
        "--task",
        type=click.Choice(["interpolate", "gaps", "forecast"]),
        help="For auto: purpose of the predictions.  [default: interpolate]",
    ),
    click.option(
        "--metric",
        type=click.Choice(["nlpd", "crps", "rmse"]),
        help="For auto: score that decides.  [default: nlpd]",
    ),
)


class Lock(NamedTuple):
    """Options of the lock of a store, in the order of `locks.hold`."""

    wait: float
    clear_lock: bool


lock_options = _as_one(
    "lock",
    Lock,
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
        help="Take over the lock of a dead run; that of a live one stays.",
    ),
)

cluster_options = _as_one(
    "cluster",
    Workers,
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

geographic_option = click.option(
    "--geographic",
    metavar="LON,LAT",
    help="Features that are longitude and latitude, or none.  [default: as in the source or "
    "a fitted MODEL]",
)
mask_option = click.option(
    "--mask",
    metavar="NAME",
    help="Variable of a grid: cells where it is NaN, false or an integer 0 are left out; or "
    "a GeoJSON file: rows or cells outside its polygons are.",
)
fill_option = click.option(
    "--fill",
    multiple=True,
    metavar="VALUE",
    help="Number that stands for missing values, such as -9999; none takes all numbers for "
    "measurements. Repeatable.  [default: auto, or as in a fitted MODEL]",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON instead of tables."
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    help="Where to compute.  [default: as the model was fitted]",
)
ignore_option = click.option(
    "--ignore-errors", is_flag=True, help="Leave out y_variance and weight of DATA."
)


BESIDE = (
    click.option(
        "--y-std",
        metavar="NAME",
        help="Column of the target's standard errors; one for each of several targets: a,b.",
    ),
    click.option(
        "--y-variance", metavar="NAME", help="Column of the target's error variances, likewise."
    ),
    click.option("--weight", metavar="NAME", help="Column of the rows' weights."),
    click.option("--trials", metavar="NAME", help="Column of trials, for likelihood=binomial."),
    click.option("--exposure", metavar="NAME", help="Column of exposures, which multiply a rate."),
    click.option(
        "--offset",
        metavar="NAME",
        help="Column of offsets, added to the log of the rate of a count.",
    ),
    click.option(
        "--lower", metavar="NAME", help="Column of lower bounds, for likelihood=censored."
    ),
    click.option(
        "--upper", metavar="NAME", help="Column of upper bounds, for likelihood=censored."
    ),
)
"""Columns that rows of a source have beside the target."""

READ = (
    geographic_option,
    fill_option,
    click.option(
        "--dates",
        metavar="A,B",
        help="Features that are dates written as numbers, such as 20210131, or none.  "
        "[default: columns with the name of a time and valid dates]",
    ),
)
"""Options for reading the features of a source."""


def column_options(
    target: str, features: str = "Columns of X.  [default: all others]", mask: bool = True
) -> Callable[[F], F]:
    """Return what adds ``--target``, with its help, and all that names columns of a source.

    A command without ``mask`` has one of its own.
    """
    return _as_one(
        "columns",
        _columns,
        click.option("--target", metavar="NAME", help=target),
        click.option("--features", metavar="A,B,C", help=features),
        *BESIDE,
        *((mask_option,) if mask else ()),
        *READ,
    )


def _columns(**texts: Any) -> dict[str, Any]:
    """Return names of columns as `convert` takes them."""
    several: dict[str, Any] = {"fill_values": fill_values(texts.pop("fill"))}
    names = "target", "features", "y_std", "y_variance"
    several |= {name: names_or_none(texts[name]) for name in names}
    return texts | several | {name: names_or_false(texts[name]) for name in ("geographic", "dates")}


ROLES = {"model": "MODEL", "destination": "the output"}
"""Stores of a command whose options may differ from those of the others."""


def store_options(*arguments: str, **roles: str) -> Callable[[F], F]:
    """Add ``--storage-options`` for the addresses in some arguments of a command, which uses them.

    ``roles`` are arguments with options of their own: ``model="model_store"`` adds
    ``--model-options``.
    """
    names = {"storage": "", **roles}

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            texts = {role: given.pop(f"{role}_options") for role in names}
            with in_use(texts) if any(texts.values()) else nullcontext():
                return command(**given)

        def in_use(texts: dict[str, Sequence[str]]) -> AbstractContextManager[None]:
            """Return the context in which the options of stores hold."""
            from daskgp.cli.settings import plain_settings
            from daskgp.data.stores import remote

            addresses = addresses_of(click.get_current_context().params)
            settings = []
            for role, assignments in texts.items():
                option = f"--{role}-options"
                chosen = plain_settings(assignments, option, "anon=true")
                settings.append((option, chosen, addresses[role]))
            return remote.given(remote.chosen(*settings))

        def addresses_of(given: dict[str, Any]) -> dict[str, list[str]]:
            """Return addresses by roles; the last one of INPUT and OUTPUT is the output."""
            by_role = {role: given.get(name) or given.get("inputs") for role, name in roles.items()}
            every = [*given.get("sources", ()), *map(given.get, (*arguments, *roles.values()))]
            alone = {role: [one] for role, one in by_role.items() if one is not None}
            return {"storage": [one for one in every if one is not None], **alone}

        help_of = dict.fromkeys(names, "The same for {}, if it needs others. Repeatable.")
        help_of["storage"] = "Option of the remote file systems, such as anon=true. Repeatable."
        options = [
            click.option(
                f"--{role}-options",
                multiple=True,
                metavar="KEY=VALUE",
                help=text.format(ROLES.get(role)),
            )
            for role, text in help_of.items()
        ]
        wrapped: Any = _added(run, options)
        made: F = wrapped
        return made

    return decorate


class Wanted(NamedTuple):
    """Options of the arrays of a prediction, in the order of `job.wanted`."""

    variance: bool
    quantiles: list[float | str] | None
    exceedance: float | list[float | str] | None
    samples: int | None
    seed: int | None


def _wanted(
    quantiles: str | None,
    exceedance: str | None,
    samples: int | None,
    seed: int | None,
    variance: bool,
) -> Wanted:
    if seed is not None and samples is None:
        raise SettingError("--seed belongs to --samples: give both, or neither")
    levels = None if quantiles is None else [numeric(text) for text in names_of(quantiles)]
    limits = None if exceedance is None else [numeric(text) for text in names_of(exceedance)]
    one: Any = limits[0] if limits is not None and len(limits) == 1 else limits
    return Wanted(variance, levels, one, samples, seed)


output_options = _as_one(
    "wanted",
    _wanted,
    click.option("--variance", is_flag=True, help="For a grid: also write the variance of y."),
    click.option(
        "--quantiles",
        metavar="A,B",
        help="For a grid or a csv: also write quantiles of y at these levels, such as 0.05,0.95.",
    ),
    click.option(
        "--exceedance",
        metavar="T",
        help="For a grid or a csv: also write the probability that y exceeds T; for several "
        "targets T,U.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(min=1),
        metavar="N",
        help="Also write N sample paths of f, the same functions in every chunk.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), metavar="K", help="Seed of --samples.  [default: 0]"
    ),
)


def _encoding(
    chunks: str | None, shards: str | None, dtype: str | None, **of_files: Any
) -> Mapping[str, Any]:
    """Return what options say of how a map is stored, as settings."""
    sizes = {"chunks": chunks, "shards": shards}
    given: dict[str, Any] = {
        name: {dim: _cells(f"--{name}", dim, size) for dim, size in pairs}
        for name, pairs in (
            (name, _pairs(f"--{name}", text, "A=CELLS")) for name, text in sizes.items() if text
        )
    }
    rest = {"dtype": dtype, **of_files}
    return given | {name: value for name, value in rest.items() if value is not None}


def _cells(option: str, dim: str, text: str) -> int:
    number = numeric(text)
    if not isinstance(number, float) or number != int(number):
        raise SettingError(f"{option} has {text!r} for {dim!r}: give a number of cells")
    return int(number)


def _encoding_options(types: tuple[str, ...], *more: Any) -> Callable[[F], F]:
    return _as_one(
        "encoding",
        _encoding,
        click.option(
            "--chunks",
            metavar="A=CELLS,...",
            help="For a map: cells of a chunk along each dimension.",
        ),
        click.option(
            "--shards",
            metavar="A=CELLS,...",
            help="For a map: cells of a stored object with several --chunks.",
        ),
        click.option("--dtype", type=click.Choice(types), help="For a map: type of the values."),
        *more,
    )


encoding_options = _encoding_options(("float64", "float32"))
file_encoding_options = _encoding_options(
    ("float64", "float32", "int16"),
    click.option(
        "--scale-factor", type=float, metavar="S", help="Value of one integer step, with int16."
    ),
    click.option(
        "--compression",
        type=click.IntRange(0, 9),
        metavar="LEVEL",
        help="For netCDF: level of compression, 0 for none.  [default: 4]",
    ),
)


class NewGrid(NamedTuple):
    """Options that describe a grid which does not exist."""

    like: str | None
    resolution: str | None
    extent: str | None

    @property
    def given(self) -> list[str]:
        """Return the texts of those that are given."""
        return [text for text in self if text is not None]

    @property
    def steps(self) -> dict[str, float]:
        """Return resolutions by name."""
        steps = {}
        for name, value in _pairs("--resolution", self.resolution, "A=STEP"):
            step = numeric(value)
            if isinstance(step, str):
                raise SettingError(
                    f"--resolution has {value!r} for {name!r}: give a number in the unit of the "
                    "feature, such as 1 for a day or 0.25 for six hours of a time in days"
                )
            steps[name] = step
        return steps

    @property
    def ends(self) -> dict[str, tuple[float | str, float | str]]:
        """Return ends of axes by name, dates as text."""
        pairs = _pairs("--extent", self.extent, "A=LOW:HIGH")
        cut = {name: _ends(value) for name, value in pairs}
        return {name: (numeric(low), numeric(high)) for name, (low, high) in cut.items()}


new_grid_options = _as_one(
    "grid",
    NewGrid,
    click.option(
        "--like",
        metavar="GRID",
        help="Predict on a grid with the coordinates of this one, and its features.",
    ),
    click.option(
        "--resolution",
        metavar="A=STEP,...",
        help="Predict on a grid with these steps: lon=0.25,lat=0.25.",
    ),
    click.option(
        "--extent",
        metavar="A=LOW:HIGH,...",
        help="Ends of axes, or a single value: lon=-10:30,depth=5.  [default: of the training "
        "data]",
    ),
)

# -- reading texts ---------------------------------------------------------------------------

TIME = r"\d{4}-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d*)?)?)?)?)?"
"""A date, or one with a time of day."""


def names_of(text: str) -> list[str]:
    """Return names that commas separate."""
    return [name.strip() for name in text.split(",")]


def names_or_none(text: str | None) -> list[str] | None:
    """Return the columns that an option names; None where it is not given."""
    return None if text is None else names_of(text)


def names_or_false(text: str | None) -> list[str] | bool | None:
    """Return the columns that an option names; False for none of them."""
    none_of_them = text is not None and text.lower() in ("none", "false")
    return False if none_of_them else names_or_none(text)


SETTINGS: dict[str, Any] = {"geographic": None, "fill_values": "auto"}
"""Settings of a model that options about columns give, as these are where they are not given."""


def settings_in(columns: dict[str, Any]) -> dict[str, Any]:
    """Return ``--geographic`` and ``--fill`` as settings of a model, those that are given."""
    return {key: columns[key] for key, unset in SETTINGS.items() if columns[key] != unset}


def fill_values(texts: Sequence[str]) -> Any:
    """Return the setting that ``--fill`` gives."""
    if not texts:
        return "auto"
    if [*texts] == ["none"]:
        return None
    values = [numeric(text) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if isinstance(value, str) or not math.isfinite(value):
            raise SettingError(f"--fill has {text!r}: give a number, or none")
    return values


def read_fills(model: GaussianProcess, setting: Any) -> Posterior:
    """Return the posterior of a loaded model, which reads as missing what ``--fill`` gives, too."""
    if setting != "auto":
        model.set_params(fill_values=setting)
        model._remember(model._fitted.of(model.solved_.reading(setting)))
    return model.solved_


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
