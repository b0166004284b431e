"""What the benchmarks share: commands with their seconds and memory, scores and tables."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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

    @property
    def result(self) -> dict:
        """The last line, which is JSON."""
        return json.loads(self.printed.splitlines()[-1])


def run(
    words: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Ran:
    """Run a command; RuntimeError with what it said last if it fails."""
    began = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        memory = Memory(process.pid)
        out, err = process.communicate()
        seconds, peak = time.perf_counter() - began, memory.peak()
    if process.returncode:
        raise RuntimeError((err.strip().splitlines() or ["no message"])[-1])
    sys.stderr.write(err)
    return Ran(seconds, peak / 2**20, out)


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
        total = 0
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return 0
        for process in tree:
            try:
                total += process.memory_info().rss
            except psutil.Error:  # it ended since
                continue
        return total


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
