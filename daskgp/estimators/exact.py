"""ExactGP: the reference for data that fits one machine."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from daskgp import data
from daskgp.estimators.base import GaussianProcess
from daskgp.fit import plan as planning
from daskgp.fit import refusal, timing
from daskgp.kernels import Kernel
from daskgp.models.exact import Exact
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Device, MeanName, OptimizerName


class ExactGP(GaussianProcess):
    """Exact GP regression by one Cholesky factor, for small data.

    A fit costs n³ operations and 8 n² bytes several times over; ``fit`` refuses what does not fit
    the machine's memory.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order 1/2, 3/2 or 5/2 with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Lengthscales
        that are not given start where the evidence of the subset is largest.
    noise_variance : float
        Initial noise variance, in units of the standardised y.
    mean, standardize, optimizer, learning_rate, max_iter, tol, block_rows, dtype, device, store, \
random_state, progress
        As in ``SGPR``.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = daskgp.ExactGP().fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "exact"

    def __init__(
        self,
        kernel: Kernel | str | None = None,
        *,
        noise_variance: float = 0.1,
        mean: MeanName = "constant",
        standardize: bool = True,
        optimizer: OptimizerName | None = "auto",
        learning_rate: float = 0.05,
        max_iter: int = 100,
        tol: float = 0.1,
        block_rows: int | None = None,
        dtype: str = "float64",
        device: Device = "auto",
        store: str | None = None,
        random_state: int | None = 0,
        progress: ShowProgress = "auto",
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.mean = mean
        self.standardize = standardize
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.block_rows = block_rows
        self.dtype = dtype
        self.device = device
        self.store = store
        self.random_state = random_state
        self.progress = progress

    def _model(self) -> Exact:
        return Exact()

    def _refuse_plan(self, plan: planning.Plan, rows: data.Rows, limit: int | None) -> None:
        wide, fewer = partial(self._planned_wide, rows), "fewer rows or another method"
        refusal.refuse(plan, limit, wide, fewer)

    def _probes(self, rows: data.Rows, threads: int) -> list[timing.Probe]:
        numbers = sorted({min(len(rows), number) for number in (1_536, 3_072)})
        return [timing.Probe(self._quick(), number) for number in numbers]
