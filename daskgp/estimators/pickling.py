"""Pickled estimators: what would stay behind with the process goes along, or is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from daskgp import data
from daskgp.errors import SettingError
from daskgp.fit.scratch import goes_with_the_process
from daskgp.predict.posterior import Solved

CARRIED_BYTES = 64 << 20
"""Most bytes of training rows in a temporary store that a pickled estimator carries."""


class Pickled:
    """An estimator that can be pickled, and copied within a process."""

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled; SettingError where training rows would be left behind."""
        found: Any = super().__getstate__()
        state = dict(found)
        if isinstance(state.get("solved_"), Solved):
            state["solved_"] = _carried(state["solved_"], type(self).__name__)
        return state

    def __copy__(self) -> Any:
        """Copy within this process, where temporary rows stay where they are."""
        return self._twin(vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """As ``__copy__``, with all that is in memory."""
        twin = memo[id(self)] = self._twin({})
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def _twin(self, state: dict[str, Any]) -> Any:
        twin = type(self).__new__(type(self))
        vars(twin).update(state)
        return twin


def _carried(solved: Solved, name: str) -> Solved:
    """Return a fitted method that does without temporary stores: few rows move into memory."""
    kept = solved.kept
    if kept is None or not goes_with_the_process(kept.rows):
        return solved
    size = kept.rows.X.nbytes + kept.rows.y.nbytes
    if size > CARRIED_BYTES:
        raise SettingError(
            f"the training rows of this {name} ({size / 2**20:,.0f} MiB) lie in a temporary store "
            "that goes with this process, and cannot be pickled with it: fit with store= a folder "
            "or URL that lasts, or use save() and daskgp.load"
        )
    X, y = data.all_of(kept.rows.X), data.all_of(kept.rows.y)
    return replace(solved, kept=replace(kept, rows=replace(kept.rows, X=X, y=y, identity=None)))
