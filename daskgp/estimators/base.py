"""Base of all estimators: their settings, what a method may override, and the fit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args, overload

import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from daskgp import likelihoods
from daskgp.assess.calibration import learned_layers
from daskgp.assess.leaderboard import Leaderboard
from daskgp.checks import choice, flags, shown
from daskgp.data import grids, named_targets
from daskgp.data.categories import to_learn
from daskgp.data.kinds import Kind, Places, Stored
from daskgp.data.rows import Beside, named_beside
from daskgp.data.stores import groups, locks
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import MemoryRunError, RunError, SettingError
from daskgp.estimators import documented, requirements, saving, settings_of_fit
from daskgp.estimators.attributes import offered_unless
from daskgp.estimators.prediction import FittedGP
from daskgp.estimators.requirements import (
    ADAM,
    FIXED,
    GAUSSIAN,
    REPEATED,
    SEPARATE,
    TRAINED,
    Requirements,
)
from daskgp.estimators.settings import by_sites, check_settings, kernel_of
from daskgp.fit import barriers, constraints, inputs, joint, means, run, subset, timing, warm, work
from daskgp.fit import plan as planning
from daskgp.fit.arrange import Arrangement, AsStored
from daskgp.fit.fitted import Fit
from daskgp.fit.inputs import Inputs
from daskgp.fit.recipe import Recipe, Trainer, Traits
from daskgp.fit.training import OnBlocks
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import averaged
from daskgp.likelihoods import Gaussian, Likelihood
from daskgp.models.method import Method as Contract
from daskgp.posterior import training_rows
from daskgp.posterior.layers import Tails, TrendLayer
from daskgp.predict import hyperparameter_table, lazy
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import begin_call
from daskgp.runtime.progress import ShowProgress
from daskgp.train.callbacks import Callback, calling
from daskgp.train.stochastic import Stopped
from daskgp.typing import Device, DtypeName, LikelihoodName, Mean, OptimizerName, Path, UnseenName
from daskgp.update import changing, growing

logger: logging.Logger = logging.getLogger("daskgp")

DEFAULT_TOL = 0.1


def _without_classes(estimator: GaussianProcess) -> str | None:
    """Return why an estimator has no ``predict_proba``; None if it has one."""
    fitted = getattr(estimator, "solved_", None)
    name = str(estimator.likelihood if fitted is None else estimator.likelihood_.name)
    if likelihoods.by_name(name).n_classes is not None:
        return None
    return (
        f"{type(estimator).__name__} has no predict_proba, as likelihood={name!r} has no classes: "
        "predict(X, include_noise=True) gives the distribution of y"
    )


@dataclass(eq=False, repr=False)
class GaussianProcess(FittedGP):
    """Base of all estimators; use one of its subclasses.

    Constructor parameters are settings and are never changed; learned attributes end in an
    underscore.  Numbers in a kernel are in the units of the data, in km for ``geographic`` columns;
    those left out are found.  With ``standardize=True`` noise variance and objective are those of
    the standardised data: inputs with mean 0, divided by their standard deviation, or by a common
    one if they share a lengthscale; outputs divided by the standard deviation of what the mean
    function leaves.  Constant inputs are left out.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order (1/2, 3/2 or 5/2) with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Numbers in it are
        in the units of the data, and where training starts; those that are not given start where
        the evidence of the subset is largest.
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
    store : str or path, optional
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
    footprint : str, int or list of str or int, optional
        The column of X with the radius of the area around each row's place that its y is the
        average over: an interval in one coordinate and a disc in two, in the unit of the
        coordinates (km for longitude and latitude), 0 for a point.  Or the columns of offsets to
        several points, those of one after another.  The kernel becomes ``kernels.Averaged(kernel,
        footprint)``, and predictions are those of the averages, or points, that X asks for.
    unseen : {"error", "new"}
        What a prediction does with a level of a category (text, or a column of a `Categorical` or
        `Coregion` kernel) that no row of the fit has: refuse it, or take it for a new level.  A new
        one is correlated with the others as these are with one another (`Categorical`), or not at
        all, with their mean variance (`Coregion`); all new ones are the same.
    fixed : names, or mapping of names to float, optional
        Hyper-parameters that are not trained, by their names in ``hyperparameters_``; "lengthscale"
        stands for those of all columns.  Values are in the units of the data; without one a
        hyper-parameter keeps that of ``kernel`` or ``noise_variance``, or of a model in ``start``.
        ``{"noise_variance[zinc]": 1.0}`` is that of one of several joint targets; with
        ``optimizer=None`` these are the only ones, as the kernel has all other numbers.
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
        "loo" takes leave-one-out predictions of about 1,024 rows instead, which need no other fit;
        a factor below 1 then fades where places are less known than these rows.
        ``spread_`` is the factor, 1 without ``calibrate``.  Where the residuals are not normal,
        beyond sampling error, their quantiles become those of intervals of y: ``tails_``.
    likelihood : str
        Likelihood of y given f, by its name in `daskgp.likelihoods`.  Another one than "gaussian"
        is that of Gaussian sites: regressions on pseudo-targets with a noise variance per row,
        repeated until the bound on the evidence settles (conjugate-computation variational
        inference).  Hyper-parameters, in the units of f, and the likelihood's own parameters are
        trained with them; ``objective_`` is the bound.
    targets : {"separate", "joint"}
        How several targets go together.  "separate" ones are independent.  They share kernel,
        noise variance and factorisation where they share all rows; where some are missing, or each
        has a ``y_variance``, each is fitted to its own rows, with hyper-parameters of its own, as a
        model of it alone would be (``parts_``).  "joint" ones are correlated by
        a kernel over targets (co-kriging, linear model of coregionalisation): where one is known
        it tells of the others, missing ones are no loss, and each has its own scale, mean and noise
        variance.  A kernel with ``Coregion("target")``, or a sum of products with it, is taken as
        it is, and any other is multiplied by one.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data; of separate targets with gaps a tuple
    noise_variance_ : learned noise variance, in units of the standardised y; (p,) of joint targets
        and of separate ones with gaps
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    history_ : list of dict, one per iteration
    n_features_in_, feature_names_in_, n_rows_
        The last is the number of rows that are used, or of values of joint targets and of
        separate ones with gaps.
    parts_ : list of fitted estimators, one of each separate target, where these have gaps
    """

    kernel: Kernel | str | None = None
    _: KW_ONLY
    noise_variance: float = 0.1
    mean: Mean = "constant"
    standardize: bool = True
    optimizer: OptimizerName | None = "auto"
    learning_rate: float = 0.05
    max_iter: int = 100
    tol: float = 0.1
    train_blocks: int | Literal["auto"] | None = field(default=None, init=False)
    block_rows: int | None = None
    dtype: DtypeName = "float64"
    device: Device = "auto"
    store: Path | None = None
    random_state: int | None = 0
    progress: ShowProgress = "auto"
    geographic: Sequence[str] | str | bool | None = None
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto"
    footprint: Sequence[str] | str | int | None = None
    unseen: UnseenName = "error"
    fixed: Sequence[str] | str | Mapping[str, float | Sequence[float]] | None = None
    limits: Mapping[str, Sequence[float]] | None = None
    prior: Mapping[str, Any] | None = None
    target_transform: Literal["log", "sqrt", "boxcox"] | None = None
    calibrate: Literal["blocks", "random", "loo"] | None = None
    likelihood: LikelihoodName | str = "gaussian"
    targets: Literal["separate", "joint"] = "separate"

    model_name: ClassVar[str]
    requirements: ClassVar[Requirements] = {
        "learning_rate": (ADAM,),
        "max_iter": (TRAINED,),
        "tol": (REPEATED,),
        "train_blocks": (TRAINED,),
        "fixed": (FIXED,),
        "limits": (TRAINED,),
        "prior": (TRAINED,),
        "noise_variance": (GAUSSIAN,),
        "target_transform": (GAUSSIAN, SEPARATE),
        "calibrate": (GAUSSIAN, SEPARATE),
        "targets": (GAUSSIAN,),
    }
    """Conditions that settings need to have an effect."""
    traits: ClassVar[Traits] = Traits()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        documented.complete(cls)

    def _model(self) -> Contract:
        raise TypeError(f"{type(self).__name__} is a base class: use SGPR or ExactGP")

    @property
    def _inputs(self) -> Inputs:
        """Inducing inputs or the like that the settings ask for."""
        return Inputs()

    def _kernels(self) -> Sequence[Kernel]:
        """Return the kernels of which the evidence of a subset of rows chooses one.

        The first one is taken where nothing is trained.
        """
        return subset.smooth_and_rough() if self.kernel is None else [kernel_of(self.kernel)]

    def _arrangement(self) -> Arrangement:
        """Return how the method needs its rows."""
        return AsStored(self._read_rows())

    def _trainer(self) -> Trainer:
        """Return how the method learns."""
        return OnBlocks()

    def _check(self) -> None:
        check_settings(self)

    def _check_own(self) -> None:
        """Raise SettingError for settings out of range that other estimators lack."""
        return

    def recipe(self) -> Recipe:
        """Return all that a fit needs to know, as a value.

        Raises
        ------
        SettingError
            If a setting cannot be used.

        Examples
        --------
        >>> import daskgp
        >>> recipe = daskgp.LMA(markov_order=2).recipe()
        >>> recipe.method.name, recipe.arrangement.reach
        ('lma', 2)
        """
        model, settings, kernels = self._model(), self.get_params(), self._kernels()
        if self.footprint is not None:
            kernels = [averaged(kernel, self.footprint) for kernel in kernels]
        likelihood = by_sites(model, self.likelihood)
        measured = model.likelihood_name == "gaussian" and likelihood is None
        return Recipe(
            name=type(self).__name__,
            method=model,
            kernels=tuple(kernels),
            inputs=self._inputs,
            arrangement=self._arrangement(),
            trainer=self._trainer(),
            traits=self.traits,
            asked=constraints.Asked(self.fixed, self.limits, self.prior, measured),
            settings=settings,
            likelihood=likelihood,
            tol=DEFAULT_TOL if self.tol is None else float(self.tol),
            **{name: getattr(self, name) for name in SHARED},
        )

    def _chosen_inputs(
        self, name: str, number: str, label: str = Inputs.label, **more: Any
    ) -> inputs.ChosenInputs:
        """Return the inputs that two settings ask for: how they are chosen, and how many."""
        given = getattr(self, name), number, getattr(self, number)
        usual = requirements.defaults(type(self))[number]
        return inputs.chosen(name, *given, usual, self.random_state, label, **more)

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy; a fitted regressor that is the mean stays as it is."""
        if not means.is_regressor(self.mean):
            return super().__sklearn_clone__()
        plain = self._twin(self.__dict__ | {"mean": "constant"})
        copied = super(GaussianProcess, plain).__sklearn_clone__()
        copied.mean = self.mean
        return copied

    def _read_rows(self) -> int | None:
        """Return how many rows a task reads of the data in their original order."""
        return self.block_rows if self.traits.reads_blocks else None

    def _check_fitted(self, *besides: str) -> None:
        reading = ("block_rows",) if self.traits.reads_blocks else ()
        super()._check_fitted("device", "unseen", *reading, *besides)
        if self.unseen != self.solved_.unseen:
            choice("unseen", self.unseen, get_args(UnseenName))
            self.solved_ = self.solved_.taking(self.unseen)
        if self.device != self.solved_.device:
            choice("device", self.device, get_args(Device))
            self.solved_ = self.solved_.on(self.device)

    # -- fit ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        checkpoint: Path | None = None,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
        start: GaussianProcess | None = None,
        callback: Callback | None = None,
        features: Any = None,
        mask: Path | None = None,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> Self:
        """Fit to training rows wherever they lie.

        Parameters
        ----------
        X : array-like (n, d)
            NumPy array (masked entries are missing), dask or Zarr array, data frame, or an xarray
            object from whose coordinates the features are built.  Tasks read dask arrays of a Zarr
            store from that store; other dask arrays are written to ``store`` once.  With names as
            ``y`` any source of `convert`: a path, pattern, labelled grid or data frame, which is
            converted to a temporary dataset store.
        y : array-like (n,) or (n, p), str or list of str
            Targets; several without gaps share the kernel and the noise variance, see ``targets``.
            Or their names in ``X``.
        checkpoint : str or path, optional
            URL where every evaluation of training is kept; a fit with the same data and settings
            resumes from it and ends with the same bits.  One fit at a time uses a checkpoint; its
            lock is an object beside it, and that of a killed fit on this host is taken over.
        y_variance : float or array-like (n,) or (n, 1), or (n, p) of several targets, optional
            Known error variance e of each target, in units of y squared, besides the learned
            noise variance s: row i has noise variance s / w + e.  Default that of the store which
            ``y`` lies in, if it has an array of this name; False leaves it out.  Of several
            targets one for each, in the unit of that target squared.
            Where ``y`` is a name, the name of a column, and so is ``sample_weight``.
        sample_weight : float or array-like (n,) or (n, 1), optional
            Weight w of each row; default that of the store (array ``weight``) or 1.  With given
            hyper-parameters, a row of weight 2 counts as the same row twice if it has no
            ``y_variance``; one of weight 0 is left out.
        trials : float, array-like (n,) or (n, 1), or str, optional
            Number of trials of each row, of which y succeeded; for ``likelihood="binomial"``.  As
            of ``y_variance``, default those of the store of y, and a name where ``y`` is one; so
            are the following.
        exposure, offset : float, array-like (n,) or (n, 1), or str, optional
            What multiplies the rate e^f of each row, such as an area, a time or a population, and
            what is added to f; for ``likelihood="poisson"`` or ``"negative-binomial"``.
            Predictions are those for an exposure of 1 and an offset of 0, rates, unless `predict`
            is given others.
        lower, upper : float, array-like (n,) or (n, 1), or str, optional
            Bounds between which y is known to lie, infinite ones where there is none; for
            ``likelihood="censored"``.  Rows that miss one of these columns are left out.
        start : fitted estimator, optional
            Model whose hyper-parameters, and inducing inputs if there are as many, training starts
            from, with a kernel of the same structure and the same columns; it may be of another
            class.  Default a search for a start.
        callback : callable, optional
            Called in this process with each entry of ``history_``, a dict, as it is made; training
            ends with the best point so far once it returns True.  Entries of stages count from 1.
        features, mask : sequence of str and str or path, optional
            As for `convert`, where ``y`` is a name: columns of X, and a variable of a grid that
            says which cells to leave out.
        wait : float
            Seconds to wait for another fit with the same checkpoint to end.
        clear_lock : bool
            Whether to take over the lock that a dead fit left, even on another host.  ``wait`` and
            ``clear_lock`` are refused without a checkpoint.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If the data or a setting cannot be used; a ValueError with one plain line.
        PlanError
            If the work does not fit in the memory of the workers.
        RunError
            If the cluster fails, or another fit uses the checkpoint; a MemoryRunError if tasks ran
            out of memory.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(max_iter=5).fit(X, np.sin(6 * X[:, 0]))
        >>> model.n_rows_
        50
        """
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        given = X, y, features, mask, beside
        note = "pass checkpoint= to fit, and the progress of training is kept"
        if checkpoint is not None:
            note = f"the same fit with checkpoint={str(checkpoint)!r} continues from here"
        with (
            calling(callback),
            self._beginning(given, checkpoint, wait, clear_lock) as (X, y, at, beside),
            _noted(note, self),
        ):
            return self._fit(X, y, at, beside=beside, start=start)

    def _fit(
        self,
        X: Any,
        y: Any,
        checkpoint: Place | None = None,
        keep: str | None = None,
        beside: Beside | None = None,
        start: GaussianProcess | None = None,
        of_part: bool = False,
    ) -> Self:
        """Fit as ``fit`` does; any rows that prediction needs are kept at the URL ``keep``.

        ``beside`` is what rows have beside y, and ``of_part`` whether they are those of a fold, in
        which a class may be missing.
        """
        check_settings(self)
        recipe = replace(self.recipe(), begun_from=_token_of(start), of_part=of_part)
        other = None if start is None else warm.Other(start.solved_, start._inputs)
        given = X, y, checkpoint, keep, beside, other, learned_layers
        return self._learn(partial(run.fitted, recipe, *given))

    def _learn(self, make: Callable[[], Fit]) -> Self:
        """Set what a fit learns, or has learned when it is stopped."""
        try:
            fit = make()
        except Stopped as error:
            if isinstance(error.outcome, Fit):
                self._remember(error.outcome)
            raise
        self._remember(fit)
        return self

    def _remember(self, fit: Fit) -> None:
        """Set what is learned."""
        self._fitted = fit
        self._settings_of_fit = settings_of_fit.of(self)

    @property
    def parts_(self) -> list[Self]:
        """Fitted estimators of each target, where separate targets have rows of their own."""
        check_is_fitted(self, "solved_")
        if not self._fitted.each:
            raise AttributeError(
                "this model has no parts_: only separate targets with gaps in y, or with a "
                "y_variance of each, have a model for each target; use the model itself"
            )
        found = []
        for fit in self._fitted.each:
            part: Self = clone(self)
            part._remember(fit)
            found.append(part)
        return found

    @property
    def leaderboard_(self) -> Leaderboard:
        """All trials of the search by `AutoGP` that has chosen this model."""
        check_is_fitted(self, "solved_")
        if self._board is None:
            raise AttributeError(
                "this model has no leaderboard_: only models that AutoGP "
                "has chosen have one; fit AutoGP to compare methods"
            )
        return self._board

    @property
    def trend_(self) -> hyperparameter_table.Table:
        """Intercept and slopes of a trend that is integrated over, with their standard errors.

        They are in the units of the data, of transformed targets where there is a transform; those
        of one target after another.
        """
        if self.solved_.each:
            names, each = self.solved_.target_names, [part.trend_ for part in self.parts_]
            return hyperparameter_table.of_targets(names, each)
        if self.solved_.layer(TrendLayer) is None:
            remedy = "fit with mean='linear' or the names of columns"
            if self.solved_.joint:
                remedy = (
                    "targets='joint' has none, and that of mean='ols' is the plane of least squares"
                    " of each target; fit one target with mean='linear' to see its coefficients"
                )
            raise AttributeError(f"trend_ belongs to a trend that is integrated over: {remedy}")
        return hyperparameter_table.of_trend(self.solved_)

    @property
    def likelihood_(self) -> Likelihood:
        """Likelihood with its learned parameters; of a Gaussian in units of the standardised y."""
        own = self.solved_.likelihood
        if own is not None:
            return own
        noise = self.noise_variance_
        if isinstance(noise, np.ndarray) and noise.ndim:
            raise AttributeError(
                "likelihood_ has one noise variance, but each of these targets has its own: "
                "use noise_variance_ or hyperparameters_"
            )
        return Gaussian(float(noise))

    @property
    def spread_(self) -> float:
        """Factor on predictive standard deviations that ``calibrate`` learned; 1 without."""
        return self.solved_.spread

    @property
    def tails_(self) -> dict[float, float] | None:
        """Half widths of central intervals of new observations by level, if not those of a normal.

        They are in standard deviations, and learned by ``calibrate``.
        """
        tails = self.solved_.layer(Tails)
        return None if tails is None else dict(zip(tails.levels, tails.widths, strict=True))

    # -- classes -----------------------------------------------------------------------------

    @overload
    def predict_proba(self, X: Places[Kind]) -> Kind: ...
    @overload
    def predict_proba(self, X: Stored) -> da.Array: ...
    @offered_unless(_without_classes)
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (n, C) of classes 0, 1, ... at X; lazy for dask X.

        They are those of 0 and 1 for a Bernoulli likelihood, and of all classes for ordered ones.
        On the grid of an xarray object they are along a last dimension, ``class``.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(400, 1))
        >>> settings = {"n_inducing": 10, "max_iter": 50, "progress": False}
        >>> model = daskgp.SVGP(likelihood="bernoulli", **settings).fit(X, X[:, 0] > 0.5)
        >>> p = model.predict_proba(np.array([[0.1], [0.9]]))
        >>> p.shape, bool(p[0, 1] < 0.5 < p[1, 1])
        ((2, 2), True)
        """
        self._check_fitted()
        if not self.solved_.vector_target:
            raise SettingError("predict_proba is for one target: fit with y of shape (n,)")
        count = self.likelihood_.n_classes or 2
        if count > 2:
            begin_call(self.solved_.token)
            return lazy.probabilities(self.solved_, X, count)
        one = self.predict(X, include_noise=True)
        if grids.is_xarray(one):
            return grids.of_classes(one)
        stack = da.stack if isinstance(one, da.Array) else np.stack
        return stack([1.0 - one, one], axis=1)

    # -- rows that come and go -----------------------------------------------------------------

    def update(
        self,
        X: Any,
        y: Any,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
        window: float | None = None,
        along: str | int | None = None,
    ) -> Self:
        """Add rows to the fitted model, in a pass over these rows alone.

        The result is that of a fit of all rows with the same hyper-parameters, inducing inputs and
        units (`standardize`), which an update keeps: sums over the rows are added to those that the
        model has.  `LMA`, `PIC` and `VecchiaGP` put the new rows into blocks of their own after the
        others.  Of a dataset store that has grown since the model saw its first rows, only the new
        ones are added.

        Parameters
        ----------
        X, y, y_variance, sample_weight, trials, exposure, offset, lower, upper : array-like
            As for ``fit``, in the columns of the fit; rows with missing values are left out.
        window : float, optional
            Number of the last rows of the dataset store that the model keeps, others are forgotten;
            with ``along``, the length that it keeps of that column, in its unit.  `LMA`, `PIC` and
            `VecchiaGP` keep the blocks that lie in it in part, and need blocks in the order of the
            rows: fit them with ``order=`` that column, which is not the default.
        along : str or int, optional
            Feature, such as a time, that does not decrease from row to row.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the method cannot add rows, or with ``window`` forget some; the line says what to do
            instead.
        InputError
            If the rows cannot be used.  The model is unchanged after any error.
        StoreError
            If rows of the store have changed that the model has seen.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(300, 1))
        >>> y = np.sin(6 * X[:, 0])
        >>> model = daskgp.SGPR(n_inducing=20, optimizer=None).fit(X[:200], y[:200])
        >>> model.update(X[200:], y[200:]).n_rows_
        300
        """
        self._check_fitted()
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        recipe = self.recipe()
        fit = changing.with_totals(recipe, self._fitted)
        y, beside = named_targets.by_name(y, beside, self.solved_.target_names)
        growth = growing.look(recipe, fit, X, y, beside, window, along)
        if growth is None:
            with to_learn({}):
                self._fitted = changing.changed(recipe, fit, X, y, beside)
        elif growth.changes:
            self._fitted = growth.taken(Executor.current(recipe.progress, recipe.device))
        else:  # maybe with another URL of the same store
            self._fitted = growth.fit
        return self

    def forget(
        self,
        X: Any,
        y: Any,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
    ) -> Self:
        """Take rows out of the fitted model, in a pass over these rows alone.

        It undoes ``update``: sums over the rows are subtracted, so the rows must be among those of
        the model, with the noise that they came with, and each as often as it is.  Blocks of `LMA`,
        `PIC` and `VecchiaGP` are taken out whole, at either end of their order: to forget the
        oldest rows, fit with ``order=`` the column of their time.  A dataset store that is
        forgotten as a whole may be added again.  Methods that keep sums alone, such as `SGPR`,
        cannot tell that y is not what these rows had: give it from the store that it came from.
        With another likelihood `LMA`, `PIC` and `VecchiaGP` take out the sites of the rows, and
        those of others stay as they are; a y that differs from that of the site by no more than
        about a tenth of the spread of observations there passes for the same.

        Parameters
        ----------
        X, y, y_variance, sample_weight, trials, exposure, offset, lower, upper : array-like
            As for ``update``.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the method cannot take out rows; the line says what to do instead.
        InputError
            If the rows are not those of the model.  The model is unchanged after any error.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(300, 1))
        >>> y = np.sin(6 * X[:, 0])
        >>> model = daskgp.SGPR(n_inducing=20, optimizer=None).fit(X, y)
        >>> model.forget(X[:100], y[:100]).n_rows_
        200
        """
        self._check_fitted()
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        y, beside = named_targets.by_name(y, beside, self.solved_.target_names)
        self._fitted = growing.forget(self.recipe(), self._fitted, X, y, beside)
        return self

    # -- what it will take -----------------------------------------------------------------------

    def plan(
        self,
        X: Any,
        y: Any,
        measure: bool = False,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
        features: Any = None,
        mask: Path | None = None,
    ) -> planning.Plan:
        """Return what ``fit(X, y)`` will need, from the sizes of the data alone.

        Parameters
        ----------
        X, y, y_variance, sample_weight, trials, exposure, offset, lower, upper, features, mask
            As for ``fit``.  Named columns of a source are converted, as the fit does, and the rows
            removed again.
        measure : bool
            Whether to also measure how long an iteration will take, by two short runs on some of
            the rows.

        Returns
        -------
        Plan

        Examples
        --------
        >>> import dask.array as da, daskgp
        >>> X = da.zeros((1_000_000, 3), chunks=(50_000, 3))
        >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])
        >>> plan.rows, plan.bytes_per_worker < 2**30
        (1000000, True)
        """
        self._check()
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        given = X, y, features, mask, beside
        with self._rows_of(*given) as (X, y, beside):
            return self._plan(X, y, measure, beside)

    def _plan(self, X: Any, y: Any, measure: bool, beside: Beside) -> planning.Plan:
        recipe, executor = self.recipe(), Executor.current(self.progress)
        rows = recipe.rows_of(X, y, None, executor.shares_memory, beside)
        if recipe.targets == "joint":
            recipe, rows = joint.planned(recipe, rows)
        recipe = barriers.read(recipe, rows)
        work.check(recipe, rows, len(rows))
        recipe.asked.check_names(recipe.kernel(rows), rows.n_features)
        load = work.work_of(recipe, rows)
        cache = training_rows.most_kept(executor.memory_per_task() or executor.memory())
        planned = planning.with_kept(planning.make_plan(load), load, executor, cache)
        if measure:
            planned = timing.measured(planned, self._timed, load, executor)
        return planned

    def _timed(self, settings: Mapping[str, Any], X: Any, y: Any, threads: int) -> timing.Timed:
        """Time a few silent iterations on all blocks of some rows, with the settings it has."""
        wanted = {"max_iter": timing.ITERATIONS, "progress": False, "train_blocks": None}
        known, usual = self.get_params(deep=False), requirements.defaults(type(self))
        quick = clone(self)
        quick.set_params(**{k: v for k, v in {**wanted, **settings}.items() if k in known})
        # settings that these made idle would be refused
        quick.set_params(**{name: usual[name] for name in requirements.idle(quick)})
        began = time.perf_counter()
        quick.fit(X, y)
        whole = time.perf_counter() - began
        recipe = quick.recipe()
        load = work.work_of(recipe, recipe.rows_of(X, y, None, True))
        return timing.timed(quick.history_, whole, quick.n_iter_ + 1, load, threads)

    def _windows(self, executor: Executor) -> Any:
        """Return the rounds that the posterior of a local method was solved on; None for others."""
        arrangement, fit = self._arrangement(), self._fitted
        so_far = arrangement.so_far(fit.posterior, fit.n, fit.home, executor)
        if so_far.stage is None:
            return None
        return arrangement.settle(so_far.stage, so_far.theta)

    # -- stores ----------------------------------------------------------------------------------

    def save(
        self,
        url: Path,
        *,
        overwrite: bool = False,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> None:
        """Write the fitted model to a store; ``daskgp.load`` reads it back.

        Parameters
        ----------
        url : str or path
            Store to write.  One run at a time writes it; its lock is an object beside it.
        overwrite : bool
            Whether to replace a model that is there, such as this one before an update.  Whoever
            reads it meanwhile, or after a kill, finds the old model or the new one.
        wait, clear_lock
            As for ``fit``.

        Raises
        ------
        StoreError
            If there is a model and it is not to be replaced, or there is anything else.
        SettingError
            If ``overwrite`` is text, which would count as True.

        Examples
        --------
        >>> import tempfile, numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.zarr")
        ...     loaded = daskgp.load(f"{folder}/model.zarr")
        >>> bool((loaded.predict(X) == model.predict(X)).all())
        True
        """
        self._check_fitted()
        flags(overwrite=overwrite)
        place = str(url).rstrip("/")
        with locks.hold(place, wait, clear_lock, resume=True) as claim:
            if overwrite and not groups.vacant(place):
                self._fitted = saving.save_over(self._model_to_save(), place, claim)
            else:
                self._fitted = saving.save(self._model_to_save(), place)

    def _model_to_save(self) -> saving.Model:
        """Return what a store keeps of the estimator."""
        settings, kind, notes = self.get_params(deep=False), type(self).__name__, self._notes()
        if self._board is not None:
            notes["leaderboard"] = self._board.to_dict()
        return saving.Model(kind, self.model_name, settings, self._fitted, notes)

    def _notes(self) -> dict[str, Any]:
        """Return what stores note of this class alone."""
        return {}

    def _take_notes(self, notes: Mapping[str, Any]) -> None:
        """Set what a store has noted."""
        return

    def _more(self, recipe: Recipe, fit: Fit, X: Any, y: Any, beside: Beside) -> Fit:
        """Return a fit that has learned from more rows, as this class does."""
        return changing.changed(recipe, fit, X, y, beside)


SHARED = {one.name for one in fields(GaussianProcess)} & {one.name for one in fields(Recipe)}
SHARED -= {"tol", "likelihood"}  # which a recipe has in another form
"""Settings that a recipe has by the same names."""


def _token_of(start: Any) -> str | None:
    """Return what tells a model to start from; SettingError for anything but a fitted one."""
    if start is None:
        return None
    if not isinstance(start, GaussianProcess) or not hasattr(start, "solved_"):
        raise SettingError(
            f"start={shown(start)}: a fitted estimator is needed, such as daskgp.load(...)"
        )
    return start.solved_.token


@contextmanager
def _noted(note: str, estimator: GaussianProcess) -> Iterator[None]:
    """Add a note to the failure of a run: how to resume the training."""
    try:
        yield
    except MemoryRunError:  # its remedy is another setting, with which a fit starts anew
        raise
    except RunError as error:
        if estimator.optimizer is not None:
            error.add_note(note)
        raise
