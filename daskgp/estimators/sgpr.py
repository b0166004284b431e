"""SGPR: the collapsed sparse GP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.requirements import TRAINED, Requirements, chosen
from daskgp.estimators.settings import JITTER
from daskgp.fit.inputs import WAYS, ChosenInputs
from daskgp.fit.recipe import Traits
from daskgp.models.sparse.sgpr import SGPR as CollapsedSparse
from daskgp.posterior.posterior import in_users_units


@dataclass(eq=False, repr=False, kw_only=True)
class SGPR(GaussianProcess):
    """Collapsed sparse GP regression, for any number of rows.

    The bound of Titsias (2009), [OPT] eqs. 11-12.  Exact under any chunking: one chunk or a
    thousand give the same numbers up to rounding.  A value and gradient costs 4 n m² operations, a
    prediction with its variance 2 m² per row, and nothing that is kept grows with n.

    Parameters
    ----------
    n_inducing : int
        Number m of inducing inputs.
    inducing : {"greedy", "kmeans", "random"} or array-like (m, d)
        How inducing inputs are chosen from a sample of rows ("greedy": largest conditional
        variance), or the inputs themselves, in the units of X.
    train_inducing : bool
        Whether training also moves the inducing inputs.

    Attributes
    ----------
    inducing_ : ndarray (m, d), in the units of X
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the bound on the log evidence of all standardised rows

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.SGPR(n_inducing=20).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "sgpr"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0)
    requirements: ClassVar[Requirements] = {
        **GaussianProcess.requirements,
        "n_inducing": (chosen("inducing", *WAYS),),
        "train_inducing": (TRAINED,),
    }

    n_inducing: int = 512
    inducing: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    train_inducing: bool = False
    train_blocks: int | None = None

    @property
    def inducing_(self) -> np.ndarray:
        """Inducing inputs (m, d) in the units of X."""
        return in_users_units(self._one)

    def _model(self) -> CollapsedSparse:
        return CollapsedSparse(jitter=JITTER[self.dtype])

    @property
    def _inputs(self) -> ChosenInputs:
        moved, finer = self.train_inducing, "raise n_inducing"
        return self._chosen_inputs("inducing", "n_inducing", trained=moved, finer=finer)
