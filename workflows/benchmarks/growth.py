"""Growth of a method's time and memory, with the rows of a store or with its functions.

    python workflows/benchmarks/growth.py [--parts cagp] [--cagp 100000,1000000,4000000]

- ``lma``: a whole run by daskgp's command line, hyper-parameters fixed, on a rough field in random
  order: prepare, fit, and predict of a tenth as many places in an order that keeps neighbours
  together.  Seconds of whole commands, memory of client and workers in the largest of them.
- ``vecchia``: the same with hyper-parameters trained, ``fit`` without settings but the kernel.
- ``cagp``: an iteration of Adam on mini-batches of 20,000 rows with 512 actions on 64 rows each, so
  that the number of kernel entries does not depend on the rows.  "s before the first" is the rest
  of the fit: scaling, the draw of supports, and a last pass over all rows.
- ``decoupled float64``, ``decoupled float32``: a step of 1,024 rows once all functions of the mean
  are there, whose factors are made anew every 50 steps, with 128 of the covariance.
"""

import tempfile
from pathlib import Path

import datasets
import harness

import daskgp
from daskgp import kernels

PARTS = ("lma", "vecchia", "cagp", "decoupled float64", "decoupled float32")
FIXED = {"kernel": "matern32(lengthscale=0.058)", "optimizer": "none", "noise_variance": 0.1}
COMMANDS: dict[str, dict[str, object]] = {
    "lma": {**FIXED, "markov_order": 2},
    "vecchia": {"kernel": "matern32()"},
}
PLACES_CHUNK, WARM = 4_096, 10


def keys(options: harness.Options) -> harness.Keys:
    for part in options.parts:
        sizes = sorted(getattr(options, part.split()[0]))
        yield from harness.runs(options, part=[part], size=sizes)


def measure(key: dict, options: harness.Options) -> dict:
    kind, *dtype = key["part"].split()
    if kind in COMMANDS:
        return commands(kind, key["size"], options)
    return {"cagp": cagp, "decoupled": decoupled}[kind](key["size"], options, *dtype)


def commands(model: str, rows: int, options: harness.Options) -> dict:
    """Run the commands; return their seconds, and the memory of the largest."""
    block_rows = {"lma": options.block_rows, "vecchia": options.vecchia_rows}[model]
    support = {"n_support": min(options.inputs, rows // 2)} if model == "lma" else {}
    settings = COMMANDS[model] | support
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    cluster = ("--workers", str(options.threads), "--memory-limit", options.memory_limit)
    hilbert = ("--order", "hilbert", "--block-rows")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, number in (("train", rows), ("drawn", rows // 10)):
            datasets.write_drawn(folder / f"{name}.zarr", datasets.rough, number, 2, 65_536)
        chunk = str(min(PLACES_CHUNK, rows // 10))
        harness.daskgp(folder, "prepare", "drawn.zarr", "places.zarr", *hilbert, chunk)
        lines = (
            ("prepare", "train.zarr", "blocks.zarr", *hilbert, str(block_rows)),
            ("fit", "blocks.zarr", "model.zarr", "--model", model, *words),
            ("predict", "model.zarr", "places.zarr", "out.zarr"),
        )
        ran = {words[0]: harness.daskgp(folder, *words, *cluster) for words in lines}
    found = {f"{name}_s": part.seconds for name, part in ran.items()}
    most = max(part.peak_mib for part in ran.values())
    return {**found, "rate": rows / found["fit_s"], "command_mib": most}


def cagp(rows: int, options: harness.Options) -> dict:
    """Return the seconds of the iterations of one fit, and of all else."""
    path = datasets.store(options.folder, datasets.sines, rows, 8)
    model = daskgp.CaGP(
        kernels.Matern32(ard=True),
        n_actions=options.actions,
        support=options.support,
        batch_rows=min(rows, options.cagp_batch_rows),
        optimizer="adam",
        max_iter=options.iterations,
        progress=False,
    )
    seconds = harness.seconds_of(lambda: model.fit(*daskgp.open_dataset(path)))
    marks = harness.marks(model)
    return {**harness.step_seconds(marks, warm=1), "setup_s": seconds - marks[-1]}


def decoupled(functions: int, options: harness.Options, dtype: str) -> dict:
    """Return the seconds of a step, which adds half as many functions as it has rows at most."""
    few, added = min(options.covariance, functions // 2), max(1, options.batch_rows // 2)
    filling = -(-(functions - few) // added)
    model = daskgp.DecoupledGP(
        "matern32(ard=true)",
        n_mean=functions,
        n_covariance=few,
        n_added=added,
        n_subset=256,
        batch_rows=options.batch_rows,
        max_iter=filling + WARM + options.steps,
        dtype=dtype,
        progress=False,
    ).fit(*datasets.smooth(options.rows, 8))
    if (found := len(model.mean_points_)) != functions:
        raise RuntimeError(f"{found} functions instead of {functions}: more --rows")
    marks = harness.marks(model)
    return {**harness.step_seconds(marks, filling + WARM), "setup_s": marks[filling - 1]}


def table(records: list[dict], options: harness.Options) -> str:
    """Return a table per part, against the sizes, and the slopes of the logarithms."""
    shown = []
    for (part,), runs in harness.grouped(records, "part").items():
        whole = part in COMMANDS
        timed = ["prepare_s", "fit_s", "predict_s"] if whole else ["step_s", "mean_s"]
        more = "rate command_mib" if whole else "setup_s peak_mib"
        slopes = (f"{name} {harness.slope(runs, 'size', name)}" for name in timed)
        numbers = f"{' '.join(timed)} {more}"
        shown.append(harness.report(runs, "part size", numbers))
        shown.append(f"log-log slopes: {', '.join(slopes)}")
    return "\n\n".join(shown)


harness.command(
    globals(),
    parts=PARTS,
    lma=([250_000, 1_000_000, 4_000_000], [1_000, 3_000]),
    block_rows=(256, 100),
    vecchia=([100_000, 1_000_000, 10_000_000], [1_000, 3_000]),
    vecchia_rows=(2_048, 300),
    inputs=(256, 32),
    memory_limit="2GiB",
    cagp=([100_000, 1_000_000, 4_000_000], [500, 1_500]),
    actions=(512, 10),
    support=(64, 8),
    cagp_batch_rows=(20_000, 200),
    iterations=(5, 3),
    decoupled=([2_048, 4_096, 8_192, 16_384, 32_768], [200, 400]),
    covariance=(128, 40),
    rows=(100_000, 2_000),
    batch_rows=(1_024, 100),
    steps=(50, 3),
)
