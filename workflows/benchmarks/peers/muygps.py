"""MuyGPyS: kriging from the nearest rows, trained by leaving rows out."""

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

BATCH_ROWS, NEIGHBOURS, PREDICTED = 1_000, 50, 250
"""Rows left out in training, rows that they are conditioned on, and places at a time."""


def fitted(split: Split, task: Task) -> Outcome:
    """Train lengthscales and noise by the leave-one-out likelihood until the time is up."""
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
    scales = [Parameter(middle, (1e-3 * middle, 1e2 * middle)) for _ in X.T]
    if task.isotropic:
        deformation = Isotropy(l2, length_scale=scales[0])
    else:
        deformation = Anisotropy(l2, length_scale=VectorParameter(*scales))
    model = MuyGPS(
        kernel=Matern(smoothness=Parameter(task.smoothness), deformation=deformation),
        noise=HomoscedasticNoise(0.1, (1e-6, 10.0)),
        scale=AnalyticScale(),
    )

    def ended(found: object) -> None:
        if clock.over:
            raise StopIteration

    near = NN_Wrapper(X, min(NEIGHBOURS, n // 4), nn_method="exact", algorithm="auto")
    batch, indices = sample_batch(near, min(BATCH_ROWS, n // 2), n)
    crosswise, pairwise, targets, near_targets = model.make_train_tensors(batch, indices, X, y)
    tensors = targets, near_targets, crosswise, pairwise
    model = L_BFGS_B_optimize(model, *tensors, loss_fn=lool_fn, callback=ended)
    model = model.optimize_scale(pairwise, near_targets)
    fitted = clock.seconds
    near = NN_Wrapper(X, min(task.neighbours, n // 2), nn_method="exact", algorithm="auto")
    parts = []
    for start in range(0, len(split.X_test), PREDICTED):
        places = split.X_test[start : start + PREDICTED]
        own, indices = np.arange(len(places)), near.get_nns(places)[0]
        crosswise, pairwise, values = model.make_predict_tensors(own, indices, places, X, y)
        K, k = model.kernel(pairwise), model.kernel(crosswise)
        variance = model.posterior_variance(K, k) + model.scale() * model.noise()
        parts.append((np.ravel(model.posterior_mean(K, k, values)), np.ravel(variance)))
    moments = map(np.concatenate, zip(*parts, strict=True))
    remarks = {"noise": float(model.noise()), "scale": float(model.scale())}
    return Outcome(fitted, clock.seconds - fitted, *moments, remarks)
