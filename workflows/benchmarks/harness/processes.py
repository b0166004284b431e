"""Processes that are measured: their seconds and their memory."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil


class Ran(NamedTuple):
    """Seconds and memory that a process and its children took, and its output.

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
