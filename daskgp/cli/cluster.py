"""Cluster on which the tasks of a command run, and the options that describe it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from daskgp.cli.run import plugins
from daskgp.errors import SettingError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from daskgp.runtime.executor import Executor
    from daskgp.typing import Device

logger: logging.Logger = logging.getLogger("daskgp")


class Workers(NamedTuple):
    """Options that say where tasks run, ``--scheduler``, ``--workers`` and ``--memory-limit``."""

    scheduler: str | None
    workers: int | None
    memory_limit: str | None

    def check(self) -> None:
        """Raise SettingError for options that exclude one another."""
        if self.scheduler and (self.workers or self.memory_limit):
            raise SettingError(
                "--workers and --memory-limit are for the local cluster: leave them out, or "
                "leave out --scheduler"
            )

    @property
    def chosen(self) -> bool:
        """Return True if an option asks for a cluster."""
        return any(self)

    def come(self, *modules: str) -> None:
        """Begin to start a local cluster, whose workers get modules while the command imports."""
        self.check()
        if not self.scheduler:
            from daskgp.runtime import ahead

            ahead.start("daskgp.cli.workers", *modules)

    def executor_if(self, needed: bool, device: Device) -> AbstractContextManager[Executor]:
        """Return the context of the cluster, or of this process where none is needed."""
        from daskgp.runtime.executor import Executor

        return self.executor(device) if needed else nullcontext(Executor(None))

    @contextmanager
    def executor(self, device: Device = "cpu", start: bool = True) -> Iterator[Executor]:
        """Yield the cluster at ``--scheduler``, or a local one for as long as the command runs.

        Without ``start``, no local cluster is started and this process is used.
        """
        from daskgp.runtime import versions
        from daskgp.runtime.connect import connect
        from daskgp.runtime.executor import Executor, chosen

        if not (start or self.scheduler):
            yield Executor.current(device=device)
            return
        level = logging.WARNING if logger.isEnabledFor(logging.DEBUG) else logging.CRITICAL
        logging.getLogger("distributed").setLevel(level)
        with connect(
            self.scheduler,
            n_workers=self.workers,
            memory_limit=self.memory_limit or "auto",
            log_level=level,
            device=device,
        ) as client:
            if self.scheduler and (names := plugins()):
                versions.check_modules(client, names)
            executor = Executor.current(device=device)
            if logger.isEnabledFor(logging.INFO):
                logger.info("tasks compute on the %s", chosen(executor, device))
            yield executor
