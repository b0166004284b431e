"""Base of all estimators: their settings, what a method may say otherwise, and the fit."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskgp import data, train
from daskgp.checks import place, shown
from daskgp.data import partition, visibility
from daskgp.data.blocks import sampling
from daskgp.data.stores import locks
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import InputError, MemoryRunError, RunError, SettingError
from daskgp.estimators.prediction import FittedGP
from daskgp.estimators.settings import check_settings, kernel_of
from daskgp.fit import hyperparameters, refusal, rounds, timing
from daskgp.fit import plan as planning
from daskgp.fit.effects import ADAM, TRAINED, Effects
from daskgp.fit.inputs import ChosenInputs
from daskgp.fit.scratch import scratch_rows
from daskgp.fit.starting import Start
from daskgp.kernels import Kernel
from daskgp.models import scaling
from daskgp.models.method import Method as Contract
from daskgp.models.values import Theta
from daskgp.predict import hyperparameter_table
from daskgp.predict.posterior import Solved
from daskgp.predict.training_rows import TrainingRows
from daskgp.runtime.executor import Executor
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Device, DtypeName, MeanName, OptimizerName

logger = logging.getLogger("daskgp")

DEFAULT_TOL = 0.1
OUTSIDE = 0.1
"""Share of the data's range by which inducing inputs may lie beyond it without a warning."""
ALIKE = 128
"""Blocks beyond which more of them change nothing of what a worker needs."""
SMALL_CHUNKS = " (and rewrite a store with larger chunks)"


