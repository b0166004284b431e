"""Owner of a lock, a process, and whether it still lives."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

EVERY = 10.0
"""Seconds between two heartbeats of a lock."""
LONGEST = 600.0
"""Most seconds between heartbeats that are accepted from a lock."""
NAMESPACE = "/proc/self/ns/pid"
BOOT = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock, as the lock describes it.

    ``machine`` tells hosts of the same name apart, ``space`` process numbers of containers on one
    host, and ``started`` a process from a later one with the same number.
    """

    run: str = ""
    host: str = ""
    space: str = ""
    pid: int = 0
    started: float = 0.0
    every: float = EVERY
    beat: int = 0
    machine: str = ""

    @classmethod
    def here(cls, run: str) -> Holder:
        """Return the holder that this process is."""
        me, started = _process(os.getpid())
        machine = _machine()
        return cls(run, platform.node(), _space(), me.pid, started, machine=machine)

    @classmethod
    def parse(cls, content: bytes) -> Holder:
        """Read the holder from a lock; an unknown holder if the content is unreadable."""
        try:
            record = json.loads(content)
            fields: dict[str, Any] = {
                **{name: str(record[name]) for name in ("run", "host", "space")},
                **{name: float(record[name]) for name in ("started", "every")},
                **{name: int(record[name]) for name in ("pid", "beat")},
                "machine": str(record.get("machine", "")),  # locks of earlier versions have none
            }
        except (ValueError, TypeError, KeyError, OverflowError):
            return cls()
        return cls(**fields) if 0 < fields["every"] <= LONGEST else cls()

    def content(self) -> bytes:
        """Return the lock as it is stored."""
        return json.dumps(dataclasses.asdict(self)).encode()

    def alive(self) -> bool | None:
        """Return whether the process runs; None where that cannot be asked from here."""
        if not self.machine or (self.machine, self.space) != (_machine(), _space()):
            return None
        try:
            process, started = _process(self.pid)
            same = abs(started - self.started) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False

    def is_near(self) -> bool:
        """Return whether it is a process of this machine, or of one that has or had its name."""
        return self.host == platform.node() or self.alive() is not None

    def __str__(self) -> str:
        if not self.run:
            return "an unknown run"
        return f"process {self.pid} on host {self.host}"


def _space() -> str:
    return os.readlink(NAMESPACE) if os.path.exists(NAMESPACE) else ""


def _machine() -> str:
    """Return an identifier that only this machine has, until it restarts; "" if there is none.

    On Linux it is the number that the kernel drew at boot: unlike a machine-id it is not copied
    with an image, and process numbers mean nothing beyond that boot.  Elsewhere it is the address
    of a network card, unless it is made up, as those of virtual machines are.
    """
    if os.path.exists(BOOT):
        return Path(BOOT).read_text().strip()
    node = uuid.getnode()
    made_up = (node >> 40) & 0b11  # a group address, or one administered locally
    return "" if made_up else f"{node:012x}"


def _process(pid: int) -> tuple[psutil.Process, float]:
    """Return a process and when it started; on Linux since boot, which no clock change moves.

    Earlier versions of psutil add the boot time that was asked for last, so it is asked for anew,
    and first.
    """
    boot = psutil.boot_time() if psutil.LINUX else 0.0
    process = psutil.Process(pid)
    return process, process.create_time() - boot
