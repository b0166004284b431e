"""What all benchmarks share: processes of their own, files of results, options, scores, tables.

A script says what its runs are, how one is measured and how their table looks::

    def keys(options):               # one small dict per run, mostly from ``runs``
    def measure(key, options):       # in a process of its own; a dict of numbers
    def table(records, options):     # Markdown, as the documentation quotes it
    harness.command(globals(), methods=METHODS, rows=(36_000, 500))  # of tiny runs

Each run is a line of JSON: its key, what ``measure`` returned, the seconds and processor seconds of
its process, and the peaks of resident memory of the largest process and of all together, sampled
every 0.1 s.  With ``--out`` the lines are kept, and a script that was interrupted goes on where it
was.  Neither Dask nor Zarr is imported here before a run needs them.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

import click
import numpy as np
import psutil

from daskgp import metrics

Options = SimpleNamespace
"""Values of a script's options: out, folder, threads, limit, tiny and its own."""
Keys = Iterator[dict[str, Any]]

COLUMNS = {
    "n": ("rows", ","),
    "mae": ("MAE", ".3f"),
    "rmse": ("RMSE", ".4f"),
    "nmse": ("nMSE", ".4f"),
    "crps": ("CRPS", ".3f"),
    "nlpd": ("NLPD", ".3f"),
    "interval": ("interval score", ".2f"),
    "coverage": ("coverage of 95 %", ".3f"),
    "density": ("mean log density", ".4f"),
    "truth": ("of the true rate", ".4f"),
    "bound": ("bound per row", ".3f"),
    "objective": ("bound", ",.1f"),
    "trained": ("by rows trained on", ".3f"),
    "value_s": ("seconds of a value and gradient", ".3f"),
    "rate": ("rows/s", ",.0f"),
    "floor_s": ("floor s", ".4f"),
    "over_floor": ("times the floor", ".2f"),
    "over_ours": ("× daskgp", ".2f"),
    "step_s": ("median seconds of a step", ".4f"),
    "mean_s": ("mean", ".4f"),
    "share": ("share of reading", ".1%"),
    "pass_s": ("seconds of a pass", ".1f"),
    "efficiency": ("efficiency", ".2f"),
    "scheduler_ms": ("scheduler ms per task", ".2f"),
    "shortest_task_s": ("shortest task s", ".1f"),
    "moved_gb": ("moved GB", ".1f"),
    "setup_s": ("s before the first", ".1f"),
    "command_mib": ("MiB of a command", ",.0f"),
    "fit_s": ("fit s", ".2f"),
    "predict_s": ("predict s", ".2f"),
    "seconds": ("seconds", ",.1f"),
    "processor_s": ("processor seconds", ",.1f"),
    "largest_mib": ("largest process MiB", ",.0f"),
    "peak_mib": ("peak MiB", ",.0f"),
    "memory_over_ours": ("× daskgp", ".2f"),
    "gb_per_s": ("GB/s", ".1f"),
    "gemm_share": ("of the product", ".2f"),
    "pairs_per_s": ("pairs/s", ".3g"),
    "ok": ("as asked for", "d"),
    "differs": ("differs by", ".0e"),
    "at_180": ("difference at ±180", ".0e"),
    "at_poles": ("at poles", ".0e"),
}
"""Heading and format of numbers in tables; others have their name, and three decimals."""

# -- processes ---------------------------------------------------------------------------------


