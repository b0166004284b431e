"""The record that a run of ``predict`` leaves for whoever monitors its schedule."""

from __future__ import annotations

import importlib.metadata
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from daskgp.cli.run import outcome

if TYPE_CHECKING:
    from daskgp.data.stores.locks import Claim


class Record:
    """Record of what a run did, written when it begins to work and again when it ends.

    It goes to ``path``, or beside the output; the store remembers it too.  A run that is refused
    before it begins leaves one only if ``path`` is given.
    """

    def __init__(self, model: str, inputs: str, output: str, path: str | None) -> None:
        self._output, self._path, self._began = output, path, False
        self._start = time.perf_counter()
        self._record: dict[str, Any] = {
            "run": uuid.uuid4().hex,
            "model": model,
            "input": inputs,
            "output": output,
            "rows": None,
            "skipped": None,
            "seconds": None,
            "rows_per_second": None,
            "started": _now(),
            "finished": None,
            "exit": None,
            "error": None,
            "version": importlib.metadata.version("daskgp"),
        }

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """Wrap the whole command: ``path``, if given, receives a record however it ends."""
        try:
            yield
        except BaseException as error:
            if self._path and not self._began:
                self._end(error)
                self._write(error)
            raise

    @contextmanager
    def kept(self, claim: Claim) -> Iterator[None]:
        """Wrap the work, under the lock of the output; another run's record is left alone."""
        try:
            yield
        except BaseException as error:
            if self._began:
                self._end(error)
                self._write(error, remember=not claim.taken())
            raise
        self._end(None)
        self._write(None)

    def begin(self) -> None:
        """Record that the run is at work; if this fails, nothing has been done yet."""
        from daskgp.data.stores import run_records

        run_records.write(self._url, self._record)
        self._began = True

    def done(self, rows: int, skipped: int) -> dict[str, Any]:
        """Note what was done and return its figures."""
        seconds = self._seconds()
        rate = round(rows / max(seconds, 1e-3), 1)
        figures = {"rows": rows, "skipped": skipped, "seconds": seconds, "rows_per_second": rate}
        self._record |= figures
        return figures

    @property
    def _url(self) -> str:
        from daskgp.data.stores import run_records

        return self._path or run_records.record_url(self._output)

    def _seconds(self) -> float:
        return round(time.perf_counter() - self._start, 3)

    def _end(self, error: BaseException | None) -> None:
        code, line = (0, None) if error is None else outcome(error, resumable=True)
        self._record |= {"finished": _now(), "exit": code, "error": line}
        self._record["seconds"] = self._record["seconds"] or self._seconds()

    def _write(self, failure: BaseException | None, remember: bool = True) -> None:
        """Write the record; an error in doing so is added to the run's failure, if it failed."""
        from daskgp.data.stores import run_records

        try:
            if self._path or remember:
                run_records.write(self._url, self._record)
            if self._began and remember:
                run_records.remember(self._output, self._record)
        except Exception as error:
            if failure is None:
                raise
            if str(error) != str(failure):
                failure.add_note(str(error))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
