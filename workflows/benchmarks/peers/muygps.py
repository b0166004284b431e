"""MuyGPyS: kriging from the nearest rows, trained by leaving rows out."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

BATCH_ROWS, NEIGHBOURS, PREDICTED = 1_000, 50, 250
"""Rows left out in training, rows that they are conditioned on, and places at a time."""
STARTS = [(length, noise) for length in (1.0, 0.2, 0.05) for noise in (0.1, 0.001)]
"""Lengthscales over the median distance, and noise over the scale."""


def fitted(split: Split, task: Task) -> Outcome:
    """Train lengthscales and noise by the leave-one-out likelihood until the time is up.

    L-BFGS starts from the best of six places: without logarithms it does not get far.
    """
    from MuyGPyS.gp import MuyGPS
    from MuyGPyS.gp.deformation import Anisotropy, Isotropy, l2
    from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter, VectorParameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise
    from MuyGPyS.neighbors import NN_Wrapper
    from MuyGPyS.optimize import L_BFGS_B_optimize
    from MuyGPyS.optimize.batch import sample_batch
    from MuyGPyS.optimize.loss import lool_fn

    clock, n = task.clock(), len(split.y)
    np.random.seed(0)  # noqa: NPY002  what its batches are drawn with
    X, y = (np.ascontiguousarray(part) for part in split[:2])
    middle = float(task.kernel(split).lengthscale[0])  # type: ignore[attr-defined]

    def started(length: float, noise: float) -> MuyGPS:
        bounds = (1e-3 * middle, 1e2 * middle)
        scales = [Parameter(length * middle, bounds) for _ in X.T]
        if task.isotropic:
            deformation = Isotropy(l2, length_scale=scales[0])
        else:
            deformation = Anisotropy(l2, length_scale=VectorParameter(*scales))
        kernel = Matern(smoothness=Parameter(task.smoothness), deformation=deformation)
        errors = HomoscedasticNoise(noise, (1e-6, 10.0))
        return MuyGPS(kernel=kernel, noise=errors, scale=AnalyticScale())

    def likelihood(model: MuyGPS) -> float:
        names, values, _ = model.get_opt_params()
        judge = L_BFGS_B_optimize.make_obj_fn(model, *tensors, loss_fn=lool_fn)
        return float(judge(**dict(zip(names, values, strict=True))))

    def ended(found: object) -> None:
        if clock.over:
            raise StopIteration

    near = NN_Wrapper(X, min(NEIGHBOURS, n // 4), nn_method="exact", algorithm="auto")
    models = [started(*place) for place in STARTS]
    batch, indices = sample_batch(near, min(BATCH_ROWS, n // 2), n)
    crosswise, pairwise, targets, near_targets = models[0].make_train_tensors(batch, indices, X, y)
    tensors = targets, near_targets, crosswise, pairwise
    model = max(models, key=likelihood)
    model = L_BFGS_B_optimize(model, *tensors, loss_fn=lool_fn, callback=ended)
    model = model.optimize_scale(pairwise, near_targets)
    fitted = clock.seconds
    moments = predicted(model, split, task)
    remarks = {"noise": float(model.noise()), "scale": float(model.scale())}
    return Outcome(fitted, clock.seconds - fitted, *moments, remarks)


def predicted(model: Any, split: Split, task: Task) -> Iterator[np.ndarray]:
    """Return mean and variance (n,) of y at the places."""
    from MuyGPyS.neighbors import NN_Wrapper

    X, y, parts = *(np.ascontiguousarray(part) for part in split[:2]), []
    near = NN_Wrapper(X, min(task.neighbours, len(y) // 2), nn_method="exact", algorithm="auto")
    for start in range(0, len(split.X_test), PREDICTED):
        places = split.X_test[start : start + PREDICTED]
        own, indices = np.arange(len(places)), near.get_nns(places)[0]
        crosswise, pairwise, values = model.make_predict_tensors(own, indices, places, X, y)
        K, k = model.kernel(pairwise), model.kernel(crosswise)
        variance = model.posterior_variance(K, k) + model.scale() * model.noise()
        parts.append((np.ravel(model.posterior_mean(K, k, values)), np.ravel(variance)))
    return map(np.concatenate, zip(*parts, strict=True))
