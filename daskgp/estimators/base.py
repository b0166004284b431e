"""What all estimators share: they call the stages in order and compute nothing themselves."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self

import dask
import dask.array as da
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from daskgp import linalg, metrics, scaling, selection, train
from daskgp.backend import resolve_device
from daskgp.errors import InputError, SettingError
from daskgp.estimators.settings import check_settings, kernel_of
from daskgp.flow import io, partition, rounds, visible
from daskgp.flow import plan as planning
from daskgp.flow import predict as prediction
from daskgp.flow.cluster import Executor, ShowProgress
from daskgp.flow.io import checkpoints, grids, reading
from daskgp.flow.solved import Solved
from daskgp.kernels import Kernel
from daskgp.model import Model, Theta
from daskgp.typing import Device, MeanName, OptimizerName

logger = logging.getLogger("daskgp")

NOISE_BOUNDS = (1e-6, 1e2)


class GaussianProcess(RegressorMixin, BaseEstimator):
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
    tol: float
    block_rows: int | None
    dtype: str
    device: Device
    store: str | None
    random_state: int | None
    progress: ShowProgress

    model_name: ClassVar[str]
    solved_: Solved

    # -- what a method says ------------------------------------------------------------------

    def _model(self) -> Model:
        raise TypeError(f"{type(self).__name__} is a base class: use SGPR or ExactGP")

    def _n_inputs(self) -> int:
        """Number of inducing inputs, 0 for a method without."""
        return 0

    def _choose_inputs(
        self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel
    ) -> np.ndarray | None:
        """Inducing inputs in scaled units, from a scaled sample."""
        return None

    def _trains_inputs(self) -> bool:
        return False

    def _training_spans(self, spans: tuple[partition.Span, ...]) -> tuple[partition.Span, ...]:
        """The blocks that hyper-parameters are trained on."""
        return spans

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
        """
        check_settings(self)
        executor = Executor.current(self.progress)
        # sizes first: what cannot fit is refused before anything is written
        self._refuse(io.rows_of(X, y, None, executor.shares_memory, self.block_rows), executor)
        with self._spill() as spill:
            rows = io.rows_of(X, y, spill, executor.shares_memory, self.block_rows)
            self._fit_rows(rows, executor, checkpoint)
        return self

    def plan(self, X: Any, y: Any) -> planning.Plan:
        """What ``fit(X, y)`` will need, from the sizes of the data alone."""
        check_settings(self)
        executor = Executor.current(self.progress)
        rows = io.rows_of(X, y, None, executor.shares_memory, self.block_rows)
        return self._plan(rows, self._spans(rows))

    def _fit_rows(self, rows: io.Rows, executor: Executor, checkpoint: str | None) -> None:
        for array in (rows.X, rows.y):
            remedy = f"put it in {visible.HERE}, with store= where fit writes it"
            visible.check(executor, array, "the training data", remedy)
        model, spans = self._model(), self._spans(rows)
        if executor.shares_memory:
            resolve_device(self.device)  # elsewhere it is the workers' devices that count
        sums = rounds.describe(rows, spans, executor)
        scaling.check(sums, rows.feature_names, rows.target_names)
        self._refuse_few_rows(int(sums.rows))
        if sums.dropped:
            logger.warning("%d rows with missing values are left out", int(sums.dropped))
        scale = scaling.solve(sums, rows.n_features, self.mean, self.standardize)
        stage = rounds.Rounds(model, rows, spans, scale, executor, self.dtype, self.device)
        theta, history = self._train(stage, self._start(stage), sums, checkpoint)
        state, self.objective_ = stage.solve(theta)
        self.history_ = history
        self._remember(stage, theta, state)
        self.n_rows_ = int(sums.rows)

    def _start(self, stage: rounds.Rounds) -> Theta:
        """Initial hyper-parameters, from a sample of rows."""
        number = selection.sample_rows(self._n_inputs())
        sample = rounds.gather_sample(
            stage.rows, stage.spans, stage.scaling, number, self._seed(), stage.executor
        )
        median = selection.median_distances(sample.X)
        # a distance over d columns is about sqrt(d) times that over one
        per_column = median.per_column * np.sqrt(len(median.per_column))
        kernel = self._kernel().resolve(per_column, median.euclidean)
        return Theta(
            kernel, float(self.noise_variance), self._choose_inputs(stage, sample.X, kernel)
        )

    def _train(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, checkpoint: str | None
    ) -> tuple[Theta, list[dict[str, Any]]]:
        if self.optimizer is None:
            return theta, []
        spans, with_inputs = self._training_spans(stage.spans), self._trains_inputs()
        quiet = dataclasses.replace(stage.executor, show=False)
        part = dataclasses.replace(stage, spans=spans, executor=quiet)

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            found = part.value_and_gradient(theta.from_vector(vector))
            return found.value, found.gradient.to_vector(with_inputs)

        best, history = train.maximise(
            evaluate,
            theta.to_vector(with_inputs),
            self._bounds(theta, sums, stage.scaling),
            sum(span.rows for span in spans) * stage.rows.n_targets,
            train.Training(self.optimizer, self.max_iter, self.tol, progress=self.progress),
            partial(_named, theta),
            self._tape(checkpoint, sums),
        )
        return theta.from_vector(best), history

    def _bounds(self, theta: Theta, sums: scaling.Sums, scale: scaling.Scaling) -> np.ndarray:
        d = len(scale.x_scale)
        spread = (sums.high[:d] - sums.low[:d]) / scale.x_scale
        kernel, noise = theta.kernel.log_bounds(spread), np.log([NOISE_BOUNDS])
        # bounds of variances are for targets of variance 1
        unit = scaling.target_variance(sums, scale, self.mean)
        variances = ["variance" in name for name in theta.kernel.parameter_names]
        kernel[variances] += np.log(unit)
        bounds = np.concatenate([kernel, noise + np.log(unit)])
        # what the user starts from is allowed
        start = theta.to_vector(with_inputs=False)
        bounds = np.stack(
            [np.minimum(bounds[:, 0], start), np.maximum(bounds[:, 1], start)], axis=1
        )
        if not self._trains_inputs() or theta.inputs is None:
            return bounds
        return np.concatenate([bounds, np.tile([-np.inf, np.inf], (theta.inputs.size, 1))])

    def _tape(self, checkpoint: str | None, sums: scaling.Sums) -> checkpoints.Checkpoint | None:
        if checkpoint is None:
            return None
        settings = {k: _identity(v) for k, v in self.get_params().items() if k != "progress"}
        data = dask.base.tokenize(*(np.asarray(part) for part in sums))
        return checkpoints.Checkpoint(checkpoint, {"settings": settings, "data": data})

    def _remember(self, stage: rounds.Rounds, theta: Theta, state: Any) -> None:
        rows = stage.rows
        self._set_solved(
            Solved(
                stage.model,
                theta,
                state,
                stage.scaling,
                rows.feature_names,
                rows.target_names,
                rows.y.ndim == 1,
                stage.dtype,
                stage.device,
            )
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

    def predict_store(self, source: str, output: str, resume: bool = False) -> prediction.Written:
        """Predict the ``X`` of a dataset store into a prediction store, chunk by chunk.

        Mean and variance (noise included) are written with the chunks of X by one task a chunk,
        so memory does not grow with the rows and a run that was stopped can be repeated.

        Parameters
        ----------
        source : str
            Dataset store; its ``y`` need not be there.
        output : str
            Prediction store to make.
        resume : bool
            Whether to finish an output that was begun with the same model and input.

        Returns
        -------
        written
            Rows predicted now and rows found done.

        Raises
        ------
        StoreError
            If the source is none, or the output exists and ``resume`` is not set, or the output
            was made by another model or from another input.
        """
        check_is_fitted(self, "solved_")
        executor = Executor.current(self.progress)
        return prediction.write(self.solved_, str(source), str(output), resume, executor)

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
        return self.objective_ - self.n_rows_ * float(np.log(self.solved_.scaling.y_scale).sum())

    def save(self, url: str) -> None:
        """Write the fitted model to a new store; ``daskgp.load`` reads it back."""
        from daskgp.estimators.persist import save

        check_is_fitted(self, "solved_")
        save(self, url)

    # -- small things ------------------------------------------------------------------------

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel)

    def _seed(self) -> int:
        """The seed of samples; a new one each time where ``random_state`` is None."""
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(self.random_state)

    def _spans(self, rows: io.Rows) -> tuple[partition.Span, ...]:
        return tuple(partition.blocks(len(rows), rows.chunks, self.block_rows))

    def _plan(self, rows: io.Rows, spans: tuple[partition.Span, ...]) -> planning.Plan:
        itemsize = np.dtype(self.dtype).itemsize
        return planning.make_plan(
            self._model(), self._kernel(), rows, spans, self._n_inputs(), itemsize
        )

    def _refuse(self, rows: io.Rows, executor: Executor) -> None:
        """Raise InputError or PlanError for what cannot be fitted, from its sizes alone."""
        self._refuse_few_rows(len(rows))
        plan = self._plan(rows, self._spans(rows))
        planning.refuse(plan, rows, executor.memory_per_task())

    def _refuse_few_rows(self, n: int) -> None:
        if n == 0:
            raise InputError("no rows: the training data has length 0")
        if n < self._n_inputs():
            raise InputError(
                f"{self._n_inputs()} inducing inputs for {n} usable rows: choose at most {n}"
            )

    @contextmanager
    def _spill(self) -> Iterator[str]:
        """URL of a dataset store that lives as long as a fit."""
        if self.store is None:
            with tempfile.TemporaryDirectory(prefix="daskgp-") as folder:
                yield f"{folder}/rows.zarr"
            return
        url = f"{str(self.store).rstrip('/')}/rows-{uuid.uuid4().hex[:12]}.zarr"
        try:
            yield url
        finally:
            io.remove(url)


def _identity(setting: Any) -> str:
    """Text that differs where a setting does; the repr of a long array leaves out its middle."""
    plain = setting is None or isinstance(setting, str | bool | int | float | Kernel)
    return repr(setting) if plain else str(dask.base.tokenize(setting))


def _named(theta: Theta, vector: np.ndarray) -> dict[str, float]:
    """Hyper-parameters of a vector by name, for the history."""
    found = theta.from_vector(vector)
    values = np.exp(found.kernel.log_parameters)
    named = dict(zip(found.kernel.parameter_names, map(float, values), strict=True))
    return {**named, "noise_variance": found.noise_variance}
