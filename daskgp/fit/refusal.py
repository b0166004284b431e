"""Refusal of a fit that needs too much memory, before or after it, naming a setting that fits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from distributed.system import MEMORY_LIMIT

from daskgp import data
from daskgp.errors import DeviceMemoryError, MemoryRunError, PlanError
from daskgp.fit.plan import Plan
from daskgp.runtime import device_memory

SHARE = 0.7
"""Share of a worker's memory limit that a plan may use; Dask pauses workers at 0.8."""
MOST_EXPERTS = 1 << 20
"""Maximum number of experts that a refusal suggests."""


def needed(plan: Plan) -> int:
    """Return the bytes that a worker must have both to fit and to predict."""
    fitting = plan.bytes_per_worker - plan.bytes_held
    predicting = plan.bytes_predict - plan.bytes_held_predicting
    return max(fitting, predicting)


@dataclass(frozen=True)
class Knob:
    """A setting that the memory of a task depends on.

    Attributes
    ----------
    name : str
    value : int
        Its present value, chosen by the user or by default.
    units : str
        Units that tasks work on with that value, such as "blocks of 1,000 rows".
    planned : callable
        Returns the plan with another value.
    finer : bool
        Whether a larger value, such as more experts, makes smaller units.
    otherwise : str
        Advice if no value fits.
    note : str
        What else a smaller value requires before a fit.
    """

    name: str
    value: int
    units: str
    planned: Callable[[int], Plan]
    finer: bool = False
    otherwise: str = "choose fewer inputs of the method"
    note: str = ""

    def remedy(self, fits: Callable[[Plan], bool]) -> str | None:
        """Return the advice to set the nearest value whose plan fits; None if none does."""
        nearest = self._nearest(lambda value: fits(self.planned(value)))
        if nearest is None:
            return None
        side = "most" if nearest < self.value else "least"
        return f"set {self.name} to at {side} {nearest}"

    def _nearest(self, fits: Callable[[int], bool]) -> int | None:
        if not self.finer:
            return _most(self.value, fits) or None
        most = min(self.planned(self.value).rows, MOST_EXPERTS)
        steps = range(1, 64)
        tried = [v for k in steps for v in (self.value >> k, self.value << k) if 1 <= v <= most]
        tried.sort(key=lambda value: abs(np.log(value / self.value)))
        return next(filter(fits, tried), None)


def refuse(plan: Plan, limit: int | None, knob: Knob) -> None:
    """Raise PlanError if a plan needs more than a task's memory limit or the client's memory."""
    if _inside(plan, limit):
        return
    remedy = knob.remedy(lambda other: _inside(other, limit))
    if remedy is None and plan.bytes_client > SHARE * MEMORY_LIMIT:
        raise PlanError(
            f"the solve for {plan.rows} rows needs {_size(plan.bytes_client)}, this machine has "
            f"{_size(MEMORY_LIMIT)}: use fewer rows or inducing inputs, or another method"
        )
    needs = [(needed(plan), "a worker thread", limit or MEMORY_LIMIT)]
    needs += [(plan.bytes_client, "the client", MEMORY_LIMIT)]
    size, place, has = max(needs, key=lambda need: need[0] / need[2])
    advice = knob.otherwise if remedy is None else remedy + knob.note
    raise PlanError(
        f"{knob.units} need {_size(size)} in {place}, which has {_size(has)}: "
        f"{advice} or give the workers more memory"
    )


def _inside(plan: Plan, limit: int | None) -> bool:
    """Return True if a plan fits the client and a worker thread with ``limit`` bytes."""
    client = plan.bytes_client <= SHARE * MEMORY_LIMIT
    return client and (limit is None or needed(plan) <= SHARE * limit)


def _most(below: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number below a bound that fits, 0 if 1 does not."""
    fitting, too_many = 0, below
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if fits(middle):
            fitting = middle
        else:
            too_many = middle
    return fitting


def out_of_memory(
    error: MemoryRunError, plan: Plan, limit: int | None, knob: Knob
) -> MemoryRunError:
    """Return the error of tasks that ran out of memory although their plan fits, with a remedy.

    They need more than was planned, so the remedy is a setting whose plan needs half as much.
    """
    remedy = knob.remedy(lambda other: 2 * other.bytes_per_task <= plan.bytes_per_task)
    return _short_of_memory(error, knob.units, limit, remedy or knob.otherwise)


def _short_of_memory(
    error: MemoryRunError, where: str, limit: int | None, remedy: str
) -> MemoryRunError:
    if isinstance(error, DeviceMemoryError):
        if error.divided:
            return error  # blocks of any size would be cut to as few rows
        return DeviceMemoryError(error.seen, where, f"{remedy}, {device_memory.ANOTHER}")
    having = f" ({_size(limit)} a worker thread)" if limit else ""
    where = f"{where}, most likely out of memory{having}"
    return MemoryRunError(error.seen, where, f"{remedy} or give the workers more memory")


def refuse_full_disk(wanted: int, url: str) -> None:
    """Raise PlanError if a folder of this machine has less room than a fit will write to it."""
    place = data.local_folder(url)
    if place is None:
        return
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise PlanError(
            f"the fit writes up to {_size(wanted)} to {place}, which has {_size(free)} free: free "
            "some space or choose another place"
        )


def _size(number: float) -> str:
    return f"{number / 2**30:.2f} GiB"
