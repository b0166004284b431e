"""DecoupledGP: a mean of many functions and a covariance of few; SVGP has the same for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from daskgp.checks import positive, whole
from daskgp.errors import SettingError
from daskgp.estimators.requirements import Needs, Requirements, among, chosen
from daskgp.estimators.variational import STREAM, VariationalGP
from daskgp.fit.by_batches import Form
from daskgp.fit.inputs import WAYS, Inputs
from daskgp.fit.svi import Precondition
from daskgp.kernels import RBF, Kernel

OWN_MEAN = Needs(
    "n_mean",
    lambda gp: gp._n_mean() > 0,
    "choose n_mean greater than n_covariance",
)


@dataclass(eq=False, repr=False, kw_only=True)
class DecoupledGP(VariationalGP):
    """Variational GP whose mean has many more functions than its covariance, by mini-batches.

    [DGP] (Cheng & Boots 2017): a step costs time and memory linear in ``n_mean``, so the mean can
    be as fine as the data allow, while ``n_covariance`` functions give the variance, which is
    never below that of SVGP with as many functions, at its optimum for the same kernel.  Rows are
    read from disk batch by batch, shuffled chunk by chunk and ahead of time.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default ``Matern32(ard=True)``, ``RBF(ard=True)`` with a generalised basis; lengthscales
        that are not given start at median distances.
    n_mean : int, optional
        Functions of the mean, those of the covariance included unless ``share=False``; default
        4,096 or as many as rows.  They begin at rows of batches, ``n_added`` per step.
    n_covariance : int
        Functions of the covariance.
    basis : {"kernel", "se-ard", "generalized"}
        Functions k(., z); the same for an RBF kernel, by its name in the paper; or functions with
        lengthscales of their own (eq. 19, RBF only).
    parametrization : {"hybrid", "direct"}
        Parametrization of the posterior: eqs. 11-14, whitened, which learns faster; or eqs. 7-9.
    share : bool
        Whether the mean also has the covariance's functions, in the direct form; the hybrid form
        always shares.
    inducing : {"greedy", "kmeans", "random", "stream"} or array-like (n_covariance, d)
        How inputs of the covariance's functions are chosen: from a sample of rows, or from batches
        as for the mean ("stream"); or the inputs themselves, in the units of X.
    natural : float, "auto" or None
        Rate of the natural gradients by which the hybrid form learns q on the covariance's
        functions, "auto" being 0.1 there.  None leaves q to Adam.
    precondition : {"blocks", "jacobi", None}
        Coordinates in which the mean's weights are learned: whitened among neighbours, divided
        by the variances of their functions (App. A.1), or as they are.
    n_columns : int, optional
        Functions of the mean drawn for each step, from which its quadratic form is estimated;
        default as many as the rows of the step.
    train_mean_points : bool
        Whether training moves the functions of the mean alone, with their lengthscales if they have
        any.
    hyperparameters : {"auto", "subset", "bound"}
        Where kernel and noise variance come from: the exact evidence of ``n_subset`` random rows,
        or the bound as training goes on.  The bound makes the noise cover what few functions of
        the covariance leave unexplained, which costs accuracy of the mean; "auto" is "subset" for
        a Gaussian likelihood and "bound" for others.
    mean_learning_rate : float, optional
        Learning rate of the mean's weights, whose coordinates are of size one; default ten times
        ``learning_rate``.

    Attributes
    ----------
    mean_points_, covariance_points_ : ndarray (m, d), in the units of X

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 500)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.DecoupledGP(n_mean=100, n_covariance=20, max_iter=100).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 0.05)
    True
    """

    model_name: ClassVar[str] = "decoupled"
    requirements: ClassVar[Requirements] = {
        **VariationalGP.requirements,
        "n_covariance": (chosen("inducing", *WAYS, STREAM),),
        "share": (among("parametrization", "direct"),),
        "natural": (among("parametrization", "hybrid"),),
        "n_added": (
            Needs("n_mean", lambda gp: gp._grows, "choose n_mean greater than n_covariance"),
        ),
        "precondition": (OWN_MEAN,),
        "n_columns": (OWN_MEAN,),
        "train_mean_points": (OWN_MEAN,),
        "mean_learning_rate": (Needs("n_mean", lambda gp: gp._learns_mean, OWN_MEAN.remedy),),
    }

    n_mean: int | None = None
    n_covariance: int = 128
    basis: Literal["kernel", "se-ard", "generalized"] = "kernel"
    parametrization: Literal["hybrid", "direct"] = "hybrid"
    share: bool = True
    precondition: Precondition = "blocks"
    n_columns: int | None = None
    train_mean_points: bool = False
    mean_learning_rate: float | None = None

    @property
    def covariance_points_(self) -> np.ndarray:
        """Places (n_covariance, d) of the covariance's functions, in the units of X."""
        return self._in_units(self._one.state.covariance_points)

    @property
    def mean_points_(self) -> np.ndarray:
        """Places (n_mean, d) of the mean's functions, in the units of X; shared ones first."""
        state, shared = self._one.state, self._form.shared
        own = [state.covariance_points] if shared else []
        return self._in_units(np.concatenate([*own, state.mean_points]))

    @property
    def _form(self) -> Form:
        hybrid = self.parametrization == "hybrid"
        natural, source = self.natural, self.hyperparameters
        if isinstance(natural, str) and natural == "auto":
            natural = 0.1 if hybrid else None
        if source == "auto":
            source = "subset" if self.likelihood == "gaussian" else "bound"
        return Form(
            natural,
            source,
            self.parametrization,
            "generalized" if self.basis == "generalized" else "kernel",
            shared=hybrid or self.share,
            decoupled=True,
            n_mean=self.n_mean,
            precondition=self.precondition,
            mean_rate=self.mean_learning_rate,
            moves_mean=self.train_mean_points,
            basis_asked=self.basis,
        )

    @property
    def _grows(self) -> bool:
        """True if functions are added step by step."""
        streamed = isinstance(self.inducing, str) and self.inducing == STREAM
        return streamed or self._n_mean() > 0

    @property
    def _learns_mean(self) -> bool:
        """True if Adam moves weights of the mean at their own rate."""
        form = self._form
        return self._n_mean() > 0 or (form.parametrization == "hybrid" and form.natural is None)

    def _kernels(self) -> Sequence[Kernel]:
        if self.kernel is None and self.basis != "kernel":
            return [RBF(ard=True)]
        return super()._kernels()

    @property
    def _inputs(self) -> Inputs:
        return self._inducing_inputs("n_covariance", "functions of the covariance")

    def _check_own(self) -> None:
        if self.mean_learning_rate is not None:
            positive("mean_learning_rate", self.mean_learning_rate)
        number = self._inputs.count
        most = number if self.n_mean is None else whole("n_mean", self.n_mean, 1)
        if self._form.shared and number > most:
            raise SettingError(
                f"n_covariance={number} exceeds n_mean={self.n_mean}, which counts those of the "
                "covariance too: raise n_mean, or choose parametrization='direct' and share=False"
            )
        super()._check_own()
