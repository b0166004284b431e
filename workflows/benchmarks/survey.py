"""LMA without a setting and GPBoost's Vecchia approximation, alternately, on two fields.

    [DASKGP_DATA=folder] python workflows/benchmarks/survey.py --out results.jsonl [--repeats 3]
    python workflows/benchmarks/survey.py --out results.jsonl --table

The fields are the land-surface temperatures of ``spatial.py`` (with DASKGP_DATA) and a generated
survey of 105,000 rows along lines 400 m apart and 83,000 places between them (``fields.py``).
``lma-defaults`` is ``daskgp convert``, ``fit --model lma`` and ``predict`` with no setting but the
number of workers, one a thread; ``gpboost`` is as in ``spatial.py``: exponential covariance, 20
neighbours to fit and 50 to predict.  ``lma-kernel`` is told that the kernel is ``matern12()``.

Each run has a process of its own; results are appended to the file, and a script that was
interrupted goes on where it was.  Seconds of fit and prediction are medians; memory is that of the
largest single process and that of all together, sampled every 0.1 s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click
import common
import fields
import spatial

DATA = ("satellite", "survey")
METHODS = ("gpboost", "lma-defaults", "lma-kernel")


def field(key: dict, folder: Path) -> spatial.Field:
    """Return the rows and places of a run."""
    if key["data"] == "satellite":
        found = spatial.satellite(Path(os.environ["DASKGP_DATA"], "spatial", "satellite.npz"))
    else:
        drawn = fields.stored(folder, "survey", 0, key["rows"] is not None)
        found = spatial.Field(drawn.X, drawn.y, drawn.X_test, drawn.y_test)
    return found if key["rows"] is None else found.thinned(key["rows"])


def measure(key: dict, threads: int, folder: Path) -> dict:
    """Return scores and seconds of one method on one field, in this process."""
    rows = field(key, folder)
    found = spatial.METHODS[key["method"]](rows, threads)
    sizes = {"n": len(rows.y), "places": len(rows.y_test)}
    times = {"fit_s": found.fit_s, "predict_s": found.predict_s, "remark": found.remark}
    return {**sizes, **common.scores(rows.y_test, found.mean, found.variance), **times}


def keys(data: list[str], methods: list[str], repeats: int, rows: int | None) -> Iterator[dict]:
    """Yield the runs, methods after one another in each repeat."""
    for repeat in range(repeats):
        for name in data:
            for method in methods:
                yield {"data": name, "method": method, "repeat": repeat, "rows": rows}


COLUMNS = {
    name: common.COLUMNS[name]
    for name in ("mae", "rmse", "crps", "interval", "coverage", "fit_s", "predict_s")
} | {"largest_mib": ("largest process MiB", ",.0f"), "peak_mib": ("all MiB", ",.0f")}


def table(records: list[dict]) -> str:
    """Return a row per method and field: medians over the repeats."""
    heads = ["", "", *(head for head, _ in COLUMNS.values()), "runs"]
    lines = []
    for data in DATA:
        for method in METHODS:
            runs = [
                record
                for record in records
                if (record["key"]["data"], record["key"]["method"]) == (data, method)
                and "fit_s" in record
            ]
            if runs:
                middle = {name: median(float(run[name]) for run in runs) for name in COLUMNS}
                cells = [common.cell(middle, name, form) for name, (_, form) in COLUMNS.items()]
                lines.append([data, method, *cells, str(len(runs))])
    return common.markdown(heads, lines)


@click.command()
@click.option("--out", type=Path, help="File of results, which is appended to; fields lie beside.")
@click.option("--data", default=",".join(DATA), callback=common.among(DATA))
@click.option("--methods", default=",".join(METHODS[:2]), callback=common.among(METHODS))
@click.option("--repeats", default=3, show_default=True)
@click.option("--rows", type=click.IntRange(min=50), help="Training rows.  [default: all]")
@click.option("--threads", default=2, show_default=True, help="Threads, or workers of daskgp.")
@click.option("--limit", default=60.0, show_default=True, help="Minutes for each run.")
@click.option("--table", "only_table", is_flag=True, help="Only print what the file holds.")
@click.option("--here", "key", hidden=True)
def main(
    out: Path | None,
    data: list[str],
    methods: list[str],
    repeats: int,
    rows: int | None,
    threads: int,
    limit: float,
    only_table: bool,
    key: str | None,
) -> None:
    """Measure each method on each field in a process of its own and print a table."""
    if out is None:
        raise click.UsageError("give --out=FILE, where results are kept")
    folder = out.parent / "fields"
    if key:
        print(json.dumps(measure(json.loads(key), threads, folder)))
        return
    ledger = common.Ledger(out)
    if not only_table:
        if "survey" in data:
            fields.stored(folder, "survey", 0, rows is not None)
        present = [name for name in data if name == "survey" or os.environ.get("DASKGP_DATA")]
        runs = keys(present, methods, repeats, rows)
        ledger.measure(__file__, runs, threads, 60 * limit, [f"--out={out}"])
    print(table(ledger.records()))


if __name__ == "__main__":
    main()
