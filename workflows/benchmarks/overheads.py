"""Seconds that a command takes with little work, and that a graph of many chunks takes to build.

    python workflows/benchmarks/overheads.py --out results.jsonl [--parts graphs] [--tiny]
    python workflows/benchmarks/overheads.py --out results.jsonl --table

- ``commands``: whole processes, the least of some runs after a first, and how many other processes
  waited for a processor meanwhile.  Processor seconds are those of the command and its children.
  ``fit`` and ``predict`` are VecchiaGP's of some rows of a csv with two features, and "compiles"
  the first ever: functions are compiled.  "dask.array" imports this alone.
- ``graphs``: ``predict`` of a model of 20 inducing inputs, not computed, at a lazy array, a Zarr
  array or a grid of so many chunks, beside Dask's own ``map_blocks`` of a function.  Processor
  seconds, the least of three, and the memory that the first takes more.
"""

import logging
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
import pandas as pd
import psutil

import daskgp

PARTS, CHUNK = ("commands", "graphs"), 10
LINES = {
    "help": ["-m", "daskgp", "--help"],
    "dask.array": ["-c", "import dask.array"],
    "import all": ["-c", "import daskgp.estimators"],
    "info": ["-m", "daskgp", "info", "model.zarr"],
    "predict": ["-m", "daskgp", "predict", "model.zarr", "rows.csv", "out.csv", "-q"],
    "fit": ["-m", "daskgp", "fit", "rows.csv", "new.zarr", "--model=vecchia", "--target=y", "-q"],
}
LINES["fit, compiles"] = LINES["fit"]


def keys(options: harness.Options) -> harness.Keys:
    if "commands" in options.parts:
        yield from harness.runs(options, "rows repeats", part=["commands"], method=LINES)
    if "graphs" in options.parts:
        yield from harness.runs(options, part=["graphs"], chunks=options.chunks, method=GRAPHS)


def measure(key: dict, options: harness.Options) -> dict:
    if key["part"] == "graphs":
        return built(key["method"], key["chunks"], options.folder)
    X = np.random.default_rng(0).uniform(0.0, 10.0, (key["rows"], 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1] / 2)
    rows, model = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}), options.folder / "model.zarr"
    rows.to_csv(options.folder / "rows.csv", index=False)
    if not model.exists():
        daskgp.VecchiaGP(progress=False).fit(rows[["a", "b"]], y).save(model)
    line, first = [sys.executable, *LINES[key["method"]]], key["method"].endswith("compiles")
    runs = [ran(line, options.folder, first) for _ in range(1 + (0 if first else key["repeats"]))]
    least = np.min(runs if first else runs[1:], axis=0)
    return {"wall_s": least[0], "cpu_s": least[1], "load": os.getloadavg()[0]}


def ran(line: list[str], folder: Path, compiles: bool) -> tuple[float, float]:
    """Run a command; return its seconds, and those of processors."""
    environment = dict(os.environ)
    for name in ("new.zarr", "out.csv", *(["compiled"] if compiles else [])):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if compiles:
        environment["NUMBA_CACHE_DIR"] = str(folder / "compiled")
    before, began = spent(), time.perf_counter()
    subprocess.run(line, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began, spent() - before


def spent() -> float:
    """Return the processor seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# -- graphs ------------------------------------------------------------------------------------


def blocks(model, X):
    return X.map_blocks(np.sum, axis=1, chunks=(X.chunks[0],), drop_axis=1, dtype=float)


GRAPHS = {
    "map_blocks": blocks,
    "mean": lambda model, X: model.predict(X),
    "mean and std": lambda model, X: model.predict(X, return_std=True),
    "quantiles": lambda model, X: model.predict(X, quantiles=(0.1, 0.9)),
    "mean and std, Zarr": lambda model, X: model.predict(X, return_std=True),
    "mean and std, grid": lambda model, X: model.predict(X, return_std=True),
    "open_dataset": lambda model, path: daskgp.open_dataset(path),
}


def places(method: str, chunks: int, folder: Path):
    """Return the places of a graph: lazy rows, a Zarr array, a grid, or the path of a store."""
    import dask.array as da
    import xarray as xr
    import zarr

    shape, side = (chunks * CHUNK, 2), round(chunks**0.5)
    if method.endswith("grid"):
        axis, values = np.linspace(0.0, 10.0, side * CHUNK), da.zeros((side * CHUNK,) * 2, CHUNK)
        return xr.Dataset({"c": (("b", "a"), values)}, {"a": axis, "b": axis})
    if not method.endswith(("Zarr", "dataset")):
        return da.zeros(shape, chunks=(CHUNK, 2))
    group = zarr.open_group(folder / f"{chunks}.zarr", mode="w")
    for name, size in (("X", shape), ("y", shape[:1])):
        group.create_array(name, shape=size, chunks=(CHUNK, *size[1:]), dtype="f8", fill_value=1.0)
    return group["X"] if method.endswith("Zarr") else str(folder / f"{chunks}.zarr")


def built(method: str, chunks: int, folder: Path) -> dict:
    """Return the seconds and the memory that a graph takes to build."""
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # chunks are not there on purpose
    names = ["a", "b", "c"][: 3 if method.endswith("grid") else 2]
    X = np.random.default_rng(0).uniform(0.0, 10.0, (300, len(names)))
    settings = {"n_inducing": 20, "optimizer": None, "progress": False}
    model = daskgp.SGPR(**settings).fit(pd.DataFrame(X, columns=names), np.sin(X[:, 0]))
    seconds, sizes, process = [], [], psutil.Process()
    for number in (chunks // 100, *[chunks] * 3):  # the first imports, and compiles expressions
        place = places(method, number, folder)
        before, began = process.memory_info().rss, time.process_time()
        graph = GRAPHS[method](model, place)
        seconds.append(time.process_time() - began)
        sizes.append(process.memory_info().rss - before)
        del graph
    return {"cpu_s": min(seconds[1:]), "more_mib": sizes[1] / 2**20, "load": os.getloadavg()[0]}


def table(records: list[dict], options: harness.Options) -> str:
    shown = []
    for (part,), runs in harness.grouped(records, "part").items():
        labels, numbers = ("method", "wall_s cpu_s load")
        if part == "graphs":
            labels, numbers = ("method chunks", "cpu_s more_mib load")
        shown.append(harness.report(runs, labels, numbers))
    return "\n\n".join(shown)


SIZES = {"rows": (1_000, 100), "repeats": (5, 1), "chunks": ([10**4, 10**5, 10**6], [100, 400])}
harness.command(globals(), parts=PARTS, **SIZES)
