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
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order (1/2, 3/2 or 5/2) with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Numbers in it are
        in the units of the data, and where training starts; those that are not given start where
        the evidence of the subset is largest.
    n_inducing : int
        Number m of inducing inputs.
    inducing : {"greedy", "kmeans", "random"} or array-like (m, d)
        How inducing inputs are chosen from a sample of rows ("greedy": largest conditional
        variance), or the inputs themselves, in the units of X.
    train_inducing : bool
        Whether training also moves the inducing inputs.
    noise_variance : float
        Initial noise variance, in units of the standardised y.
    mean : {"zero", "constant", "linear", "ols"}, list of str, or fitted regressor
        Mean function.  "linear", or the names of columns: a trend in all columns, or in these,
        whose coefficients are integrated over (universal kriging).  "ols", and "constant": least
        squares before the GP, whose uncertainty is not counted.  An object with ``predict``: the
        GP models what it leaves (regression kriging).
    standardize : bool
        Whether inputs and outputs are scaled to unit standard deviation, undone in predictions;
        inputs that share a lengthscale are scaled by a common one and keep their proportions.
    optimizer : {"auto", "trust-region", "l-bfgs", "adam"} or None
        "trust-region" uses curvature and takes few evaluations; "auto" is that one, or L-BFGS
        where inputs are trained or there are more than 64 hyper-parameters.  None keeps the
        hyper-parameters as they are.
    learning_rate : float
        Learning rate of Adam; refused with another optimizer.
    max_iter : int
        Maximum number of iterations of training.
    tol : float
        Gain of the objective, in nats per hyper-parameter, below which training stops: predicted
        from the curvature (½ gᵀF⁻¹g), or that of the last five iterations of L-BFGS.  A run that
        ends earlier says so in a warning.
    train_blocks : int, optional
        Train hyper-parameters on that many blocks drawn at random; the posterior is always that
        of all rows.  Default all blocks.
    block_rows : int, optional
        Rows that a task works on; the default depends on the number of rows.
    dtype : {"float64", "float32"}
        Precision of kernel tiles in training; sums, solves and predictions are in float64.
    device : {"auto", "cpu", "gpu"}
        Device that tasks compute on.
    store : str, optional
        Folder or URL for rows that must be written before a fit; default a temporary folder.
    random_state : int or None
        Seed of samples and choices; None draws a new one each time, so no checkpoint goes with it.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.
    geographic : pair of str or int, or False, optional
        Columns with longitude and latitude in degrees, by name or number.  They become places on
        the sphere, so that distances are right at the date line and the poles, have one
        lengthscale, given and reported in km (of ``kernel``, ``kernel_`` and ``hyperparameters_``),
        and inducing inputs are given and reported as longitude and latitude; trained ones may leave
        the sphere and are reported as seen from its centre.  Default the columns that the data
        name: attributes of the store, or CF attributes of an xarray object; False for none.
    fill_values : "auto", list of float or None
        Numbers that stand for missing values, in any column of X and y.  "auto" leaves out those in
        common use (-9999, -32768, 1e20, 9.96921e36 and the like) where they stand apart from all
        other values of a column, and warns of others that do or that repeat far from them.  None
        takes all numbers for measurements.
    fixed : names, or mapping of names to float, optional
        Hyper-parameters that are not trained, by their names in ``hyperparameters_``; "lengthscale"
        stands for those of all columns.  Values are in the units of the data; without one a
        hyper-parameter keeps that of ``kernel`` or ``noise_variance``, or of a model in ``start``.
    limits : mapping of names to (float, float), optional
        Least and largest values of hyper-parameters, in the units of the data.
    prior : mapping of names to prior, optional
        Priors of hyper-parameters, of `daskgp.priors` or as text, ``{"lengthscale":
        "lognormal(100, sigma=0.5)"}``, in the units of the data: training maximises their log
        density plus the objective, and ``history_`` has the sum.
    target_transform : {"log", "sqrt", "boxcox"}, optional
        Fit the Gaussian process to the logarithm of y, its square root, or its Box-Cox transform
        with the power of the largest likelihood.  Predictions, scores and the evidence are those of
        y; hyper-parameters are those of the transformed y.
    calibrate : {"blocks", "random", "loo"}, optional
        Learn a factor on predictive standard deviations from a second fit, to four fifths of the
        rows: it gives the others the best density.  These are blocks of space, or random rows.
        "loo" takes leave-one-out predictions of about 1,024 rows instead, which need no other fit.
        ``spread_`` is the factor, 1 without ``calibrate``.  Where the residuals are not normal,
        beyond sampling error, their quantiles become those of intervals of y: ``tails_``.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data
    noise_variance_ : learned noise variance, in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    inducing_ : ndarray (m, d), in the units of X
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the bound on the log evidence of all standardised rows
    history_ : list of dict, one per iteration
    n_features_in_, feature_names_in_, n_rows_

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
        return in_users_units(self.solved_)

    def _model(self) -> CollapsedSparse:
        return CollapsedSparse(jitter=JITTER[self.dtype])

    @property
    def _inputs(self) -> ChosenInputs:
        moved, finer = self.train_inducing, "raise n_inducing"
        return self._chosen_inputs("inducing", "n_inducing", trained=moved, finer=finer)
