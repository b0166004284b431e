"""SparseSpectrumGP: random cosines and sines in place of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskgp.checks import whole
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Requirements
from daskgp.estimators.settings import kernel_of
from daskgp.fit import rounds
from daskgp.fit.inputs import Inputs
from daskgp.kernels import RBF, Kernel
from daskgp.kernels.spectrum import check_spectrum, sample_spectrum
from daskgp.models import scaling
from daskgp.models.sparse.ssgp import SparseSpectrum, frequencies


@dataclass(eq=False, repr=False, kw_only=True)
class SparseSpectrumGP(GaussianProcess):
    """Sparse-spectrum GP regression: a linear model on random cosines and sines.

    The method of Lázaro-Gredilla et al. (2010), [SSGP].  The frequencies are drawn from the
    kernel's spectral density, so the model tends to the GP as their number grows.  A value and
    gradient costs 12 n m² operations, a prediction with its variance 4 m² per row, and nothing that
    is kept grows with n.  Away from the data the variance is too small: see the method's page.

    Parameters
    ----------
    kernel : Kernel or str, optional
        RBF, Matern12, Matern32 or Matern52; default ``RBF(ard=True)``.  Lengthscales that are not
        given start at median distances.
    n_spectral : int
        Number m of spectral points; the model has 2 m features.
    train_spectral : bool
        Whether training also moves the spectral points.
    random_state : int
        Seed of the spectral points and of samples.

    Attributes
    ----------
    frequencies_ : ndarray (m, d), in radians per unit of X
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the log evidence of all standardised rows

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.SparseSpectrumGP(n_spectral=20).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "ssgp"
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "train_spectral": (TRAINED,),
    }

    n_spectral: int = 256
    train_spectral: bool = False
    train_blocks: int | None = None

    @property
    def frequencies_(self) -> np.ndarray:
        """Angular frequencies (m, d) of the features, in radians per unit of X, or km.

        A place on the sphere has three columns, x, y and z.
        """
        angular: np.ndarray = frequencies(self._one.theta) / self._one.scaling.x_scale
        return angular

    def _model(self) -> SparseSpectrum:
        return SparseSpectrum()

    def _kernels(self) -> list[Kernel]:
        # spectra of rough kernels have heavy tails: there is nothing to choose
        kernel = RBF(ard=True) if self.kernel is None else kernel_of(self.kernel)
        check_spectrum(kernel)
        return [kernel]

    @property
    def _inputs(self) -> SpectralPoints:
        number = whole("n_spectral", self.n_spectral, 1)
        return SpectralPoints(
            number, "spectral points", self.train_spectral, seed=self.random_state
        )


@dataclass(frozen=True, kw_only=True)
class SpectralPoints(Inputs):
    """Points drawn from the spectral density of the kernel; they are no places among the data."""

    seed: int | None

    takes_categories: ClassVar[bool] = False

    def check(self, n: int) -> None:
        """Allow any number: one row is enough."""

    def choose(self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel) -> np.ndarray:
        """Return points (m, d) drawn from the spectral density."""
        return sample_spectrum(
            kernel, self.count, sample.shape[1], np.random.default_rng(self.seed)
        )

    def takes(self, others: Inputs) -> bool:
        """Return True for other spectral points."""
        return isinstance(others, SpectralPoints)

    def moved(self, inputs: np.ndarray, then: scaling.Scaling, now: scaling.Scaling) -> np.ndarray:
        """Return the points themselves: they have no unit."""
        return inputs

    def warn(self, *_: Any) -> None:
        """Warn of nothing."""
