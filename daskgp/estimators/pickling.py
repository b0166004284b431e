"""Pickling of estimators: rows that live only as long as the process go along, or are refused."""

from __future__ import annotations

from dataclasses import replace

from daskgp import data
from daskgp.errors import SettingError
from daskgp.fit.scratch import is_temporary
from daskgp.posterior.posterior import Posterior

CARRIED_BYTES = 64 << 20
"""Maximum bytes of training rows in a temporary store that a pickled estimator carries."""


def carried(posterior: Posterior, name: str) -> Posterior:
    """Return a fitted method without temporary stores: their rows move into memory if few."""
    if posterior.each:
        return replace(posterior, each=tuple(carried(one, name) for one in posterior.each))
    kept = posterior.rows
    if kept is None or not is_temporary(kept.rows):
        return posterior
    size = sum(a.nbytes for a in kept.rows.arrays.values())
    if size > CARRIED_BYTES:
        raise SettingError(
            f"the training rows of this {name} ({size / 2**20:,.0f} MiB) lie in a temporary store "
            "that goes with this process, and cannot be pickled with it: fit with store= a folder "
            "or URL that lasts, or use save() and daskgp.load"
        )
    arrays = {name: data.all_of(a) for name, a in kept.rows.arrays.items()}
    return replace(posterior, rows=replace(kept, rows=kept.rows.with_arrays(arrays, identity=None)))
