"""Base of all estimators: it calls the stages in order and computes nothing itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskgp import data
from daskgp.checks import place, shown
from daskgp.data import partition, visibility
from daskgp.data.blocks import sampling
from daskgp.data.stores import locks
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import InputError, MemoryRunError, RunError, SettingError
from daskgp.estimators.planned import Planned
from daskgp.estimators.prediction import Predicting
from daskgp.estimators.settings import check_settings
from daskgp.fit import hyperparameters, refusal, rounds, timing
from daskgp.fit import plan as planning
from daskgp.fit.scratch import scratch_rows
from daskgp.fit.starting import Start
from daskgp.models import scaling
from daskgp.models.values import Theta
from daskgp.predict import hyperparameter_table
from daskgp.predict.posterior import Solved
from daskgp.runtime.executor import Executor
from daskgp.typing import OptimizerName


class GaussianProcess(Planned, Predicting):
    """What all estimators share; use one of its subclasses.

    Constructor parameters are settings and are never changed; what is learned ends in an
    underscore.  With ``standardize=True`` kernel, noise variance and objective are those of the
    standardised data: inputs with mean 0, divided by their standard deviation, those that share a
    lengthscale by one in common; outputs divided by the standard deviation of what the mean
    function leaves.  Constant inputs are left out.
    """

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


@dataclass(eq=False, repr=False, kw_only=True)
class TrainedGP(GaussianProcess):
    """Base of estimators whose hyper-parameters are trained on all rows or on blocks of them."""

    optimizer: OptimizerName | None = "auto"
    learning_rate: float = 0.05
    tol: float = 0.1


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
