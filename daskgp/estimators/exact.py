"""ExactGP: the reference for data that fits on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from daskgp.estimators.base import GaussianProcess
from daskgp.fit.recipe import Traits
from daskgp.fit.training import OnAll
from daskgp.models.exact import Exact


@dataclass(eq=False, repr=False, kw_only=True)
class ExactGP(GaussianProcess):
    """Exact GP regression by one Cholesky factor, for small data.

    A fit costs n³ operations and 8 n² bytes several times over; ``fit`` refuses data that does not
    fit in the machine's memory.

    Attributes
    ----------
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = daskgp.ExactGP().fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "exact"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0)

    def _model(self) -> Exact:
        return Exact()

    def _trainer(self) -> OnAll:
        return OnAll()