class Ran(NamedTuple):
    """What a process and its children took, and its output.

    Seconds, seconds of processors, peak resident memory together and of the largest.
    """

    seconds: float
    processor_s: float
    peak_mib: float
    largest_mib: float
    printed: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line, which is JSON."""
        return json.loads(self.printed.splitlines()[-1])


def run(
    words: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> Ran:
    """Run a command; RuntimeError with the last line of its errors if it fails.

    After ``limit`` seconds it is ended with its children, and subprocess.TimeoutExpired raised.
    """
    began, pipe = time.perf_counter(), subprocess.PIPE
    with subprocess.Popen(
        words, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        memory = Memory(process.pid)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process.pid)
            raise
        finally:
            seconds = time.perf_counter() - began
            memory.stop()
    if process.returncode:
        raise RuntimeError((err.strip().splitlines() or ["no message"])[-1])
    sys.stderr.write(err)
    sizes = memory.together / 2**20, memory.largest / 2**20
    return Ran(seconds, sum(memory.worked.values()), *sizes, out)


def end(pid: int) -> None:
    """End a process that this one started, and its children."""
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


class Memory:
    """Peak resident bytes of a process and its children, sampled by a thread until it stops.

    Pages that forked processes share count for each.  ``worked`` has the seconds of processors.
    """

    def __init__(self, pid: int) -> None:
        self._root, self._stopped = psutil.Process(pid), threading.Event()
        self.together = self.largest = 0
        self.worked: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample no more."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.1):
            sizes = [0, *self._sizes()]
            self.together = max(self.together, sum(sizes))
            self.largest = max(self.largest, *sizes)

    def _sizes(self) -> Iterator[int]:
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        for process in tree:
            try:
                with process.oneshot():
                    spent = process.cpu_times()
                    self.worked[process.pid] = spent.user + spent.system
                    yield process.memory_info().rss
            except psutil.Error:  # it ended since
                continue


def daskgp(folder: Path, *arguments: str) -> Ran:
    """Run one daskgp command in a folder."""
    try:
        return run([sys.executable, "-m", "daskgp", *arguments], folder)
    except RuntimeError as error:
        raise RuntimeError(f"daskgp {arguments[0]}: {error}") from error


def measured(script: str, key: Mapping, options: Options) -> dict[str, Any]:
    """Measure one run in a process of its own, by ``script --here``."""
    values = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items()}
    words = [sys.executable, script, f"--here={json.dumps([key, values])}"]
    threads = (f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL"))
    limits = {name: str(options.threads) for name in (*threads, "DASK_NUM_WORKERS")}
    seconds = options.limit and 60 * options.limit
    try:
        ran = run(words, environment=os.environ | limits, limit=seconds)
    except RuntimeError as error:
        return {"failed": str(error)}
    except subprocess.TimeoutExpired:
        return {"ended_after_s": seconds}
    spent = {"seconds": ran.seconds, "processor_s": ran.processor_s}
    return {**ran.result, **spent, "peak_mib": ran.peak_mib, "largest_mib": ran.largest_mib}


def measured_here(measure: Callable[[dict, Options], dict], text: str) -> dict[str, Any]:
    """Measure one run in this process."""
    key, values = json.loads(text)
    options = Options(**values | {"folder": Path(values["folder"])})
    try:
        return measure(key, options)
    except ModuleNotFoundError as error:
        return {"absent": f"{error.name} is not installed: pip install 'daskgp[bench]'"}


# -- results -----------------------------------------------------------------------------------


class Ledger:
    """Results of runs in a file, a line of JSON each; a run that ended well is not repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[dict[str, Any]]:
        """Return all results, a later one of the same key in place of an earlier one."""
        if not self.path.exists():
            return []
        lines = (json.loads(line) for line in self.path.read_text().splitlines() if line)
        return list(
            {json.dumps(record["key"], sort_keys=True): record for record in lines}.values()
        )

    def done(self, key: Mapping) -> bool:
        """Tell if a run of that key ended well, or at its limit of time."""
        ended = (r for r in self.records() if "failed" not in r and "absent" not in r)
        return any(record["key"] == key for record in ended)

    def measure(self, script: str, keys: Iterable[Mapping], options: Options) -> list[str]:
        """Measure each run that is not done, one after the other; return what failed."""
        failed = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for key in keys:
            if self.done(key):
                continue
            record = {"key": key, "threads": options.threads, **measured(script, key, options)}
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)
            if "failed" in record:
                failed.append(f"{key}: {record['failed']}")
        return failed


# -- commands ----------------------------------------------------------------------------------


class Some(NamedTuple):
    """Names that an option takes, and those it takes by default."""

    known: Collection[str]
    default: Collection[str]


