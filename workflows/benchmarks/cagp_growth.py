"""Growth of an iteration of CaGP with the rows of a store.

    python workflows/benchmarks/cagp_growth.py [--rows 100000,1000000,4000000]

512 actions on 64 rows each, trained by Adam on mini-batches of 20,000 rows, so that the number of
kernel entries does not depend on the rows.  "other s" is the rest of the fit: scaling, the draw of
supports, and a last pass over all rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import datasets
import harness
import numpy as np

import daskgp
from daskgp import kernels

CHUNK = 65_536


def keys(options: harness.Options) -> Iterator[dict]:
    for rows in sorted(options.rows):
        yield {"rows": rows, "actions": options.actions, "support": options.support}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds of the iterations of one fit, of the first of them, and of all else."""
    path = options.folder / f"cagp-{key['rows']}.zarr"
    if not path.exists():
        datasets.write_drawn(path, datasets.sines, key["rows"], 8, CHUNK)
    model = daskgp.CaGP(
        kernels.Matern32(ard=True),
        n_actions=key["actions"],
        support=key["support"],
        batch_rows=min(key["rows"], options.batch_rows),
        optimizer="adam",
        max_iter=options.iterations,
        progress=False,
    )
    seconds = harness.seconds_of(lambda: model.fit(*daskgp.open_dataset(str(path))))
    marks = harness.marks(model)
    later = float(np.median(harness.step_seconds(marks, warm=1)))
    found = {"step_s": later, "first_s": marks[0], "iterations": len(marks)}
    return {**found, "other_s": seconds - marks[-1]}


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and memory against rows, as ratios to the fewest."""
    ran = [record for record in records if "step_s" in record]
    for record in ran:
        record["ratio"] = record["step_s"] / ran[0]["step_s"]
    return harness.report(records, "rows actions support", "step_s ratio first_s other_s peak_mib")


harness.command(
    globals(),
    rows=([100_000, 1_000_000, 4_000_000], [500, 1_500]),
    actions=(512, 10),
    support=(64, 8),
    batch_rows=(20_000, 200),
    iterations=(5, 3),
)
