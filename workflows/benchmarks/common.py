"""What the benchmarks share: commands with their seconds and memory, scores, tables and ledgers."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import psutil
from rich.table import Table

from daskgp import metrics

COLUMNS = {
    "mae": ("MAE", ".3f"),
    "rmse": ("RMSE", ".3f"),
    "crps": ("CRPS", ".3f"),
    "interval": ("interval score", ".2f"),
    "coverage": ("coverage", ".3f"),
    "fit_s": ("fit s", ".1f"),
    "predict_s": ("predict s", ".1f"),
    "seconds": ("total s", ".1f"),
    "peak_mib": ("peak MiB", ",.0f"),
}
"""Heading and format of the columns that compare methods."""


class Ran(NamedTuple):
    """Seconds of a process, its peak memory with that of its children, and what it printed."""

    seconds: float
    peak_mib: float
    printed: str
    largest_mib: float
    """Peak of the largest single process."""

    @property
    def result(self) -> dict:
        """The last line, which is JSON."""
        return json.loads(self.printed.splitlines()[-1])


def run(
    words: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> Ran:
    """Run a command; RuntimeError with what it said last if it fails.

    After ``limit`` seconds it is ended with its children, and subprocess.TimeoutExpired raised.
    """
    began = time.perf_counter()
    pipe = subprocess.PIPE
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
            seconds, peak = time.perf_counter() - began, memory.peak()
    if process.returncode:
        raise RuntimeError((err.strip().splitlines() or ["no message"])[-1])
    sys.stderr.write(err)
    return Ran(seconds, peak / 2**20, out, memory.largest / 2**20)


def end(pid: int) -> None:
    """End a process that this one started, and its children."""
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def daskgp(folder: Path, *arguments: str) -> Ran:
    """Run one daskgp command in a folder."""
    try:
        return run([sys.executable, "-m", "daskgp.cli", *arguments], folder)
    except RuntimeError as error:
        raise RuntimeError(f"daskgp {arguments[0]}: {error}") from error


class Memory:
    """Largest resident memory of a process and its children, sampled by a thread."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak, self._stop = 0, threading.Event()
        self.largest = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def peak(self) -> int:
        """Stop, and the largest sum in bytes."""
        self._stop.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self._peak = max(self._peak, self._now())

    def _now(self) -> int:
        sizes = [0]
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return 0
        for process in tree:
            try:
                sizes.append(process.memory_info().rss)
            except psutil.Error:  # it ended since
                continue
        self.largest = max(self.largest, *sizes)
        return sum(sizes)


def scores(y: np.ndarray, mean: np.ndarray | None, variance: np.ndarray | None) -> dict:
    """The scores of Heaton et al. 2019, none without a prediction."""
    if mean is None or variance is None:
        return {}
    return {
        "mae": metrics.mae(y, mean),
        "rmse": metrics.rmse(y, mean),
        "crps": metrics.crps(y, mean, variance),
        "interval": metrics.interval_score(y, mean, variance),
        "coverage": metrics.coverage(y, mean, variance),
    }


def report(results: Sequence[dict], title: str) -> Table:
    """Scores, seconds and memory of all methods."""
    table = Table(title=title)
    table.add_column("")
    for heading, _ in COLUMNS.values():
        table.add_column(heading, justify="right")
    table.add_column("remark")
    for row in results:
        numbers = ((row.get(key), form) for key, (_, form) in COLUMNS.items())
        cells = ("–" if number is None else format(number, form) for number, form in numbers)
        table.add_row(row["method"], *cells, row.get("remark", ""))
    return table


# -- runs that go on after an interruption -----------------------------------------------------


class Ledger:
    """Results of runs in a file, a JSON line each; a run that ended well is not repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> list[dict]:
        """All results, a later one of the same key in place of an earlier one."""
        if not self.path.exists():
            return []
        lines = (json.loads(line) for line in self.path.read_text().splitlines() if line)
        return list({json.dumps(record["key"]): record for record in lines}.values())

    def done(self, key: Mapping) -> bool:
        """Tell if a run of that key ended well, or at its limit of time."""
        ended = (record for record in self.records() if "failed" not in record)
        return any(record["key"] == key for record in ended)

    def measure(
        self,
        script: str,
        keys: Iterable[Mapping],
        threads: int,
        limit: float | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Run ``script --here KEY`` for every key that is not done, one after the other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for key in keys:
            if not self.done(key):
                record = {
                    "key": key,
                    "threads": threads,
                    **apart(script, key, threads, limit, options),
                }
                with self.path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(json.dumps(record), flush=True)


def apart(
    script: str,
    key: Mapping,
    threads: int,
    limit: float | None = None,
    options: Sequence[str] = (),
) -> dict:
    """Run one measurement in a process of its own: its result, its seconds and its memory."""
    words = [sys.executable, script, f"--here={json.dumps(key)}", f"--threads={threads}", *options]
    limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}
    before = processor_seconds()
    try:
        ran = run(words, environment=os.environ | limits, limit=limit)
    except RuntimeError as error:
        return {"failed": str(error)}
    except subprocess.TimeoutExpired:
        return {"ended_after_s": limit, "processor_s": processor_seconds() - before}
    sizes = {"peak_mib": ran.peak_mib, "largest_mib": ran.largest_mib}
    spent = {"seconds": ran.seconds, "processor_s": processor_seconds() - before}
    return {**ran.result, **spent, **sizes}


def processor_seconds() -> float:
    """Return the processor time of all children that have ended; other work hardly changes it."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, as the documentation quotes it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(record: Mapping | None, name: str, form: str) -> str:
    """Return one number of a result; a dash where there is none."""
    if record is None or name not in record:
        return "–"
    return format(record[name], form).replace("-", "−")


def refuse_failures(results: Sequence[dict]) -> None:
    """Leave with an error if a method failed."""
    failed = [row["method"] for row in results if row.get("remark", "").startswith("failed")]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


def among(known: Collection[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Callback of an option that takes names, separated by commas."""

    def names_of(ctx: click.Context, option: click.Parameter, text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}")
        return names

    return names_of


def numbers(kind: type[int] | type[float]) -> Callable[[click.Context, click.Parameter, str], list]:
    """Callback of an option that takes numbers greater than 0, separated by commas."""

    def numbers_of(ctx: click.Context, option: click.Parameter, text: str) -> list:
        try:
            found = [kind(word) for word in text.split(",") if word.strip()]
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if any(number <= 0 for number in found):
            raise click.BadParameter(f"{text!r}: numbers greater than 0 are needed")
        return found

    return numbers_of
