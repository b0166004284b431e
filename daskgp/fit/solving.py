"""A solve by conjugate gradients, which trains nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from daskgp.data.stores.checkpoints import Place
from daskgp.fit.plan import Workload, rows_bytes
from daskgp.fit.recipe import Outcome, Recipe
from daskgp.fit.rounds import Rounds
from daskgp.fit.subset import Start
from daskgp.fit.task import HELD_POINTS
from daskgp.fit.training import OnBlocks
from daskgp.models.actions.cggp import CGGP
from daskgp.models.actions.passes import Paired
from daskgp.models.scaling import Sums
from daskgp.posterior import action_points

logger = logging.getLogger("daskgp")


@dataclass(frozen=True)
class BySteps(OnBlocks):
    """Steps of conjugate gradients until the relative residual is ``tol``."""

    tol: float

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit whose steps pair all rows with all rows."""
        rows, n = work.rows, len(work.rows)
        return replace(
            work,
            window_rows=max(work.largest, min(n, HELD_POINTS)),
            near_rows=n,
            written=work.written + (0 if isinstance(rows.X, np.ndarray) else rows_bytes(rows)),
            iterations=recipe.max_iter,
        )

    def learn(
        self,
        recipe: Recipe,
        stage: Rounds,
        begun: Start,
        sums: Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        """Solve for the weights of all rows, which are kept at ``keep``."""
        theta, rows, quiet = begun.theta, stage.rows, stage.quiet
        pairs = Paired(quiet, quiet, int(sums.rows), rows.n_targets, 0)
        solution = cast(CGGP, recipe.method).weights(theta, pairs, self.tol, recipe.max_iter)
        if solution.residual > 2 * self.tol:
            logger.warning(
                "conjugate gradients stopped after %d steps at a relative residual of %.2g: raise "
                "max_iter or the noise variance",
                solution.steps,
                solution.residual,
            )
        plain = rows.with_arrays({"X": rows.X, "y": rows.y})
        values = np.where(pairs.complete[:, None], solution.weights, np.nan)
        kept = action_points.keep(plain, values, None, stage.executor, keep)
        state = CGGP.state_type(np.array(pairs.complete.sum(), np.int64))
        left = solution.steps, solution.residual
        return Outcome(stage, theta, state, None, [], kept, left=left)
