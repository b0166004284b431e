"""Draw the figures of the benchmark pages from the tables of these pages.

    python workflows/benchmarks/figures.py [--to folder]

A figure has no number of its own: its parts are given the tables of its page, in order.  An SVG
names in its metadata, by a digest, the tables that it was drawn from, so that a test can tell when
a table has changed and its figure has not.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click
import drawing
from drawing import Axes, Tables, bar, bars, dots, line, lines, points, turn
from matplotlib.figure import Figure

RULES = (1, 2, 3, 4, 5, 6, 7, 10)  # of combining experts, those printed in the paper left out
TOLD, DRAWS = "errors known|errors not told", "2,048 frequencies|16,384 frequencies"


def fields(ax: Axes, t: Tables) -> None:
    seeds = {f"seed {seed}": t[0].ratio(2, 3)[seed::3] for seed in range(3)}
    dots(ax, t[0].names[::3], seeds, "RMSE of the default ÷ of the truth", 1.0)


def uneven(ax: Axes, t: Tables) -> None:
    found = {t[1].heads[at].split(",")[0]: t[1].ratio(at, 1) for at in (2, 3, 4)}
    dots(ax, t[1].names, found, "RMSE ÷ of the default", 1.0)


def clouds(ax: Axes, t: Tables) -> None:
    found, first = t[0].points(t[0].column(6), t[0].column(2)), t[1].some(0, 2)
    plain = first.points(first.total(7, 8), first.column(3), 1)
    found |= {f"{name}, no setting": place for name, place in plain.items()}
    points(ax, found, "seconds, all together|RMSE, °C", xlim=(9, 2_000))


def stations(ax: Axes, t: Tables) -> None:
    found, sizes = t[0].points(t[0].total(6, 7), t[0].column(1)), ((0.7, 20_000), (2.3, 5.9))
    points(ax, found, "seconds of fit and prediction|RMSE, °C", xlim=sizes[0], ylim=sizes[1])


def globe(ax: Axes, t: Tables, first: int, label: str, right: float | None = None) -> None:
    columns = zip(*(t[0].column(first + n) for n in range(3)), strict=True)
    found = dict(zip(t[0].names, columns, strict=True))
    dots(ax, ["poles", "date line", "elsewhere"], found, label, right)


def appends(ax: Axes, t: Tables, first: int, label: str) -> None:
    names = [f"{n.split(',')[0]}, {what}" for n in t[0].names for what in ("append", "refit")]
    pairs = zip(t[0].column(first), t[0].column(first + 2), strict=True)
    bars(ax, names, [value for pair in pairs for value in pair], label)


def starts(ax: Axes, t: Tables) -> None:
    names = enumerate(("default", "from its end", "from a fifth", "from five times"))
    found = {name: t[0].column(4, part) for part, name in names}
    dots(ax, [""] * len(t[0].names), found, "seconds", log="x")


def times(ax: Axes, t: Tables) -> None:
    found = {t[0].heads[at]: t[0].column(6, at - 3) for at in (3, 4, 5)}
    lines(ax, t[0].column(1), found, "points|processor seconds")


def folds(ax: Axes, t: Tables) -> None:
    found = {"with the factor": t[1].column(2), "without": t[1].column(3)}
    dots(ax, [name.split("(")[0] for name in t[1].names], found, "NLPD")


def scores(ax: Axes, t: Tables, at: int, columns: tuple[int, ...], label: str) -> None:
    dots(ax, t[at].names, t[at].columns(*columns), label, log="x")


def blocks(ax: Axes, t: Tables, at: int, label: str, log: str = "x", **more: Any) -> None:
    found = t[0].turns(at, "summary|gradient")
    lines(ax, t[0].column(0)[::2], found, f"rows of a block|{label}", log, **more)


SCORES: dict[str, tuple] = {  # score, time, and where and what that is
    "tables": (0, 3),
    "tables-nlpd": (1, 3),
    "tools": (3, 6, (0.3, 400), "processor seconds of the fit"),
}
FIGURES: dict[str, tuple] = {  # height in inches, and the parts side by side
    "fields": (4.4, fields, uneven),
    "gaps": (3.6, clouds),
    "speed": (1.8, bar(0, 1, "seconds of a value and gradient"), bar(0, 3, "peak MiB")),
    "race": (3.4, line(1, (1, 2, 3, 4, 5, 6, 7), "seconds|NLPD", "x", ylim=(-0.45, 0.45)),
             bar(0, 5, "peak MiB")),
    "predicting": (3.2, partial(scores, at=0, columns=(1, 2), label="places per second")),
    "scale": (2.8, line(0, 1, "rows|seconds"), line(0, 3, "rows|peak MiB", "x", ylim=(0, 800))),
    "stations": (2.8, stations),
    "globe": (2.8, partial(globe, first=1, label="RMSE"),
              partial(globe, first=4, label="coverage of 95 %", right=0.95)),
    "error-bars": (2.8, turn(0, 3, TOLD, "RMSE of the field"), turn(0, 4, TOLD, "coverage", 0.95)),
    "updates": (2.1, partial(appends, first=1, label="seconds"),
                partial(appends, first=2, label="MiB read")),
    "paths": (2.8, turn(0, 3, DRAWS, "covariances, in standard errors", 3.3),
              turn(0, 4, DRAWS, "largest difference, % of the prior variance")),
    "folds": (2.6, bar(0, 1, "RMSE, °C"), folds),
    "training": (3.2, bar(0, 3, "nats that the default lacks"), starts),
    "experts": (3.8, line(0, RULES, "experts|RMSE", "x"), line(1, RULES, "experts|NLPD", "x"),
                line(1, RULES, "experts|seconds", part=1)),
    "opticom": (3.2, line(0, (3, 4, 5), "level|RMSE", "y"), times),
    "cagp": (2.6, bar(2, 1, "seconds of a value and gradient"),
             line(3, 1, "rows|seconds an iteration", "x", ylim=(0, 16))),
    "cagp-inducing": (2.8, line(5, (1, 2, 3, 4), "features|lengthscales to the nearest row", ""),
                      line(6, (1, 2, 3), "features|variance of f ÷ of y", "")),
    "variational": (3.8, bar(0, 1, "seconds of a step"),
                    line(1, (1, 2), "functions of the mean|seconds of a step", rows=5)),
    "variational-scores": (2.8, partial(scores, at=2, columns=(1, 2, 3, 4), label="nMSE")),
    "variational-curves": (2.8, line(3, (1, 2, 3), "steps|nMSE", "xy"),
                           line(4, (1, 2), "steps|bound per row", "x")),
    "lma-rows": (2.9, line(0, (1, 2, 3, 4), "rows|RMSE", "xy"),
                 line(0, (5, 6, 7, 8), "rows|seconds", "xy")),
    "lma-blocks": (2.9, partial(blocks, at=3, label="milliseconds", log="xy"),
                   partial(blocks, at=5, label="share of the matrix product", ylim=(0, 1)),
                   partial(blocks, at=6, label="share of the Cholesky factor", ylim=(0, 1))),
}  # fmt: skip


def draw(name: str) -> Figure:
    """Return a figure by its name."""
    t = drawing.tables(page_of(name))
    if name in SCORES:
        return drawing.every_table(t, *SCORES[name])
    return drawing.beside(t, *FIGURES[name])


def page_of(name: str) -> str:
    """Return the page that a figure belongs to: its name may say more."""
    own = next(
        (end for end in ("-nlpd", "-scores", "-inducing", "-curves") if name.endswith(end)), ""
    )
    return name.removesuffix(own)


@click.command(help=__doc__)
@click.option("--to", type=click.Path(path_type=Path), default=drawing.DRAWN)
def main(to: Path) -> None:
    for name in (*SCORES, *FIGURES):
        drawing.save(draw(name), page_of(name), to / f"{name}.svg")


if __name__ == "__main__":
    main()