@dataclass(eq=False, repr=False)
class GaussianProcess(FittedGP):
    """What all estimators share; use one of its subclasses.

    Constructor parameters are settings and are never changed; what is learned ends in an
    underscore.  With ``standardize=True`` kernel, noise variance and objective are those of the
    standardised data: inputs with mean 0, divided by their standard deviation, those that share a
    lengthscale by one in common; outputs divided by the standard deviation of what the mean
    function leaves.  Constant inputs are left out.
    """

    kernel: Kernel | str | None = None
    _: KW_ONLY
    noise_variance: float = 0.1
    mean: MeanName = "constant"
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

    model_name: ClassVar[str]
    effects: ClassVar[Effects] = {
        "learning_rate": (ADAM,),
        "max_iter": (TRAINED,),
        "tol": (TRAINED,),
        "train_blocks": (TRAINED,),
    }
    """What settings need to have an effect."""
    chooses_tol: ClassVar[bool] = False
    """Whether ``tol=None`` leaves it to the method."""
    ard_reach: ClassVar[float] = 1.0
    """What multiplies the upper bounds of lengthscales of single inputs, where they may not matter.

    Lengthscales and variance may drift off together then, which not every method bears.
    """
    knows_enough_blocks: ClassVar[bool] = False
    """Whether ``train_blocks="auto"`` can tell how many blocks are enough."""
    searches_start: ClassVar[bool] = True
    """Whether training starts from the best of several starts."""
    inputs_label: ClassVar[str] = "inducing inputs"

    def _model(self) -> Contract:
        raise TypeError(f"{type(self).__name__} is a base class: use SGPR or ExactGP")

    def _fitted(self, stage: rounds.Rounds) -> Contract:
        """The method that predicts."""
        return self._model()

    def _n_inputs(self) -> int:
        """Number of inducing inputs, 0 for a method without."""
        return 0

    def _n_inputs_of(self, n: int) -> int:
        """Return the number of inducing inputs for n rows: the default one is at most n."""
        count = self._n_inputs()
        usual = self._chosen is not None and self._chosen.usual
        return min(n, count) if usual else count

    @property
    def _chosen(self) -> ChosenInputs | None:
        """How inducing inputs are chosen, of a method that has some."""
        return None

    def _planned_inputs(self, rows: data.Rows) -> int:
        """Number of inducing inputs that a plan for these rows reckons with."""
        return self._n_inputs()

    def _choose_inputs(
        self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel
    ) -> np.ndarray | None:
        """Inducing inputs in scaled units, from a scaled sample."""
        return None

    def _placed_inputs(self, stage: rounds.Rounds, sums: scaling.Sums) -> np.ndarray | None:
        """Inducing inputs in scaled units that follow from the ranges of the data alone."""
        return None

    def _trains_inputs(self) -> bool:
        return False

    def _trains_more(self) -> bool:
        """Whether training moves more than hyper-parameters."""
        return self._trains_inputs()

    def _arranged(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> rounds.Rounds:
        """The rounds over the rows as the method wants them; new ones are kept at ``keep``."""
        return stage

    def _settled(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        """The rounds of the final summary, now that the hyper-parameters are known."""
        return stage

    def _train(self, stage: rounds.Rounds, theta: Theta, run: hyperparameters.Run) -> train.Trained:
        """The best vector of hyper-parameters, the history of the search and the curvature."""
        return hyperparameters.on_blocks(self, stage, theta, run)

    def _solve(self, stage: rounds.Rounds, theta: Theta) -> tuple[Any, float]:
        """What prediction needs, and the value of the objective."""
        return self._model().solve(theta, stage)

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> TrainingRows | None:
        """Training rows that prediction reads back, of a method that wants them."""
        return None

    def _held_rows(self, block_rows: int, n: int) -> tuple[int, int, int]:
        """Rows of a window, rows that a prediction is conditioned on, and blocks of a task."""
        return block_rows, 0, 1

    def _solve_steps(self) -> int:
        """Steps that the fit of a method took which trains nothing."""
        return 1

    def _most_iterations(self) -> int | None:
        """Iterations of a fit at most; None where it makes none."""
        return None if self.optimizer is None else self.max_iter

    def _counted(self) -> str:
        """What the history counts that takes about the same time each."""
        return "evaluations"

    # -- small things ----------------------------------------------------------------------------

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel)

    def _chooses_kernel(self) -> bool:
        """Whether training chooses the kernel by the evidence of a subset of rows."""
        return self.kernel is None

    def _tol(self) -> float:
        """Nats per hyper-parameter below which training stops."""
        return DEFAULT_TOL if self.tol is None else self.tol

    def _seed(self) -> int:
        """The seed of samples; a new one each time where ``random_state`` is None."""
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(self.random_state)

    def _read_rows(self) -> int | None:
        """Rows that a task reads of the data as they are given."""
        return self.block_rows

    def _spans(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        return tuple(partition.blocks(len(rows), rows.chunks, self._read_rows()))

    def _work(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        """The blocks that the method will work on."""
        return self._spans(rows)

    def _warn_of_inputs(
        self, inputs: np.ndarray | None, sums: scaling.Sums, scale: scaling.Scaling
    ) -> None:
        """Of inducing inputs far from all data, which explain nothing."""
        if inputs is None:
            return
        d = len(scale.x_scale)
        low, high = scale.inputs(sums.low[:d]), scale.inputs(sums.high[:d])
        margin = OUTSIDE * (high - low)
        away = (inputs < low - margin) | (inputs > high + margin)
        count = int(away.any(axis=1).sum())
        if count:
            logger.warning(
                "%d of %d %s lie outside the range of the data: they explain nothing there",
                count,
                len(inputs),
                self.inputs_label,
            )

    # -- fit ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        checkpoint: str | None = None,
        *,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> Self:
        """Fit to training rows wherever they lie.

        Parameters
        ----------
        X : array-like (n, d)
            NumPy (masked entries are missing), dask or Zarr array, data frame, or an xarray
            object on whose coordinates the features are built.  Dask arrays of a Zarr
            store are read from it by the tasks; other dask arrays are written to ``store`` once.
        y : array-like (n,) or (n, p)
            Targets; several share the kernel and the noise variance.
        checkpoint : str, optional
            URL where every evaluation of training is kept; a fit with the same data and settings
            goes on from it and ends with the same bits.  One fit at a time has a checkpoint; its
            lock is an object beside it, and that of a killed fit on this host is taken over.
        wait : float
            Seconds to wait for another fit with the same checkpoint to end.
        clear_lock : bool
            Whether to take over the lock that a dead fit left, of another host too.  Both belong
            to a checkpoint, and are refused without one.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If the data or a setting cannot be used; a ValueError with one plain line.
        PlanError
            If the work does not fit the memory of the workers.
        RunError
            If the cluster fails, or another fit has the checkpoint; a MemoryRunError where tasks
            ran out of memory.
        """
        place("checkpoint", checkpoint, "a checkpoint")
        if checkpoint is None:
            _refuse_alone(wait=wait, clear_lock=clear_lock)
            with _noted("pass checkpoint= to fit, and what is trained is not lost", self):
                return self._fit(X, y)
        url = str(checkpoint)
        with (
            locks.hold(url, wait, clear_lock, resume=True) as claim,
            _noted(f"the same fit with checkpoint={url!r} goes on from here", self),
        ):
            return self._fit(X, y, Place(url, claim))

    def _fit(
        self, X: Any, y: Any, checkpoint: Place | None = None, keep: str | None = None
    ) -> Self:
        """``fit``; rows that prediction needs are kept at the URL ``keep``, if there are any."""
        check_settings(self)
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        executor = Executor.current(self.progress, self.device)
        # sizes first: what cannot fit is refused before anything is written
        chunk_rows = self._read_rows()
        sizes = data.rows_of(X, y, None, executor.shares_memory, chunk_rows)
        self._refuse(sizes, executor)
        self._refuse_full_disk(sizes, keep)
        limit = executor.memory_per_task()
        try:
            with scratch_rows(self.store) as spill:
                rows = data.rows_of(X, y, spill, executor.shares_memory, chunk_rows)
                self._fit_rows(rows, executor, checkpoint, keep)
        except MemoryRunError as error:
            knob = self._knob(sizes)
            raise refusal.out_of_memory(error, self._plan(sizes), limit, knob) from error
        return self

    def _fit_rows(
        self,
        rows: data.Rows,
        executor: Executor,
        checkpoint: Place | None,
        keep: str | None = None,
    ) -> None:
        for array in (rows.X, rows.y):
            remedy = f"put it in {visibility.HERE}, with store= where fit writes it"
            visibility.check(executor, array, "the training data", remedy)
        spans = self._spans(rows)
        sums = sampling.describe(rows, spans, executor)
        self._check_columns(sums, rows)
        self._refuse_few_rows(int(sums.rows))
        scaling.warn_of_missing(sums.dropped)
        if not self._codes_targets():
            scaling.warn_of_discrete(sums, rows.target_names)
        scale = self._scaling(sums, rows)
        scaling.check_range(sums, scale, self.dtype, rows.feature_names, rows.target_names)
        units = partition.alone(spans)
        stage = rounds.Rounds(rows, units, scale, executor, self.dtype, self.device)
        begun = hyperparameters.start(self, stage, sums)
        stage = self._arranged(stage, begun.theta, sums, keep or "")
        self._learn(stage, begun, sums, checkpoint, keep or "")
        self.n_rows_ = int(sums.rows)

    def _check_columns(self, sums: scaling.Sums, rows: data.Rows) -> None:
        """Raise InputError for columns that no kernel, or not this one, can be fitted to."""
        scaling.check(sums, rows.feature_names, rows.target_names)
        kernel = self._kernel().resolve(np.ones(rows.n_features), 1.0)
        varies = ~scaling.constant(sums, rows.n_features)
        seen = [unit for unit in kernel.units(rows.n_features) if unit.columns]
        if seen and all(scaling.left_out(unit, varies) for unit in seen):
            columns = sorted({j for unit in seen for j in unit.columns})
            names = ", ".join(repr(rows.feature_names[j]) for j in columns)
            raise InputError(
                f"the kernel sees only {names}, the same in every row: give it a feature that "
                "varies by active_dims"
            )
        scaling.warn_of_columns(sums, self._tied(rows), rows.feature_names)

    def _scaling(self, sums: scaling.Sums, rows: data.Rows) -> scaling.Scaling:
        """Units that the method works in, and the mean function."""
        tied = self._tied(rows)
        return scaling.solve(sums, rows.n_features, self.mean, self.standardize, tied)

    def _codes_targets(self) -> bool:
        """True if y holds codes or counts, for which the method has a likelihood."""
        return False

    def _tied(self, rows: data.Rows) -> scaling.Ties:
        """Columns that share a scale."""
        return self._kernel().tied_columns(rows.n_features)

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> None:
        """Train from initial hyper-parameters, solve, and remember what prediction needs."""
        theta, self.history_, errors = hyperparameters.train_theta(
            self, stage, begun, sums, checkpoint
        )
        stage = self._settled(stage, theta)
        state, self.objective_ = self._solve(stage, theta)
        self._errors = errors
        self._remember(stage, theta, state, self._kept(stage, theta))

    def _remember(self, stage: rounds.Rounds, theta: Theta, state: Any, kept: Any) -> None:
        rows = stage.rows
        self._set_solved(
            Solved(
                self._fitted(stage),
                theta,
                state,
                stage.scaling,
                rows.feature_names,
                rows.target_names,
                rows.y.ndim == 1,
                stage.dtype,
                stage.device,
                kept,
                rows.target_units,
            )
        )

    def _set_solved(self, solved: Solved) -> None:
        self.solved_ = solved
        self.kernel_ = solved.theta.kernel
        self.noise_variance_ = solved.theta.noise_variance
        self.n_features_in_ = solved.n_features
        self.feature_names_in_ = np.array(solved.feature_names, dtype=object)

    @property
    def hyperparameters_(self) -> hyperparameter_table.Table:
        """Hyper-parameters in the units of the data, with standard errors where they are known.

        The errors come from the curvature of the objective of the rows that were trained on.
        """
        check_is_fitted(self, "solved_")
        return hyperparameter_table.table(self.solved_, getattr(self, "_errors", None))

    # -- what it will take -----------------------------------------------------------------------

    def plan(self, X: Any, y: Any, measure: bool = False) -> planning.Plan:
        """What ``fit(X, y)`` will need, from the sizes of the data alone.

        Parameters
        ----------
        X, y : array-like
            As for ``fit``.
        measure : bool
            Whether to also measure how long an iteration will take, by two short runs on some of
            the rows.

        Returns
        -------
        Plan
        """
        check_settings(self)
        executor = Executor.current(self.progress)
        rows = data.rows_of(X, y, None, executor.shares_memory, self._read_rows())
        found = planning.with_held(self._plan(rows), *self._held_bytes(rows, executor))
        self._refuse_few_rows(len(rows))
        if measure:
            seconds = timing.seconds(self, rows, executor)
            found = dataclasses.replace(found, seconds=seconds)
        return found

    def _probes(self, rows: data.Rows, threads: int) -> list[timing.Probe]:
        """Short runs whose seconds tell those of an iteration, from the smaller to the larger.

        They have blocks of the planned size, some for each thread.
        """
        largest = max((span.rows for span in self._work(rows)), default=1)
        return [
            timing.Probe(self._quick(block_rows=largest), number)
            for number in timing.sizes(len(rows), largest * threads, self._n_inputs())
        ]

    def _quick(self, **settings: Any) -> Self:
        """A copy that makes a few iterations, on all blocks that it is given."""
        return timing.quick(self, train_blocks=None, **settings)

    # -- stores ----------------------------------------------------------------------------------

    def save(self, url: str, *, wait: float = 0.0, clear_lock: bool = False) -> None:
        """Write the fitted model to a new store; ``daskgp.load`` reads it back.

        Parameters
        ----------
        url : str
            Where; one run at a time writes there, its lock is an object beside it.
        wait, clear_lock
            As for ``fit``.
        """
        from daskgp.estimators.saving import save

        check_is_fitted(self, "solved_")
        with locks.hold(str(url), wait, clear_lock, resume=True):
            save(self, url)

    # -- plan --------------------------------------------------------------------------------

    def _plan(self, rows: data.Rows) -> planning.Plan:
        return self._plan_blocks(rows, self._work(rows))

    def _plan_blocks(self, rows: data.Rows, spans: Sequence[partition.Span]) -> planning.Plan:
        largest = max((span.rows for span in spans), default=0)
        found = planning.make_plan(
            self._model(),
            self._kernel(),
            rows,
            spans,
            self._planned_inputs(rows),
            np.dtype(self.dtype).itemsize,
            *self._held_rows(largest, len(rows)),
            bytes_written=self._written_bytes(rows),
        )
        return dataclasses.replace(
            found,
            operations=found.operations * self._trained_share(len(spans)),
        )

    def _planned_wide(self, rows: data.Rows, wide: int) -> planning.Plan:
        """The plan for blocks of so many rows."""
        cut = rows
        if rows.chunks and not data.is_zarr(rows.X):  # chunks that a fit will write
            most = max(wide, partition.default_block_rows(len(rows)))
            cut = dataclasses.replace(rows, chunks=(min(most, max(rows.chunks)),))
        count = min(-(-len(rows) // wide), ALIKE)
        return self._plan_blocks(cut, [partition.Span(0, wide)] * count)

    def _trained_share(self, blocks: int) -> float:
        """Share of the blocks that hyper-parameters are trained on."""
        if self.train_blocks is None:
            return 1.0
        number = hyperparameters.SECOND if self.train_blocks == "auto" else self.train_blocks
        return min(1.0, number / max(blocks, 1))

    def _held_bytes(self, rows: data.Rows, executor: Executor) -> tuple[int, int]:
        """Bytes that a worker holds where there is room for them, in the fit and predicting."""
        return 0, 0

    def _written_bytes(self, rows: data.Rows) -> int:
        """Bytes of rows that a fit writes: those that tasks could not read otherwise."""
        spilled = rows.chunks is not None and not data.is_zarr(rows.X)
        return planning.rows_bytes(rows) if spilled else 0

    def _refuse(self, rows: data.Rows, executor: Executor) -> None:
        """Raise InputError or PlanError for what cannot be fitted, from its sizes alone."""
        self._refuse_few_rows(len(rows))
        refusal.refuse(self._plan(rows), executor.memory_per_task(), self._knob(rows))

    def _knob(self, rows: data.Rows) -> refusal.Knob:
        """Return the setting that the memory of a task follows."""
        largest = self._plan(rows).block_rows
        planned = partial(self._planned_wide, rows)
        return refusal.Knob(
            "block_rows", largest, f"blocks of {largest} rows", planned, note=SMALL_CHUNKS
        )

    def _refuse_few_rows(self, n: int) -> None:
        if n == 0:
            raise InputError("no rows: the training data has length 0")
        count = self._n_inputs_of(n)
        if n < count:
            raise InputError(f"{count} {self.inputs_label} for {n} usable rows: choose at most {n}")

    def _refuse_full_disk(self, rows: data.Rows, keep: str | None) -> None:
        """Raise PlanError where rows, or the model store that they are kept in, find no room."""
        found = self._plan(rows)
        refusal.refuse_full_disk(found.bytes_written, str(self.store or tempfile.gettempdir()))
        if keep is not None:
            refusal.refuse_full_disk(found.bytes_on_disk, keep)


def _refuse_alone(**settings: float) -> None:
    """SettingError for what is said of the lock of a checkpoint where there is none."""
    for name, value in settings.items():
        if value:
            raise SettingError(
                f"{name}={shown(value)} belongs to a checkpoint: give checkpoint= or leave "
                f"{name} out"
            )


@contextmanager
def _noted(note: str, estimator: GaussianProcess) -> Iterator[None]:
    """Say with the failure of a run how training goes on after it."""
    try:
        yield
    except MemoryRunError:  # its remedy is another setting, with which a fit begins anew
        raise
    except RunError as error:
        if estimator.optimizer is not None:
            error.add_note(note)
        raise
