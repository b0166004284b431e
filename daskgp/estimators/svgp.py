"""Sparse variational GP: a decoupled GP whose mean and covariance share their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from daskgp.estimators.requirements import Needs, Requirements, among, chosen
from daskgp.estimators.variational import STREAM, VariationalGP
from daskgp.fit.inputs import WAYS, Inputs


@dataclass(eq=False, repr=False, kw_only=True)
class SVGP(VariationalGP):
    """Stochastic variational GP: inducing inputs learned by mini-batches, any likelihood.

    Hensman et al. (2013, 2015), the coupled form of [DGP]: a step costs time of order
    batch_rows m² + m³ whatever the number of rows, which stay on disk.  With a Gaussian likelihood
    its optimum is that of ``SGPR``, which has no mini-batch noise but passes over all rows.

    Parameters
    ----------
    n_inducing : int
        Number m of inducing inputs.
    inducing : {"greedy", "kmeans", "random", "stream"} or array-like (m, d)
        How inducing inputs are chosen, from a sample of rows or from batches ("stream"), or the
        inputs themselves, in the units of X.
    natural : float, optional
        Rate of natural gradients for q; None leaves q to Adam.
    hyperparameters : {"bound", "subset"}
        As in ``DecoupledGP``.

    Attributes
    ----------
    inducing_ : ndarray (m, d), in the units of X

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 500)[:, None]
    >>> y = (np.sin(12 * X[:, 0]) > 0).astype(float)
    >>> model = daskgp.SVGP(n_inducing=20, likelihood="bernoulli", max_iter=100).fit(X, y)
    >>> bool(model.predict_proba(np.array([[0.1]]))[0, 1] > 0.8)
    True
    """

    model_name: ClassVar[str] = "svgp"
    requirements: ClassVar[Requirements] = {
        **VariationalGP.requirements,
        "n_inducing": (chosen("inducing", *WAYS, STREAM),),
        "n_added": (among("inducing", STREAM),),
        "learning_rate": (
            Needs(
                "natural",
                lambda gp: gp.natural is None or gp.train_points or gp._learns,
                "choose train_points=True or natural=None",
            ),
        ),
    }

    n_inducing: int = 512
    natural: float | None = 0.1
    hyperparameters: Literal["subset", "bound"] = "bound"

    @property
    def inducing_(self) -> np.ndarray:
        """Inducing inputs (m, d) in the units of X."""
        return self._in_units(self._one.state.covariance_points)

    @property
    def _inputs(self) -> Inputs:
        return self._inducing_inputs("n_inducing", Inputs.label)
