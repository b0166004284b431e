"""Progress of long work: one line on a terminal with steps, rows per second and time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias

from dask.callbacks import Callback
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.table import Table
from rich.text import Text

ShowProgress: TypeAlias = bool | Literal["auto"]
Advance: TypeAlias = Callable[..., None]
"""Moves a line on: ``advance(steps=1, note="")``."""

SPEED_PERIOD, PATIENCE = 120.0, 0.5
"""Seconds over which the speed is averaged, and before work within other work has a line."""

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_open: ContextVar[Progress | None] = ContextVar("open", default=None)
"""Display of the work that this one is part of, which shows its line too."""


class Amount(NamedTuple):
    """Size of some work: all its rows, if known, and the name of its steps."""

    rows: int | None = None
    unit: str = "tasks"


TASKS = Amount()
"""Tasks whose rows are not known."""


@contextmanager
def silent() -> Iterator[None]:
    """Show no progress where it is "auto"."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def wants_progress(show: ShowProgress) -> bool:
    """Resolve ``progress="auto"``: True where somebody sits at a terminal or a notebook."""
    if show == "auto":
        return not _quiet.get() and (sys.stderr.isatty() or in_notebook())
    return bool(show)


def in_notebook() -> bool:
    """Return whether this is a notebook that can show progress, which takes ipywidgets."""
    return Console(stderr=True).is_jupyter and find_spec("ipywidgets") is not None


@contextmanager
def progress_line(
    label: str, total: int | None, amount: Amount = TASKS, show: ShowProgress = "auto"
) -> Iterator[Advance | None]:
    """Show a line on stderr while work lasts; yield what moves it on, None if nothing is shown.

    Parameters
    ----------
    label : str
        What is done.
    total : int or None
        Number of steps, if known.
    amount : Amount
        Rows of all steps and the name of a step; steps in ``"rows"`` are counted in rows.
    show : bool or "auto"
        Whether to show it; "auto" at a terminal or in a notebook.
    """
    if not wants_progress(show):
        yield None
        return
    with _display() as progress:
        task = progress.add_task(label, total=total, note="", amount=amount)
        try:
            yield lambda steps=1, note="": _advance(progress, task, steps, note)
        finally:
            progress.remove_task(task)


@contextmanager
def _display() -> Iterator[Progress]:
    """Yield the display that is open already, or a new one."""
    already = _open.get()
    if already is not None:
        yield already
        return
    progress = _Lines(
        _Line(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what is piped elsewhere is left alone
        speed_estimate_period=SPEED_PERIOD,
    )
    token = _open.set(progress)
    try:
        with progress:
            yield progress
    finally:
        _open.reset(token)


def _advance(progress: Progress, task: TaskID, steps: int, note: str) -> None:
    with suppress(KeyError):  # a task of a cluster may be told of when its round has ended
        progress.update(task, advance=steps, note=note)


class _Lines(Progress):
    """Display whose lines below the first one wait a moment: short rounds would flicker."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        tasks = list(tasks)
        lasting = [task for task in tasks[1:] if (task.elapsed or 0.0) >= PATIENCE]
        return super().make_tasks_table([*tasks[:1], *lasting])


class _Line(ProgressColumn):
    """The line as a whole."""

    def render(self, task: Task) -> Text:
        return Text(text_of(task), no_wrap=True, overflow="ellipsis")


def text_of(task: Task) -> str:
    """Return a line such as ``predict  120/400 chunks  30 %  84,000 rows/s  0:01:12 left``."""
    done, amount = int(task.completed), task.fields["amount"]
    speed = task.speed or (task.completed / task.elapsed if task.elapsed else 0.0)
    if task.total is None:
        parts = [f"{done:,} {amount.unit}", _rate(speed, None, amount)]
    else:
        total = int(task.total)
        seconds = (total - done) / speed if speed else None
        left = "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
        parts = [
            f"{done:,}/{total:,} {amount.unit}",
            f"{100 * done // max(total, 1)} %",
            _rate(speed, total, amount),
            f"{left} left",
        ]
    return "  ".join([task.description, *parts, *[task.fields["note"]] * bool(task.fields["note"])])


def _rate(speed: float, total: int | None, amount: Amount) -> str:
    """Return rows per second, or steps per second where the rows are not known."""
    unit = amount.unit
    if amount.rows and total:
        speed, unit = speed * amount.rows / total, "rows"
    if not speed:
        return f"- {unit}/s"
    return f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.2g} {unit}/s"


class Counting(Callback):
    """Callback that calls ``advance`` whenever one of the named tasks of a local scheduler ends."""

    def __init__(self, names: set[Any], advance: Advance) -> None:
        super().__init__()
        self._names, self._advance = names, advance

    def _posttask(self, key: Any, *_: Any) -> None:
        if key in self._names:
            self._advance()
