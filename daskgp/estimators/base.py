"""Base of all estimators: their settings, what a method may override, and the fit."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskgp import data, likelihoods, train
from daskgp.checks import LARGEST, choice, place, shown
from daskgp.data import partition, visibility
from daskgp.data.blocks import filling, prepared, sampling
from daskgp.data.feature_units import count_of
from daskgp.data.folds import SHARE
from daskgp.data.regressor import Known, residuals
from daskgp.data.seen import noticed
from daskgp.data.stores import locks
from daskgp.data.stores.checkpoints import Place
from daskgp.data.whole_dates import named_as_time
from daskgp.errors import InputError, MemoryRunError, RunError, SettingError
from daskgp.estimators import settings_of_fit
from daskgp.estimators.outcome import Outcome, Traits
from daskgp.estimators.settings import check_settings, kernel_of
from daskgp.estimators.updated import UpdatedGP
from daskgp.estimators.updating import ranges_of, seen
from daskgp.fit import (
    control,
    declared,
    hyperparameters,
    means,
    named,
    refusal,
    rounds,
    subset,
    targets,
    timing,
    warm,
)
from daskgp.fit import plan as planning
from daskgp.fit.arrange import Arrangement, AsStored, Home, SoFar
from daskgp.fit.arrange.rewriting import seed_of
from daskgp.fit.effects import ADAM, TRAINED, Effects
from daskgp.fit.inputs import Inputs
from daskgp.fit.plan import Knob, Workload
from daskgp.fit.scratch import kept_rows, ordered, residual, scratch_rows
from daskgp.fit.subset import Start
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.method import Method as Contract
from daskgp.models.method import Summed
from daskgp.models.values import Theta
from daskgp.posterior import training_rows
from daskgp.posterior.layers import Tails, TrendLayer, chain
from daskgp.posterior.posterior import Posterior
from daskgp.posterior.training_rows import TrainingRows
from daskgp.predict import hyperparameter_table, known_errors
from daskgp.runtime.executor import Executor
from daskgp.runtime.progress import ShowProgress
from daskgp.train.callbacks import Callback, calling
from daskgp.typing import Device, DtypeName, Mean, OptimizerName

logger = logging.getLogger("daskgp")

DEFAULT_TOL = 0.1
SMALL_CHUNKS = " (and rewrite a store with larger chunks)"


@dataclass(eq=False, repr=False)
class GaussianProcess(UpdatedGP):
    """Base of all estimators; use one of its subclasses.

    Constructor parameters are settings and are never changed; learned attributes end in an
    underscore.  Numbers in a kernel are in the units of the data, in km for ``geographic`` columns;
    those left out are found.  With ``standardize=True`` noise variance and objective are those of
    the standardised data: inputs with mean 0, divided by their standard deviation, or by a common
    one if they share a lengthscale; outputs divided by the standard deviation of what the mean
    function leaves.  Constant inputs are left out.
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
    store: str | None = None
    random_state: int | None = 0
    progress: ShowProgress = "auto"
    geographic: Sequence[str] | str | bool | None = None
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto"
    fixed: Sequence[str] | str | Mapping[str, float | Sequence[float]] | None = None
    limits: Mapping[str, Sequence[float]] | None = None
    prior: Mapping[str, Any] | None = None
    target_transform: Literal["log", "sqrt", "boxcox"] | None = None
    calibrate: Literal["blocks", "random", "loo"] | None = None

    model_name: ClassVar[str]
    effects: ClassVar[Effects] = {
        "learning_rate": (ADAM,),
        "max_iter": (TRAINED,),
        "tol": (TRAINED,),
        "train_blocks": (TRAINED,),
        "fixed": (TRAINED,),
        "limits": (TRAINED,),
        "prior": (TRAINED,),
    }
    """Conditions that settings need to have an effect."""
    traits: ClassVar[Traits] = Traits()

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

    def _train(self, stage: rounds.Rounds, theta: Theta, run: hyperparameters.Run) -> train.Trained:
        """Return the best vector of hyper-parameters, the search's history and the curvature."""
        return hyperparameters.on_blocks(self, stage, theta, run)

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> TrainingRows | None:
        """Return the training rows that prediction reads back; None for a method without."""
        return None

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy; a fitted regressor that is the mean stays as it is."""
        if not means.is_regressor(self.mean):
            return super().__sklearn_clone__()
        plain = self._twin(self.__dict__ | {"mean": "constant"})
        copied = super(GaussianProcess, plain).__sklearn_clone__()
        copied.mean = self.mean
        return copied

    def _so_far(self, executor: Executor) -> SoFar:
        """Return what the fitted model knows of its rows."""
        home = Home(self._own_rows, self._spare_rows, self.store)
        return SoFar(self.solved_.theta, self.n_rows_, home)

    def _check_fitted(self, *besides: str) -> None:
        reading = ("device", "block_rows") if self.traits.reads_blocks else ("device",)
        super()._check_fitted(*reading, *besides)
        if self.device != self.solved_.device:
            choice("device", self.device, get_args(Device))
            self.solved_ = dataclasses.replace(self.solved_, device=self.device)

    # -- small things ----------------------------------------------------------------------------

    @property
    def _codes(self) -> Likelihood | None:
        """Likelihood of targets that are codes or counts; None for those that are measured."""
        likelihood = likelihoods.by_name(self._model().likelihood_name)
        return likelihood if likelihood.discrete else None

    def _choices(self, rows: data.Rows) -> list[Kernel]:
        """Return the kernels to choose from, as kernels of the columns of the inputs."""
        return [rows.columns.kernel(kernel) for kernel in self._kernels()]

    def _kernel(self, rows: data.Rows) -> Kernel:
        return self._choices(rows)[0]

    def _rows_of(
        self,
        X: Any,
        y: Any,
        spill: str | None,
        shared_memory: bool,
        y_variance: Any = None,
        weight: Any = None,
    ) -> data.Rows:
        """Return the rows of X and y, see `daskgp.data.rows_of`."""
        beside = y_variance, weight, self.geographic
        rows = data.rows_of(X, y, spill, shared_memory, self._read_rows(), *beside)
        prepared.check_columns(rows)
        return dataclasses.replace(rows, trend=means.columns(self.mean, rows.feature_names))

    def _tol(self) -> float:
        """Return the nats per hyper-parameter below which training stops."""
        return DEFAULT_TOL if self.tol is None else self.tol

    def _seed(self) -> int:
        """Return the seed of samples; a new one each time if ``random_state`` is None."""
        return seed_of(self.random_state)

    def _read_rows(self) -> int | None:
        """Return how many rows a task reads of the data in their original order."""
        return self.block_rows if self.traits.reads_blocks else None

    def _spans(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        return tuple(partition.blocks(len(rows), rows.chunks, self._read_rows()))

    # -- fit ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        checkpoint: str | None = None,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        start: GaussianProcess | None = None,
        callback: Callback | None = None,
        features: Any = None,
        mask: str | None = None,
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
            Targets; several share the kernel and the noise variance.  Or their names in ``X``.
        checkpoint : str, optional
            URL where every evaluation of training is kept; a fit with the same data and settings
            resumes from it and ends with the same bits.  One fit at a time uses a checkpoint; its
            lock is an object beside it, and that of a killed fit on this host is taken over.
        y_variance : float or array-like (n,) or (n, 1), optional
            Known error variance e of each target, in units of y squared, besides the learned
            noise variance s: row i has noise variance s / w + e.  Default that of the store which
            ``y`` lies in, if it has an array of this name; False leaves it out.  For one target.
            Where ``y`` is a name, the name of a column, and so is ``sample_weight``.
        sample_weight : float or array-like (n,) or (n, 1), optional
            Weight w of each row; default that of the store (array ``weight``) or 1.  With given
            hyper-parameters, a row of weight 2 counts as the same row twice if it has no
            ``y_variance``; one of weight 0 is left out.
        start : fitted estimator, optional
            Model whose hyper-parameters, and inducing inputs if there are as many, training starts
            from, with a kernel of the same structure and the same columns; it may be of another
            class.  Default a search for a start.
        callback : callable, optional
            Called in this process with each entry of ``history_``, a dict, as it is made; training
            ends with the best point so far once it returns True.  Entries of stages count from 1.
        features, mask : sequence of str and str, optional
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
        place("checkpoint", checkpoint, "a checkpoint")
        columns = named.columns_of(X, y, features, mask, y_variance, sample_weight, self.geographic)
        if columns is not None:
            check_settings(self)
            with (
                scratch_rows(self.store) as url,
                columns.converted(url, self.progress) as (X, y, _),
            ):
                settings: dict[str, Any] = {"wait": wait, "clear_lock": clear_lock}
                return self.fit(X, y, checkpoint, start=start, callback=callback, **settings)
        if checkpoint is None:
            refuse_alone(wait=wait, clear_lock=clear_lock)
            with (
                calling(callback),
                _noted("pass checkpoint= to fit, and the progress of training is kept", self),
            ):
                return self._fit(X, y, noise=(y_variance, sample_weight), start=start)
        url = str(checkpoint)
        with (
            calling(callback),
            locks.hold(url, wait, clear_lock, resume=True) as claim,
            _noted(f"the same fit with checkpoint={url!r} continues from here", self),
        ):
            noise = y_variance, sample_weight
            return self._fit(X, y, Place(url, claim), noise=noise, start=start)

    def _fit(
        self,
        X: Any,
        y: Any,
        checkpoint: Place | None = None,
        keep: str | None = None,
        noise: tuple[Any, Any] = (None, None),
        start: GaussianProcess | None = None,
    ) -> Self:
        """Fit as ``fit`` does; any rows that prediction needs are kept at the URL ``keep``.

        ``noise`` are its ``y_variance`` and ``sample_weight``.
        """
        check_settings(self)
        self._begun_from = _token_of(start)
        if checkpoint and self.random_state is None and not self.traits.keeps_seed:
            raise SettingError(
                "random_state=None draws other rows each time, so no fit could continue from the "
                "checkpoint: set random_state to a whole number"
            )
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        executor = Executor.current(self.progress, self.device)
        # sizes first: what cannot fit in memory is refused before anything is written
        sizes = self._rows_of(X, y, None, executor.shares_memory, *noise)
        dataset = noticed(X, y, sizes)
        self._say_geographic(sizes)
        self._check(sizes, len(sizes))
        if self.calibrate not in (None, "loo"):
            self._check(sizes, len(sizes) - len(sizes) // SHARE)  # of the fit without some rows
        control.check_names(self, self._kernel(sizes), sizes.n_features)
        if all(given is None for given in noise):
            if not sizes.n_noise:
                data.warn_of_noise_behind(y)
            found = sizes.y_variance, sizes.weight  # for which the store is not asked again
            noise = (
                False if found[0] is None else found[0],
                False if found[1] is None else found[1],
            )
        work, limit = self._workload(sizes), executor.memory_per_task()
        refusal.refuse(work, limit)
        plan = planning.make_plan(work)
        refusal.refuse_full_disk(plan.bytes_written, str(self.store or tempfile.gettempdir()))
        if keep is not None:
            refusal.refuse_full_disk(plan.bytes_on_disk, keep)
        if self.store is not None and not plan.bytes_written:
            logger.info("store=%s is not used: tasks read the rows where they are", self.store)
        try:
            with scratch_rows(self.store) as spill:
                whole = self._marked(
                    self._rows_of(X, y, spill, executor.shares_memory, *noise), executor
                )
                rows = self._residuals(whole, executor, residual(spill))
                with self._place(keep, spill) as place, executor.memory_is_kept():
                    sums = self._fit_rows(rows, executor, checkpoint, place, start)
                    self._recalibrate(rows, whole, executor)
                url = None if dataset is None else dataset.url
                self._seen = [seen("fit", self._of_whole(sums, rows, whole, executor), whole, url)]
                self._sources = () if dataset is None else (dataset.source(executor),)
        except MemoryRunError as error:
            raise refusal.out_of_memory(error, plan, limit, work.knob) from error
        return self

    def _marked(
        self, rows: data.Rows, executor: Executor, known: filling.Known = None
    ) -> data.Rows:
        """Return rows that read fill values as missing, which the model will know, too.

        ``known`` are ranges of the columns of other rows.
        """
        _check_seen(rows, executor)
        classes = self._codes is not None
        rows = filling.marked(rows, self.fill_values, self._spans(rows), executor, known, classes)
        self._fills = rows.fills
        return rows

    def _residuals(self, rows: data.Rows, executor: Executor, url: str) -> data.Rows:
        """Return rows with what a regressor leaves of y, kept at a URL; else the same rows."""
        regressor = means.regressor(self.mean, rows)
        if regressor is None:
            return rows
        left = residuals(rows, regressor, executor, url)
        _check_seen(left, executor)
        return left

    def _of_whole(
        self, sums: scaling.Sums, rows: data.Rows, whole: data.Rows, executor: Executor
    ) -> scaling.Sums:
        """Return sums over rows with the checksum of what they were before a regressor."""
        if rows is whole:
            return sums
        return sums._replace(checksum=sampling.checksum_of(whole, self._spans(whole), executor))

    def _place(self, keep: str | None, spill: str) -> AbstractContextManager[str]:
        """Return the context of a URL for rows that a fit writes: for predictions, or beside it."""
        if self._model().keeps_rows:
            return kept_rows(keep, self.store)
        return nullcontext(ordered(spill))

    def _fit_rows(
        self,
        rows: data.Rows,
        executor: Executor,
        checkpoint: Place | None,
        keep: str = "",
        start: GaussianProcess | None = None,
    ) -> scaling.Sums:
        """Describe and scale the rows, start, arrange them, train and solve, and remember it."""
        spans = self._spans(rows)
        sums = self._described(rows, spans, executor)
        scale = self._scaling(sums, rows)
        scaling.check_range(sums, scale, self.dtype, rows.columns.inputs_names, rows.target_names)
        units = partition.alone(spans)
        stage = rounds.Rounds(rows, units, scale, executor, self.dtype, self.device)
        if start is not None:
            begun = warm.start(self, stage, sums, start)
        else:
            begun = hyperparameters.start(self, stage, sums)
            if hyperparameters.refines(self, stage, begun):
                begun = self._refined(stage, begun, sums, f"{keep}-first")
        stage = self._arrangement().arrange(stage, begun.theta, sums, keep)
        outcome = self._learn(stage, begun, sums, checkpoint, keep)
        kernel, names = outcome.theta.kernel, rows.columns.inputs_names
        hyperparameters.warn_of_periods(kernel, outcome.stage.scaling, sums, names)
        self._remember(outcome, int(sums.rows))
        return sums

    def _recalibrate(self, rows: data.Rows, whole: data.Rows, executor: Executor) -> None:
        """Learn the spread of predictions and their tails, where the settings ask for it."""
        if self.calibrate is not None:
            from daskgp.estimators.calibration import learned_layers

            self._settings_of_fit = settings_of_fit.of(self) | {"calibrate": None}
            learned = learned_layers(self, rows, whole, executor)
            self._set_solved(self.solved_.with_layers(*learned))
            self._settings_of_fit = settings_of_fit.of(self)

    def _refined(self, stage: rounds.Rounds, begun: Start, sums: scaling.Sums, url: str) -> Start:
        """Return a start from some blocks of a first order, which is written and removed again."""
        try:
            first = self._arrangement().arrange(stage, begun.theta, sums, url)
            return hyperparameters.refined(self, first, begun, sums)
        finally:
            data.remove(url)

    def _say_geographic(self, rows: data.Rows) -> None:
        """Log that the data themselves name columns of longitude and latitude."""
        if rows.geographic is not None and self.geographic is None:
            lon, lat = (rows.feature_names[j] for j in rows.geographic)
            logger.info(
                "features %r and %r are longitude and latitude by their attributes: distances are "
                "taken on the sphere, in km (geographic=False for those in degrees)",
                lon,
                lat,
            )

    def _described(
        self, rows: data.Rows, spans: Sequence[partition.Span], executor: Executor
    ) -> scaling.Sums:
        """Return sums over rows; InputError for rows to which nothing can be fitted."""
        if self._codes is not None:
            targets.check(rows, spans, executor, self._codes)
        transform = None
        if self.target_transform is not None:
            transform = targets.transformed(rows, spans, executor, self.target_transform)
        sums = sampling.describe(rows, spans, executor, transform)
        self._check_columns(sums, rows)
        self._check(rows, int(sums.rows))
        self._ranges = ranges_of(sums, rows.columns)
        scaling.warn_of_missing(sums.dropped, rows.weight is not None)
        measured: Sequence[str] = rows.target_names if self._codes is None else ()
        if measured:
            scaling.warn_of_discrete(sums, measured)
        names = rows.columns.inputs_names
        units = dict(zip(rows.feature_names, rows.feature_units, strict=False))
        times = {name for name, unit in units.items() if count_of(unit)}
        times |= {name for name in rows.feature_names if named_as_time(name)}
        scaling.warn_of_row_numbers(sums, [name * (name not in times) for name in names])
        return sums

    def _check_columns(self, sums: scaling.Sums, rows: data.Rows) -> None:
        """Raise InputError for columns to which no kernel, or not this one, can be fitted."""
        names = rows.columns.inputs_names
        largest = LARGEST if self.standardize else scaling.LARGEST_SCALED[self.dtype]
        scaling.check(sums, names, rows.target_names, 1.0 / largest)
        kernel = self._kernel(rows).resolve(np.ones(rows.n_features), 1.0)
        varies = ~scaling.constant(sums, rows.n_features)
        seen = [unit for unit in kernel.units(rows.n_features) if unit.columns]
        if seen and all(scaling.left_out(unit, varies) for unit in seen):
            columns = sorted({j for unit in seen for j in unit.columns})
            constant = ", ".join(repr(names[j]) for j in columns)
            raise InputError(
                f"the kernel sees only {constant}, the same in every row: give it a feature that "
                "varies by active_dims"
            )
        scaling.warn_of_columns(sums, self._tied(rows), names)

    def _scaling(self, sums: scaling.Sums, rows: data.Rows) -> scaling.Scaling:
        """Return the units that the method works in, and the mean function."""
        coded, p = self._codes is not None, rows.n_targets
        mean, tied = "zero" if coded else means.described(self.mean), self._tied(rows)
        scale = scaling.solve(sums, rows.n_features, mean, self.standardize, tied)
        if not coded:
            return means.of_columns(scale, rows, int(sums.rows))
        return dataclasses.replace(scale, intercept=np.zeros(p), y_scale=np.ones(p))

    def _tied(self, rows: data.Rows) -> scaling.Ties:
        """Return the columns that share a scale."""
        return self._kernel(rows).tied_columns(rows.n_features)

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        """Train from initial hyper-parameters, and solve; rows may be kept at ``keep``."""
        trained = hyperparameters.train_theta(self, stage, begun, sums, checkpoint)
        theta, history, errors = trained
        stage = self._arrangement().settle(stage, theta)
        method, total = self._method(stage), None
        if method.why_no_update() is None:
            summed = cast(Summed, method)
            prepared, total = summed.totals(theta, stage)
            state, objective = summed.concluded(theta, prepared, total, stage)
        else:
            state, objective = method.solve(theta, stage)
        kept = self._kept(stage, theta)
        return Outcome(stage, theta, state, objective, history, kept, errors, total)

    def _method(self, stage: rounds.Rounds) -> Contract:
        """Return the method for rows in units."""
        return self._objective_of(stage).of_units(stage.n_units)

    def _objective_of(self, stage: rounds.Rounds) -> Any:
        """Return the method for rows as their scaling makes them, whatever their units."""
        return means.with_trend(self._model(), stage.scaling)

    def _remember(self, outcome: Outcome, n: int) -> None:
        """Set what is learned, from n usable rows."""
        stage, rows = outcome.stage, outcome.stage.rows
        posterior = Posterior(
            self._method(stage),
            outcome.theta,
            outcome.state,
            stage.scaling,
            rows.feature_names,
            rows.target_names,
            rows.y.ndim == 1,
            stage.dtype,
            stage.device,
            outcome.kept,
            target_units=rows.target_units,
            geographic=rows.geographic,
            feature_units=rows.feature_units if any(rows.feature_units) else (),
            fills=self._fills,
            ranges=self._ranges,
            finds_fills=isinstance(self.fill_values, str),
        )
        layers = chain.of_fit(posterior.parts(self._known(rows)))
        self._set_solved(dataclasses.replace(posterior, layers=layers))
        self.objective_, self.history_ = outcome.objective, outcome.history
        self._errors, self._total, self.n_rows_ = outcome.errors, outcome.total, n
        self._settings_of_fit = settings_of_fit.of(self)

    def _known(self, rows: data.Rows) -> Known | None:
        """Return the regressor that is the mean function, if it is one."""
        regressor = means.regressor(self.mean, rows)
        return None if regressor is None else Known.of(regressor, rows)

    def _set_solved(self, posterior: Posterior) -> None:
        self.solved_ = posterior
        self.kernel_ = posterior.users_kernel
        self.noise_variance_ = posterior.theta.noise_variance
        self.n_features_in_ = posterior.n_features
        self.feature_names_in_ = np.array(posterior.feature_names, dtype=object)

    @property
    def trend_(self) -> hyperparameter_table.Table:
        """Intercept and slopes of a trend that is integrated over, with their standard errors.

        They are in the units of the data, of transformed targets where there is a transform; those
        of one target after another.
        """
        check_is_fitted(self, "solved_")
        if self.solved_.layer(TrendLayer) is None:
            raise AttributeError(
                "trend_ belongs to a trend that is integrated over: fit with mean='linear' or the "
                "names of columns"
            )
        return hyperparameter_table.of_trend(self.solved_)

    @property
    def spread_(self) -> float:
        """Factor on predictive standard deviations that ``calibrate`` learned; 1 without."""
        check_is_fitted(self, "solved_")
        return self.solved_.spread

    @property
    def tails_(self) -> dict[float, float] | None:
        """Half widths of central intervals of new observations by level, if not those of a normal.

        They are in standard deviations, and learned by ``calibrate``.
        """
        check_is_fitted(self, "solved_")
        tails = self.solved_.layer(Tails)
        return None if tails is None else dict(zip(tails.levels, tails.widths, strict=True))

    @property
    def hyperparameters_(self) -> hyperparameter_table.Table:
        """Hyper-parameters in the units of the data, with standard errors where they are known.

        The errors come from the curvature of the objective on the rows that were trained on.
        """
        check_is_fitted(self, "solved_")
        return hyperparameter_table.table(self.solved_, getattr(self, "_errors", None))

    # -- what it will take -----------------------------------------------------------------------

    def plan(
        self,
        X: Any,
        y: Any,
        measure: bool = False,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        features: Any = None,
        mask: str | None = None,
    ) -> planning.Plan:
        """Return what ``fit(X, y)`` will need, from the sizes of the data alone.

        Parameters
        ----------
        X, y, y_variance, sample_weight, features, mask
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
        check_settings(self)
        columns = named.columns_of(X, y, features, mask, y_variance, sample_weight, self.geographic)
        if columns is not None:
            with (
                scratch_rows(self.store) as url,
                columns.converted(url, self.progress) as (X, y, _),
            ):
                return self.plan(X, y, measure)
        executor = Executor.current(self.progress)
        rows = self._rows_of(X, y, None, executor.shares_memory, y_variance, sample_weight)
        self._check(rows, len(rows))
        control.check_names(self, self._kernel(rows), rows.n_features)
        work = self._workload(rows)
        cache = training_rows.most_kept(executor.memory_per_task() or executor.memory())
        planned = planning.with_kept(planning.make_plan(work), work, executor, cache)
        if measure:
            planned = timing.measured(planned, self, work, executor)
        return planned

    # -- stores ----------------------------------------------------------------------------------

    def save(self, url: str, *, wait: float = 0.0, clear_lock: bool = False) -> None:
        """Write the fitted model to a new store; ``daskgp.load`` reads it back.

        Parameters
        ----------
        url : str
            Store to write.  One run at a time writes it; its lock is an object beside it.
        wait, clear_lock
            As for ``fit``.

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
        from daskgp.estimators.saving import save

        self._check_fitted()
        with locks.hold(str(url), wait, clear_lock, resume=True):
            save(self, url)

    # -- plan --------------------------------------------------------------------------------

    def _check(self, rows: data.Rows, n: int | None) -> None:
        """Raise InputError for settings or sizes of data that the method cannot be fitted with.

        ``n`` counts the usable rows; None if more of them will follow.
        """
        arrangement, name = self._arrangement(), type(self).__name__
        declared.check_noise(self._model(), rows, name)
        declared.check_arrangement(self._model(), arrangement, name)
        arrangement.check(rows, name)
        if n is None:
            return
        if n == 0:
            raise InputError("no rows: the training data has length 0")
        if n == 1:
            raise scaling.one_row()
        if self.target_transform is not None and rows.y_variance is not None:
            raise SettingError(
                f"y_variance is that of y and target_transform={self.target_transform!r} takes "
                "noise of the transformed y: leave one of them out (y_variance=False where the "
                "store has it), or give sample_weight"
            )
        if self.calibrate is not None and rows.y_variance is not None:
            raise SettingError(
                f"calibrate={self.calibrate!r} learns a factor on the whole spread, and y_variance "
                "is known: leave one of them out (y_variance=False where the store has it)"
            )
        if self.calibrate is not None:
            known_errors.refuse_weights(self._model(), rows)
        self._inputs.check(n)
        arrangement.check_number(n)

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        """Return what a fit to rows works on, on request with another value of its knob."""
        planned, own = self._arrangement().planned(rows, value), self._inputs
        rows, largest = planned.rows, planned.largest
        units, trained = f"blocks of {largest} rows", self.train_blocks
        return Workload(
            self._model().of_units(len(planned.units)),
            self._kernel(rows),
            rows,
            planned.units,
            own.planned(rows.n_features),
            Knob("block_rows", largest, units, self._planning(rows), note=SMALL_CHUNKS),
            timing.in_blocks(len(rows), max(largest, 1), own.count, block_rows=largest),
            np.dtype(self.dtype).itemsize,
            block_rows=planned.block_rows,
            window_rows=planned.window_rows,
            near_rows=planned.near_rows,
            per_task=planned.per_task,
            written=planning.spilled_bytes(rows) + self._residual_bytes(rows) + planned.written,
            train_units=hyperparameters.SECOND if isinstance(trained, str) else trained,
            iterations=None if self.optimizer is None else self.max_iter,
        )

    def _residual_bytes(self, rows: data.Rows) -> int:
        """Return the bytes of what a regressor leaves of y, which is written for tasks to read."""
        known = means.regressor(self.mean, rows) is None or rows.chunks is None
        return 0 if known else 8 * len(rows) * rows.n_targets

    def _planning(self, rows: data.Rows) -> Callable[[int], planning.Plan]:
        """Return the plan of a fit to rows as a function of its knob's value."""
        return lambda value: planning.make_plan(self._workload(rows, value))


def _check_seen(rows: data.Rows, executor: Executor) -> None:
    """Raise InputError for rows that not all workers see."""
    for array in rows.arrays.values():
        remedy = f"put it in {visibility.HERE}, with store= where fit writes it"
        visibility.check(executor, array, "the training data", remedy)


def _token_of(start: Any) -> str | None:
    """Return what tells a model to start from; SettingError for anything but a fitted one."""
    if start is None:
        return None
    if not isinstance(start, UpdatedGP) or not hasattr(start, "solved_"):
        raise SettingError(
            f"start={shown(start)}: a fitted estimator is needed, such as daskgp.load(...)"
        )
    return start.solved_.token


def refuse_alone(**settings: float) -> None:
    """Raise SettingError for settings of a checkpoint's lock if there is no checkpoint."""
    for name, value in settings.items():
        if value:
            raise SettingError(
                f"{name}={shown(value)} belongs to a checkpoint: give checkpoint= or leave "
                f"{name} out"
            )


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