def command(module: dict[str, Any], limit: float | None = 60.0, **own: Any) -> None:
    """Run the command line of a script, whose functions are ``module``, if the script is run.

    Options that all have come first, then its own: names, False for a flag, and a number or text
    with that of tiny runs, or a list of numbers with that of tiny runs.
    """
    figure = module.get("figure")

    def main(here: str | None, only_table: bool, drawn: Path | None, **values: Any) -> None:
        if here:
            print(json.dumps(measured_here(module["measure"], here), default=float))
            return
        out = values["out"]
        if only_table and out is None:
            raise click.UsageError("give --out=FILE, where results are kept")
        with tempfile.TemporaryDirectory() as temporary:
            kept = Path(temporary, "results.jsonl") if out is None else out
            options = Options(**values, folder=kept.parent / "fields")
            ledger, failed = Ledger(kept), []
            if not only_table:
                options.folder.mkdir(parents=True, exist_ok=True)
                failed = ledger.measure(module["__file__"], module["keys"](options), options)
            print(module["table"](ledger.records(), options))
            if figure and drawn:
                figure(ledger.records(), drawn)
        if failed:
            raise click.ClickException(f"failed: {'; '.join(failed)}")

    options = [
        click.option("--out", type=Path, help="File of results, which is appended to."),
        click.option("--table", "only_table", is_flag=True, help="Print what the file holds."),
        click.option("--figure", "drawn", type=Path, hidden=not figure, help="Draw a PNG."),
        click.option(
            "--threads", default=2, show_default=True, help="Threads, or workers, of a run."
        ),
        click.option(
            "--limit", type=float, default=limit, show_default=True, help="Most minutes of a run."
        ),
        click.option("--tiny", is_flag=True, is_eager=True, help="Little work, for tests."),
        click.option("--here", hidden=True),
        *(option_of(f"--{name.replace('_', '-')}", value) for name, value in own.items()),
    ]
    for option in reversed(options):
        main = option(main)
    if module["__name__"] == "__main__":
        click.command(help="\b\n" + module["__doc__"].replace("\n\n", "\n\n\b\n"))(main)()


def option_of(name: str, value: Any) -> Callable:
    """Return a script's own option."""
    if value is False:
        return click.option(name, is_flag=True)
    if not isinstance(value, (str, Some)) and isinstance(value, Collection):
        value = list(value) if isinstance(value, dict) else value
        if all(isinstance(word, str) for word in value):
            value = Some(value, value)
    if isinstance(value, Some):
        return click.option(
            name,
            default=",".join(value.default),
            show_default=True,
            callback=lambda ctx, option, text: names_in(text, value.known),
        )
    full, tiny = value if isinstance(value, tuple) else (value, value)

    def chosen(ctx: click.Context, option: click.Parameter, text: str | None) -> Any:
        default = tiny if ctx.params["tiny"] else full
        return default if text is None else value_in(text, tiny)

    shown = (
        "all" if full is None else ",".join(map(str, full if isinstance(full, list) else [full]))
    )
    return click.option(name, callback=chosen, help=f"Default: {shown}.")


def names_in(text: str, known: Collection[str]) -> list[str]:
    """Return names that are separated by commas; each is a known one."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise click.BadParameter(f"{word!r} is none of {', '.join(known)}")
    return words


def value_in(text: str, like: Any) -> Any:
    """Return a text, a number or a list of numbers, as an example is; none is below 0."""
    if isinstance(like, str):
        return text
    try:
        values = [type(like[0] if isinstance(like, list) else like)(w) for w in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if min(values) < 0 or (len(values) > 1 and not isinstance(like, list)):
        raise click.BadParameter(f"{text!r}: give numbers from 0 on like {like}")
    return values if isinstance(like, list) else values[0]


def runs(options: Options, sizes: str = "", **lists: Iterable) -> Keys:
    """Yield the keys of all combinations of some lists, with the sizes that they share."""
    shared = {name: getattr(options, name) for name in sizes.split()}
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True)) | shared


# -- fits --------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Seconds of a fit and of its prediction, the prediction of y with its noise, and remarks."""

    fit_s: float
    predict_s: float | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    remarks: dict[str, Any] = {}  # noqa: RUF012  never changed

    def scored(self, y: np.ndarray, *names: str) -> dict[str, Any]:
        """Return scores, seconds and remarks; no density where a variance is not positive."""
        found = {"fit_s": self.fit_s, "predict_s": self.predict_s, **self.remarks}
        variance = None if self.variance is None else np.ravel(self.variance)
        if variance is not None and variance.min() <= 0:
            found["not_positive"], variance = int((variance <= 0).sum()), None
        for name in names:
            score = getattr(metrics, {"interval": "interval_score"}.get(name, name))
            if name in ("rmse", "mae", "nmse") and self.mean is not None:
                found[name] = float(score(y, np.ravel(self.mean)))
            elif variance is not None:
                found[name] = float(score(y, np.ravel(self.mean), variance))
        return found


def fitted(model: Any, split: Any) -> Outcome:
    """Fit an estimator to a split's rows and predict the others."""
    began = time.perf_counter()
    model.set_params(progress=False).fit(split.X, split.y)
    done = time.perf_counter()
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    return Outcome(done - began, time.perf_counter() - done, mean, std**2)


