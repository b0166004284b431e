"""fvGP's gp2Scale: exact, with a compactly supported kernel and a sparse matrix."""

import time

import numpy as np
from datasets import Split
from harness import Outcome

ROWS, RADIUS = 20_000, 0.2
"""Rows of a log-likelihood, and the radius in degrees beyond which the kernel is zero."""


def log_likelihood(split: Split, threads: int) -> Outcome:
    """Evaluate one log-likelihood with fvGP's own kernel and settings: a time, no prediction."""
    import fvgp
    import imate  # noqa: F401  what gp2Scale needs besides
    from distributed import Client

    small = split.thinned(ROWS)
    y = small.y - small.y.mean()
    asked = np.array([y.var(), RADIUS, RADIUS])
    with Client(n_workers=threads, threads_per_worker=1, dashboard_address=None) as client:
        model = fvgp.GP(
            small.X,
            y,
            init_hyperparameters=np.array([y.var(), 1.05 * RADIUS, 1.05 * RADIUS]),
            noise_variances=np.full(len(y), 0.05 * y.var()),
            gp2Scale=True,
            gp2Scale_batch_size=max(1, len(y) // 4),
            dask_client=client,
        )
        began = time.perf_counter()
        value = float(np.ravel(model.log_likelihood(asked))[0])
        seconds = time.perf_counter() - began
        filled = model.prior.K.nnz / len(y) ** 2
    remark = f"one log-likelihood of {len(y):,} rows ({value:.6g}), {filled:.1%} non-zero"
    return Outcome(seconds, remarks={"remark": remark})
