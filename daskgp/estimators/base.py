"""What all estimators share: they call the stages in order and compute nothing themselves."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self, cast

import dask.array as da
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from daskgp import linalg, metrics, scaling
from daskgp.errors import InputError, MemoryRunError, SettingError
from daskgp.estimators import measuring, training
from daskgp.estimators.nested import NestedKernel
from daskgp.estimators.places import scratch_rows
from daskgp.estimators.settings import check_settings, kernel_of
from daskgp.flow import average as averaging
from daskgp.flow import io, partition, rounds, scheduled, visible
from daskgp.flow import plan as planning
from daskgp.flow import predict as prediction
from daskgp.flow.cluster import Executor
from daskgp.flow.io import grids, reading
from daskgp.flow.members import Members
from daskgp.flow.nearby import Nearby
from daskgp.flow.progress import ShowProgress
from daskgp.flow.solved import Solved
from daskgp.kernels import Kernel
from daskgp.model import Ensemble, Model, Theta
from daskgp.typing import Device, MeanName, OptimizerName

logger = logging.getLogger("daskgp")

ALIKE = 128
"""Blocks beyond which more of them change nothing of what a worker needs."""
OUTSIDE = 0.1
"""Share of the data's range by which inducing inputs may lie beyond it without a warning."""


class GaussianProcess(RegressorMixin, NestedKernel):
    """What all estimators share; use one of its subclasses.

    Constructor parameters are settings and are never changed; what is learned ends in an
    underscore.  With ``standardize=True`` kernel, noise variance and objective are those of the
    standardised data: inputs with mean 0 and standard deviation 1, outputs divided by the
    standard deviation of what the mean function leaves.
    """

    kernel: Kernel | str | None
    noise_variance: float
    mean: MeanName
    standardize: bool
    optimizer: OptimizerName | None
    max_iter: int
    tol: float | None
    block_rows: int | None
    dtype: str
    device: Device
    store: str | None
    random_state: int | None
    progress: ShowProgress

    train_blocks: int | None = None

    model_name: ClassVar[str]
    chooses_tol: ClassVar[bool] = False
    """Whether ``tol=None`` leaves it to the method."""
    ard_reach: ClassVar[float] = 1.0
    """What multiplies the upper bounds of lengthscales of single inputs, where they may not matter.

    Lengthscales and variance may drift off together then, which not every method bears.
    """
    inputs_label: ClassVar[str] = "inducing inputs"
    solved_: Solved
    objective_: float | None

    # -- what a method says ------------------------------------------------------------------

    def _model(self) -> Model | Ensemble:
        raise TypeError(f"{type(self).__name__} is a base class: use SGPR or ExactGP")

    def _unit(self) -> Model:
        """The method that works on blocks of rows: of an ensemble, what each expert is."""
        return cast(Model[Any, Any, Any], self._model())

    def _fitted(self, stage: rounds.Rounds) -> Model | Ensemble:
        """The method that predicts."""
        return stage.model

    def _n_inputs(self) -> int:
        """Number of inducing inputs, 0 for a method without."""
        return 0

    def _planned_inputs(self, rows: io.Rows) -> int:
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

    def _arranged(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> rounds.Rounds:
        """The rounds over the rows as the method wants them; new ones are kept at ``keep``."""
        return stage

    def _settled(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        """The rounds of the final summary, now that the hyper-parameters are known."""
        return stage

    def _train(
        self, stage: rounds.Rounds, theta: Theta, run: training.Run
    ) -> tuple[np.ndarray, list[dict[str, Any]]]:
        """The best vector of hyper-parameters and the history of the search."""
        return training.on_blocks(self, stage, theta, run)

    def _solve(self, stage: rounds.Rounds, theta: Theta) -> tuple[Any, float]:
        """What prediction needs, and the value of the objective."""
        return stage.solve(theta)

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> Nearby | Members | None:
        """Training rows that prediction reads back, of a method that wants them."""
        return None

    def _held_rows(self, block_rows: int, n: int) -> tuple[int, int, int]:
        """Rows of a window, rows that a prediction is conditioned on, and blocks of a task."""
        return block_rows, 0, 1

    # -- fitting -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, checkpoint: str | None = None) -> Self:
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
            goes on from it and ends with the same bits.

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
            If the cluster fails; a MemoryRunError where its tasks ran out of memory.
        """
        return self._fit(X, y, checkpoint)

    def _fit(self, X: Any, y: Any, checkpoint: str | None = None, keep: str | None = None) -> Self:
        """``fit``; rows that prediction needs are kept at the URL ``keep``, if there are any."""
        check_settings(self)
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        executor = Executor.current(self.progress, self.device)
        # sizes first: what cannot fit is refused before anything is written
        chunk_rows = self._read_rows()
        sizes = io.rows_of(X, y, None, executor.shares_memory, chunk_rows)
        self._refuse(sizes, executor)
        self._refuse_full_disk(sizes, keep)
        limit = executor.memory_per_task()
        try:
            with scratch_rows(self.store) as spill:
                rows = io.rows_of(X, y, spill, executor.shares_memory, chunk_rows)
                self._fit_rows(rows, executor, checkpoint, keep)
        except MemoryRunError as error:
            raise self._out_of_memory(error, sizes, limit) from error
        return self

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
        rows = io.rows_of(X, y, None, executor.shares_memory, self._read_rows())
        found = planning.with_held(self._plan(rows), *self._held_bytes(rows, executor))
        self._refuse_few_rows(len(rows))
        if measure:
            seconds = measuring.seconds(self, rows, executor)
            found = dataclasses.replace(found, seconds=seconds)
        return found

    def _held_bytes(self, rows: io.Rows, executor: Executor) -> tuple[int, int]:
        """Bytes that a worker holds where there is room for them, in the fit and predicting."""
        return 0, 0

    def _written_bytes(self, rows: io.Rows) -> int:
        """Bytes of rows that a fit writes: those that tasks could not read otherwise."""
        spilled = rows.chunks is not None and not io.is_zarr(rows.X)
        return planning.rows_bytes(rows) if spilled else 0

    def _refuse_full_disk(self, rows: io.Rows, keep: str | None) -> None:
        """Raise PlanError where rows, or the model store that they are kept in, find no room."""
        found = self._plan(rows)
        planning.refuse_full_disk(found.bytes_written, str(self.store or tempfile.gettempdir()))
        if keep is not None:
            planning.refuse_full_disk(found.bytes_on_disk, keep)

    def _probes(self, rows: io.Rows, threads: int) -> list[measuring.Probe]:
        """Short runs whose seconds tell those of an iteration, from the smaller to the larger.

        They have blocks of the planned size, some for each thread.
        """
        largest = max((span.rows for span in self._work(rows)), default=1)
        return [
            measuring.Probe(self._quick(block_rows=largest), number)
            for number in measuring.sizes(len(rows), largest * threads, self._n_inputs())
        ]

    def _quick(self, **settings: Any) -> Self:
        """A copy that makes a few iterations, on all blocks that it is given."""
        return measuring.quick(self, train_blocks=None, **settings)

    def _solve_steps(self) -> int:
        """Steps that the fit of a method took which trains nothing."""
        return 1

    def _most_iterations(self) -> int | None:
        """Iterations of a fit at most; None where it makes none."""
        return None if self.optimizer is None else self.max_iter

    def _counted(self) -> str:
        """What the history counts that takes about the same time each."""
        return "evaluations"

    def _fit_rows(
        self,
        rows: io.Rows,
        executor: Executor,
        checkpoint: str | None,
        keep: str | None = None,
    ) -> None:
        for array in (rows.X, rows.y):
            remedy = f"put it in {visible.HERE}, with store= where fit writes it"
            visible.check(executor, array, "the training data", remedy)
        model, spans = self._unit(), self._spans(rows)
        sums = rounds.describe(rows, spans, executor)
        scaling.check(sums, rows.feature_names, rows.target_names)
        self._refuse_few_rows(int(sums.rows))
        if sums.dropped:
            logger.warning("%d rows with missing values are left out", int(sums.dropped))
        scale = self._scaling(sums, rows)
        windows = partition.alone(spans)
        stage = rounds.Rounds(model, rows, windows, scale, executor, self.dtype, self.device)
        theta = training.start(self, stage, sums)
        stage = self._arranged(stage, theta, sums, keep or "")
        self._learn(stage, theta, sums, checkpoint, keep or "")
        self.n_rows_ = int(sums.rows)

    def _scaling(self, sums: scaling.Sums, rows: io.Rows) -> scaling.Scaling:
        """Units that the method works in, and the mean function."""
        return scaling.solve(sums, rows.n_features, self.mean, self.standardize)

    def _learn(
        self,
        stage: rounds.Rounds,
        theta: Theta,
        sums: scaling.Sums,
        checkpoint: str | None,
        keep: str,
    ) -> None:
        """Train from initial hyper-parameters, solve, and remember what prediction needs."""
        theta, history = training.train_theta(self, stage, theta, sums, checkpoint)
        stage = self._settled(stage, theta)
        state, self.objective_ = self._solve(stage, theta)
        self.history_ = history
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
            )
        )

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

    def _set_solved(self, solved: Solved) -> None:
        self.solved_ = solved
        self.kernel_ = solved.theta.kernel
        self.noise_variance_ = solved.theta.noise_variance
        self.n_features_in_ = solved.n_features
        self.feature_names_in_ = np.array(solved.feature_names, dtype=object)

    # -- prediction --------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Posterior mean, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like (n, d)
            A NumPy array gives NumPy arrays.  A dask or Zarr array gives dask arrays with its row
            chunks, and nothing is computed.  An xarray object gives DataArrays on its grid, lazy
            where it is chunked.  Rows with a missing feature give NaN.
        return_std : bool
            Also return the standard deviation, with the shape of the mean.
        return_cov : bool
            Also return the joint covariance (n, n), or (n, n, p) for several targets; for rows
            in memory.
        include_noise : bool
            Whether the spread is that of a new observation y rather than of f.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov : where asked for
        """
        check_is_fitted(self, "solved_")
        if return_std and return_cov:
            raise SettingError("return_std and return_cov exclude each other: ask for one")
        if return_cov:
            return prediction.joint(self.solved_, X, include_noise)
        mean, std = prediction.marginal(
            self.solved_, X, "std" if return_std else "none", include_noise
        )
        return (mean, std) if return_std else mean

    def predict_average(
        self, X: Any, weights: Any = None, include_noise: bool = False
    ) -> tuple[Any, Any]:
        """Mean and standard deviation of a weighted average of the posterior over many places.

        The variance of the average of n places is w' C w with their joint covariance C, which is
        made and summed by tiles of 1,000 places: memory does not grow with n, but about 2 n^2
        entries of C are made.  A local method takes places that are conditioned on different
        training rows to be correlated through what these share alone, as with ``return_cov``.

        Parameters
        ----------
        X : array-like (n, d)
            The places, at most 200,000.  A NumPy array gives NumPy numbers; a dask or Zarr array
            gives dask arrays and nothing is computed; an xarray object gives DataArrays, lazy
            where it is chunked.  Places with a missing feature are left out.
        weights : array-like (n,), optional
            0 or more each, equal by default; they are divided by their sum.  For an xarray
            object a DataArray over some of its dimensions, such as ``np.cos(np.deg2rad(lat))``.
        include_noise : bool
            Whether the spread is that of the average of new observations rather than of f.

        Returns
        -------
        mean, std : numbers, or arrays (p,) for several targets

        Raises
        ------
        InputError
            If there are too many places, or weights that cannot be used.
        SettingError
            If the method has no joint covariance.
        """
        check_is_fitted(self, "solved_")
        return averaging.average(self.solved_, X, weights, include_noise)

    def predict_store(
        self,
        source: str,
        output: str,
        resume: bool = False,
        *,
        wait: float = 0.0,
        clear_lock: bool = False,
        verify: bool = False,
    ) -> scheduled.Written:
        """Predict the ``X`` of a dataset store into a prediction store, chunk by chunk.

        Mean and variance (noise included) are written with the chunks of X by one task a chunk,
        so memory does not grow with the rows and a run that was stopped can be repeated.  One run
        at a time writes an output; its lock is an object beside it.

        Parameters
        ----------
        source : str
            Dataset store; its ``y`` need not be there.
        output : str
            Prediction store to make.
        resume : bool
            Whether to finish an output that was begun with the same model and input.  Where the
            input has grown since, the new rows are predicted.
        wait : float
            Seconds to wait for another run on this output to end.
        clear_lock : bool
            Whether to take over the lock that a dead run left.
        verify : bool
            Whether to compare all of the input that is done with what it was, not only the chunks
            that were written since.

        Returns
        -------
        written
            Rows predicted now and rows found done.

        Raises
        ------
        StoreError
            If the source is none, or the output exists and ``resume`` is not set, or the output
            was made by another model or from another input.
        RunError
            If another run is at work on the output, or one that died left its lock.
        """
        check_is_fitted(self, "solved_")
        job = scheduled.Job(self.solved_, str(source), str(output), resume, verify=verify)
        executor = Executor.current(self.progress, self.solved_.device)
        return scheduled.write(job, executor, wait, clear_lock)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | None = 0, include_noise: bool = False
    ) -> np.ndarray:
        """Draws from the joint posterior at X, for rows in memory.

        Returns
        -------
        samples : ndarray (n, n_samples), or (n, p, n_samples) for several targets
        """
        check_is_fitted(self, "solved_")
        mean, cov = prediction.joint(self.solved_, X, include_noise)
        rng = np.random.default_rng(random_state)
        flat = mean.ndim == 1
        means, covs = (mean[:, None], cov[:, :, None]) if flat else (mean, cov)
        draws = np.empty((*means.shape, n_samples))
        for j in range(means.shape[1]):
            factor, _ = linalg.cholesky(np.ascontiguousarray(covs[:, :, j]), jitter=1e-10)
            draws[:, j] = means[:, [j]] + factor @ rng.standard_normal((len(means), n_samples))
        return draws[:, 0] if flat else draws

    def score(self, X: Any, y: Any) -> float:
        """Coefficient of determination R² of the mean at X against y; 1 is perfect."""
        mean = self.predict(X)
        if grids.is_xarray(mean):
            mean, y = grids.scored_arrays(mean, y, self.solved_.vector_target)
        if isinstance(mean, da.Array):
            y = da.asarray(y)
        elif isinstance(y, np.ma.MaskedArray):
            y = reading.unmasked(y)
        error = metrics.nmse(y, mean)
        return 1.0 - float(error.compute() if isinstance(error, da.Array) else error)

    def log_marginal_likelihood(self) -> float:
        """Log evidence of the training targets in their own units, or the bound maximised."""
        check_is_fitted(self, "solved_")
        if self.objective_ is None:
            raise SettingError(f"{type(self).__name__} has no evidence: it is not trained")
        return self.objective_ - self.n_rows_ * float(np.log(self.solved_.scaling.y_scale).sum())

    def save(self, url: str) -> None:
        """Write the fitted model to a new store; ``daskgp.load`` reads it back."""
        from daskgp.estimators.persist import save

        check_is_fitted(self, "solved_")
        save(self, url)

    @property
    def n_iter_(self) -> int:
        """Iterations of the search for hyper-parameters; 0 without one."""
        check_is_fitted(self, "solved_")
        return len(self.history_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # such rows are left out, and predicted as NaN
        tags.target_tags.multi_output = True
        return tags

    # -- small things ------------------------------------------------------------------------

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel)

    def _seed(self) -> int:
        """The seed of samples; a new one each time where ``random_state`` is None."""
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(self.random_state)

    def _read_rows(self) -> int | None:
        """Rows that a task reads of the data as they are given."""
        return self.block_rows

    def _spans(self, rows: io.Rows) -> tuple[partition.Span, ...]:
        return tuple(partition.blocks(len(rows), rows.chunks, self._read_rows()))

    def _work(self, rows: io.Rows) -> tuple[partition.Span, ...]:
        """The blocks that the method will work on."""
        return self._spans(rows)

    def _plan(self, rows: io.Rows) -> planning.Plan:
        return self._plan_blocks(rows, self._work(rows))

    def _trained_share(self, blocks: int) -> float:
        """Share of the blocks that hyper-parameters are trained on."""
        return 1.0 if self.train_blocks is None else min(1.0, self.train_blocks / max(blocks, 1))

    def _plan_blocks(self, rows: io.Rows, spans: Sequence[partition.Span]) -> planning.Plan:
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

    def _refuse(self, rows: io.Rows, executor: Executor) -> None:
        """Raise InputError or PlanError for what cannot be fitted, from its sizes alone."""
        self._refuse_few_rows(len(rows))
        self._refuse_plan(self._plan(rows), rows, executor.memory_per_task())

    def _refuse_plan(self, plan: planning.Plan, rows: io.Rows, limit: int | None) -> None:
        """Raise PlanError, with the ``block_rows`` that would fit, if a plan does not."""
        planning.refuse(plan, limit, partial(self._planned_wide, rows))

    def _out_of_memory(
        self, error: MemoryRunError, rows: io.Rows, limit: int | None
    ) -> MemoryRunError:
        """The error of a fit whose plan fitted, with the setting that needs less."""
        wide = partial(self._planned_wide, rows)
        return planning.out_of_memory(error, self._plan(rows), limit, wide)

    def _planned_wide(self, rows: io.Rows, wide: int) -> planning.Plan:
        """The plan for blocks of so many rows."""
        cut = rows
        if rows.chunks and not io.is_zarr(rows.X):  # chunks that a fit will write
            most = max(wide, partition.default_block_rows(len(rows)))
            cut = dataclasses.replace(rows, chunks=(min(most, max(rows.chunks)),))
        count = min(-(-len(rows) // wide), ALIKE)
        return self._plan_blocks(cut, [partition.Span(0, wide)] * count)

    def _refuse_few_rows(self, n: int) -> None:
        if n == 0:
            raise InputError("no rows: the training data has length 0")
        if n < self._n_inputs():
            raise InputError(
                f"{self._n_inputs()} {self.inputs_label} for {n} usable rows: choose at most {n}"
            )