def convert(folder: Path, split: Any, features: Sequence[str] = ()) -> None:
    """Write train.zarr and test.zarr by daskgp's command, the columns of X under names or as X."""
    given = ("--features", ",".join(features)) if features else ()
    for part, X, y in (("train", split.X, split.y), ("test", split.X_test, split.y_test)):
        columns = dict(zip(features, X.T, strict=True)) if features else {"X": X}
        np.savez(folder / f"{part}.npz", y=y, **columns)
        daskgp(folder, "convert", f"{part}.npz", f"{part}.zarr", "--target", "y", *given)


def by_command_line(
    data: Path, model: str, settings: Mapping[str, object], *cluster: str
) -> Outcome:
    """Fit train.zarr of a folder and predict test.zarr by daskgp's commands, as a user would."""
    import zarr

    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    train, test = (str((data / f"{part}.zarr").resolve()) for part in ("train", "test"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fit = daskgp(folder, "fit", train, "model.zarr", "--model", model, *words, *cluster)
        predict = daskgp(folder, "predict", "model.zarr", test, "out.zarr", *cluster)
        out = zarr.open_group(folder / "out.zarr", mode="r")
        mean, variance = (np.ravel(np.asarray(out[name])) for name in ("mean", "variance"))
    remarks = {"iterations": fit.result["iterations"]}
    return Outcome(fit.seconds, predict.seconds, mean, variance, remarks)


def lowered(settings: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return settings whose numbers of inputs, functions and rows are at most so many."""
    return {
        name: min(value, most) if name.startswith("n_") or name == "batch_rows" else value
        for name, value in settings.items()
    }


def evaluation_seconds(model: Any) -> float:
    """Return the seconds of one value and gradient in training, the first ones left out."""
    first, last = model.history_[0], model.history_[-1]
    return (last["seconds"] - first["seconds"]) / (last["evaluations"] - first["evaluations"])


def step_seconds(marks: Sequence[float], warm: int = 10) -> dict[str, float]:
    """Return median and mean seconds of steps after the first ones, from those at their ends."""
    steps = np.diff([0.0, *marks])[min(warm, len(marks) - 1) :]
    return {"step_s": float(np.median(steps)), "mean_s": float(np.mean(steps))}


def marks(model: Any) -> list[float]:
    """Return the seconds at the ends of an estimator's steps."""
    return [entry["seconds"] for entry in model.history_]


def best_of(
    repeats: int, function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Return the fewest seconds of some calls after a first, and the last result."""
    found, seconds = function(), []
    for _ in range(repeats):
        began = clock()
        found = function()
        seconds.append(clock() - began)
    return min(seconds), found


def seconds_of(function: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


# -- bounds ------------------------------------------------------------------------------------


def bound_per_row(y: np.ndarray, moments: tuple, noise: float, divergence: float) -> float:
    """Return an evidence lower bound over its rows, estimated by places with y.

    ``moments`` are mean and variance of f at these places, ``divergence`` is KL[q || p] over the
    number of rows that the bound is of.
    """
    mean, variance = map(np.ravel, moments)
    square = np.mean((np.ravel(y) - mean) ** 2 + variance)
    return float(-0.5 * (np.log(2 * np.pi * noise) + square / noise) - divergence)


def bound_of(model: Any, split: Any, rows: int) -> float:
    """Return the bound per row of an estimator with Gaussian noise, by the rows to predict."""
    noise = float(model.noise_variance_ * model.solved_.scaling.y_scale[0] ** 2)
    if hasattr(model.solved_.state, "mean_points"):
        divergence = divergence_of(model.solved_)
    else:  # what its own rows say less the divergence is the evidence, or the best bound
        own = len(split.y), moments_of(model, split.X)
        divergence = own[0] * bound_per_row(split.y, own[1], noise, 0.0)
        divergence -= model.log_marginal_likelihood()
    places = moments_of(model, split.X_test)
    return bound_per_row(split.y_test, places, noise, divergence / rows)


def moments_of(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f."""
    mean, std = model.predict(X, return_std=True)
    return mean, std**2


def divergence_of(solved: Any, columns: int = 1_024) -> float:
    """Return KL[q || p] of a variational posterior, with all columns of its quadratic form."""
    from daskgp.models.values import Block
    from daskgp.models.variational.decoupled import Draw
    from daskgp.models.variational.parameters import mean_functions

    method, own = replace(solved.method, frozen=True), solved.state.parameters(solved.theta.kernel)
    prepared = method.prepare(solved.theta.kernel, own, solved.state.offset)
    none = Block(own.covariance_points[:0], own.weights[:0])
    number = len(mean_functions(own, method.form)[1])
    parts = np.split(np.arange(number), range(columns, number, columns))
    return prepared.kl - sum(method.local(prepared, none, Draw(1.0, p, 1.0)).value for p in parts)


def product_rate(size: int = 4_096, dtype: str = "float64") -> float:
    """Return the operations per second of a large matrix product."""
    A = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    return 2 * size**3 / best_of(3, lambda: A @ A)[0]


# -- tables ------------------------------------------------------------------------------------


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, as the documentation quotes it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def column(name: str) -> tuple[str, str]:
    """Return the heading of a number, and its format if it has one of its own."""
    return COLUMNS.get(name, (name.replace("_", " "), ""))


def cell(record: Mapping | None, name: str, form: str = "") -> str:
    """Return one number of a result; a dash where there is none."""
    value = None if record is None else record.get(name)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, form or ("," if isinstance(value, int) else ",.3f")).replace("-", "−")


def number(record: Mapping | None, name: str, form: str) -> str:
    """Return one number of a result, or why there is none."""
    if record and "ended_after_s" in record:
        return f"> {record['ended_after_s'] / 60:.0f} min" if name == "seconds" else "–"
    return "failed" if record and "failed" in record else cell(record, name, form)


def report(records: Sequence[Mapping], labels: str, numbers: str) -> str:
    """Return a row per run: parts of its key, numbers, and why there are none."""
    why = [r.get("failed") or r.get("absent") or r.get("remark") or "" for r in records]
    columns = [(name, *column(name)) for name in numbers.split()]
    rows = [
        [
            *(str(r["key"].get(label, "")) for label in labels.split()),
            *((cell if "failed" in r else number)(r, name, form) for name, _, form in columns),
            *([reason] if any(why) else []),
        ]
        for r, reason in zip(records, why, strict=True)
    ]
    heads = [*labels.split(), *(head for _, head, _ in columns)]
    return markdown([*heads, *(["remark"] if any(why) else [])], rows)


def reporting(labels: str, numbers: str) -> Callable[[list[dict], Options], str]:
    """Return the table of a script that shows each run as it is."""
    return lambda records, options: report(records, labels, numbers)


def grouped(records: Iterable[Mapping], *names: str) -> dict[tuple, list[Mapping]]:
    """Return the runs by some parts of their keys."""
    found: dict[tuple, list[Mapping]] = {}
    for record in records:
        found.setdefault(tuple(record["key"].get(name) for name in names), []).append(record)
    return found


def medians(records: Iterable[Mapping], *names: str) -> list[dict[str, Any]]:
    """Return one record per group of runs that are alike in parts of their keys: the medians."""
    found = []
    for values, runs in grouped(records, *names).items():
        ran = [r for r in runs if not {"failed", "absent", "ended_after_s"} & set(r)]
        numbers = {n for r in ran[-1:] for n, v in r.items() if isinstance(v, float)}
        middle = {n: median(r[n] for r in ran if r.get(n) is not None) for n in numbers}
        key = dict(zip(names, values, strict=True))
        found.append({**runs[-1], **middle, "key": key, "runs": len(ran)})
    return found


def tables(
    records: Sequence[Mapping], numbers: str, down: Mapping[str, Sequence], **across: Sequence
) -> str:
    """Return a table per score with what is in the keys, in its order, down and across."""
    ((name, order),) = across.items()
    found = {place: runs[-1] for place, runs in grouped(records, *down, name).items()}
    heads = [head for head in order if any(place[-1] == head for place in found)]
    rows = [row for row in product(*down.values()) if any((*row, head) in found for head in heads)]
    parts = []
    for score in numbers.split():
        title, form = column(score)
        lines = (
            [" ".join(map(str, row)), *(number(found.get((*row, h)), score, form) for h in heads)]
            for row in rows
        )
        parts.append(markdown([title, *heads], lines))
    return "\n\n".join(parts)


def slope(records: Sequence[Mapping], size: str, name: str) -> str:
    """Return the slope of the logarithm of a number against that of a size in the keys."""
    ran = [(record["key"][size], record[name]) for record in records if name in record]
    if len({n for n, _ in ran}) < 2:
        return "–"
    return f"{np.polyfit(*np.log(np.transpose(ran)), 1)[0]:.3f}"
