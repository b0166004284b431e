"""Progress bars as a user sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from dask.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

ShowProgress: TypeAlias = bool | Literal["auto"]


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


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
    """Return whether this is a notebook that can show bars, which takes ipywidgets."""
    return Console(stderr=True).is_jupyter and find_spec("ipywidgets") is not None


def progress_bar(*columns: Any, disable: bool = False) -> Progress:
    """Return a bar on stderr with counts, rate and time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        _Rate(),
        TimeRemainingColumn(),
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=disable,
    )


class _Rate(TextColumn):
    """Column of finished steps per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Any) -> Any:
        self.text_format = f"{task.speed:.3g}/s" if task.speed else "-/s"
        return super().render(task)


class Counting(Callback):
    """Callback that calls ``advance`` whenever one of the named tasks of a local scheduler ends."""

    def __init__(self, names: set[Any], advance: Callable[[], None]) -> None:
        super().__init__()
        self._names, self._advance = names, advance

    def _posttask(self, key: Any, *_: Any) -> None:
        if key in self._names:
            self._advance()
