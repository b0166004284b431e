"""Targets that are codes or counts, for which a method has a likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskgp import data
from daskgp.data.partition import Span
from daskgp.likelihoods import Likelihood
from daskgp.models.scaling import complete_rows
from daskgp.runtime.executor import Executor, map_all


def check(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, likelihood: Likelihood
) -> None:
    """Raise InputError for targets of complete rows outside the support of a likelihood."""

    def wrong(span: Span) -> list[np.ndarray]:
        X, y = rows.read(*span)
        y = y[complete_rows(X, y), : rows.n_targets]
        return [y[(~likelihood.supports(y)).any(axis=1)]]

    outside = map_all(wrong, spans, executor, "targets")
    likelihood.check(np.concatenate(outside), rows.target_names)
