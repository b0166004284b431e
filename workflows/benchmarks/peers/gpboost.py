"""GPBoost's Vecchia approximations."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

TABLES: dict[str, Any] = {
    "cov_function": "matern_ard",
    "cov_fct_shape": 1.5,
    "vecchia_ordering": "random",
}
FIELDS: dict[str, Any] = {"cov_function": "exponential"}
APART: dict[str, Any] = {"cov_function": "matern_ard", "cov_fct_shape": 0.5}


def _fitted(
    split: Split,
    predicting: int,
    mean: bool,
    settings: dict[str, Any],
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    import gpboost

    ones, places = (
        {name: np.ones((len(rows), 1))} if mean else {}
        for name, rows in (("X", split.X), ("X_pred", split.X_test))
    )
    began = clock()
    model = gpboost.GPModel(gp_coords=split.X, **settings)
    model.fit(y=split.y, **ones)
    fitted = clock()
    model.set_prediction_data(num_neighbors_pred=predicting)
    found = model.predict(
        gp_coords_pred=split.X_test, **places, predict_var=True, predict_response=True
    )
    done = clock()
    parameters = [float(value) for value in np.ravel(model.get_cov_pars(std_err=False))]
    remarks = {"parameters": parameters}
    return Outcome(fitted - began, done - fitted, found["mu"], found["var"], remarks)


def vecchia(split: Split, threads: int) -> Outcome:
    """Fit with 20 neighbours and a lengthscale per feature, and predict with 60."""
    own = {"gp_approx": "vecchia", "num_neighbors": 20, "num_parallel_threads": threads}
    return _fitted(split, 60, False, TABLES | own)


def full_scale_vecchia(split: Split, threads: int) -> Outcome:
    """Fit what 200 inducing points leave with 30 neighbours, and predict with 60."""
    own = {"gp_approx": "full_scale_vecchia", "num_neighbors": 30, "num_parallel_threads": threads}
    own["num_ind_points"] = min(200, len(split.y) // 4)
    return _fitted(split, 60, False, TABLES | own)


def matern32(split: Split, threads: int) -> Outcome:
    """Fit a Matérn-3/2 field of a lengthscale per column, 20 neighbours and a constant mean."""
    own = {"gp_approx": "vecchia", "num_neighbors": 20, "num_parallel_threads": threads}
    return _fitted(split, 60, True, TABLES | own)


def exponential(split: Split, threads: int) -> Outcome:
    """Fit a field with 20 neighbours and a constant mean, and predict with 50."""
    own = {"gp_approx": "vecchia", "num_neighbors": 20, "num_parallel_threads": threads}
    found = _fitted(split, 50, True, FIELDS | own)
    noise, variance, reach = found.remarks["parameters"]
    remark = f"noise {noise:.3g}, variance {variance:.3g}, range {reach:.3g}"
    return found._replace(remarks={"remark": remark})


def exponential_ard(split: Split, threads: int) -> Outcome:
    """Fit a field with a lengthscale per feature, with 20 neighbours and a constant mean."""
    own = {"gp_approx": "vecchia", "num_neighbors": 20, "num_parallel_threads": threads}
    return _fitted(split, 50, True, APART | own)


def told(split: Split, task: Task, inducing: int = 0) -> Outcome:
    """Fit a Matérn kernel of the task with 20 neighbours and a constant mean.

    With inducing points it is full-scale Vecchia.
    """
    own: dict[str, Any] = {
        "cov_function": "matern" if task.isotropic else "matern_ard",
        "cov_fct_shape": task.smoothness,
        "gp_approx": "full_scale_vecchia" if inducing else "vecchia",
        "num_neighbors": 20,
        "vecchia_ordering": "random",
        "num_parallel_threads": task.threads,
    }
    if inducing:
        own["num_ind_points"] = min(inducing, len(split.y) // 4)
    return _fitted(split, task.neighbours, True, own, time.process_time)


def full_scale(split: Split, task: Task) -> Outcome:
    """Fit full-scale Vecchia of the task with 100 inducing points: more exceed the budget."""
    return told(split, task, 100)
