"""Parts of a fit by mini-batches: where it starts, what it climbs, how it ends."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from dask import delayed
from sklearn.utils.validation import check_is_fitted

from daskgp import data, likelihoods
from daskgp.checks import shown
from daskgp.data import partition
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.errors import NumericalError, SettingError
from daskgp.estimators.batched import AVERAGE_FROM, BATCH_ROWS, POWERS, Batched
from daskgp.fit import hyperparameters, rounds, subset
from daskgp.fit.minibatches import LANE_ROWS, Share
from daskgp.fit.steps import Steps
from daskgp.fit.svi import Bases, Learning
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.values import Block, Theta
from daskgp.models.variational.parameters import Parameters, empty, with_covariance
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import solve_threads
from daskgp.train.stochastic import Ascent, Run, Stopped

logger = logging.getLogger("daskgp")

SMOOTHED = 100
"""Most steps whose bounds are averaged for ``objective_``: the last tenth of all."""


class Fit(NamedTuple):
    """What training works on: rows with their scaling, the kernel's kind, and what y is."""

    stage: rounds.Rounds
    theta: Theta
    likelihood: Likelihood
    offset: np.ndarray
    rows: float
    seed: int


class Ascending(Batched):
    """An estimator whose bound is climbed step by step."""

    _learned: Mapping[str, np.ndarray] | None = None
    """Beside the run, what another call of ``partial_fit`` goes on from."""
    _streamed: bool = False
    """Whether ``partial_fit`` has begun the model."""
    _said_left_out: bool = False
    """Whether a column that the model leaves out was seen to vary, and said to."""

    # -- what is learned -------------------------------------------------------------------------

    @property
    def likelihood_(self) -> Likelihood:
        """The likelihood with its learned parameters, in standardised units."""
        check_is_fitted(self, "solved_")
        return likelihoods.by_name(self._likelihood_name, self.solved_.state.likelihood)

    @property
    def _likelihood_name(self) -> str:
        """That of the fit, whatever the setting was changed to since; before one the setting."""
        fitted = getattr(self, "solved_", None)
        return str(self.likelihood if fitted is None else fitted.model.likelihood)

    def _in_units(self, inputs: np.ndarray) -> np.ndarray:
        return self.solved_.scaling.places(inputs)

    # -- parts of a fit --------------------------------------------------------------------------

    def _begin(self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, seed: int) -> Fit:
        found = self._likelihood(theta.noise_variance)
        offset = np.zeros(stage.rows.n_targets)
        if found.discrete and self.mean == "constant":
            offset = found.offset(sums.mean[stage.rows.n_features :])
        return Fit(stage, theta, found, offset, sums.rows, seed)

    def _with_hyperparameters(
        self, fit: Fit, sums: scaling.Sums, held: AllBut | None, n_held: int
    ) -> Fit:
        """Hyper-parameters from the exact evidence of a random subset of rows that are trained on.

        Rows that are held out have the smallest keys of their seed; those after them are taken.
        """
        stage = dataclasses.replace(fit.stage.executor, show=False)
        number, seed = min(self.n_subset, int(fit.rows)), (fit.seed, 12)
        rows = fit.stage.rows, fit.stage.spans, fit.stage.scaling
        drawn = sampling.draw(*rows, n_held + number, held.seed if held else seed, stage)
        if held is not None:
            trained = drawn.keys > held.highest
            drawn = sampling.Drawn(*(part[trained] for part in drawn))
        k = len(fit.theta.kernel.log_parameters)
        theta = dataclasses.replace(fit.theta, inputs=None)
        bounds = hyperparameters.bounds(self, theta, sums, fit.stage.scaling)[: k + 1]
        found = subset.trained_on(theta, Block(drawn.X, drawn.y), bounds, self.progress)
        noise = found.noise_variance
        theta = dataclasses.replace(fit.theta, kernel=found.kernel, noise_variance=noise)
        logger.info("hyper-parameters are those of %d rows: %r", number, found.kernel)
        return fit._replace(theta=theta, likelihood=self._likelihood(noise))

    def _parameters(self, fit: Fit) -> Parameters:
        d, p = fit.stage.rows.n_features, fit.stage.rows.n_targets
        found = empty(fit.theta.kernel.log_parameters, fit.likelihood.log_parameters, d, p)
        if fit.theta.inputs is None:
            return found
        scaled = self._basis == "generalized"
        return with_covariance(found, fit.theta.inputs, self._form, scaled, self._shared())

    def _problem(
        self, fit: Fit, executor: Executor, take: Any, place: Any, validation: Block
    ) -> Learning:
        n, stage = int(fit.rows), fit.stage
        covariance = self._n_inputs() if fit.theta.inputs is None else len(fit.theta.inputs)
        scaled, shared = self._basis == "generalized", self._shared()
        mean, batch = self._n_mean(n), self._batch(n)
        most = 2 * -(-mean // self.n_added) + 2 * -(-n // batch)
        bases = Bases(covariance, mean, self.n_added, scaled, shared, most)
        quiet = dataclasses.replace(executor, show=False)
        steps = Steps(
            self._model(),
            fit.rows,
            self.n_columns or batch,
            fit.seed,
            quiet,
            stage.dtype,
            stage.device,
        )
        return Learning(
            steps,
            fit.theta.kernel,
            fit.offset,
            take,
            place,
            bases,
            self._natural,
            self._precondition,
            validation,
        )

    def _ascent(self, fit: Fit, sums: scaling.Sums, learn: bool) -> Ascent:
        """Settings of a run; ``learn`` says whether hyper-parameters may follow the bound."""
        hyper = float(learn)
        points, means = float(self.train_points), float(self._moves_mean)
        rates = {"kernel": hyper, "likelihood": hyper, "root": 1.0}
        rates |= dict.fromkeys(("covariance_points", "covariance_scales"), points)
        rates |= dict.fromkeys(("mean_points", "mean_scales"), means)
        pace = self._mean_pace
        shared = pace if self._form == "hybrid" else 1.0  # those on Z are not whitened
        rates |= {"weights": pace, "shared_weights": shared}
        scale = fit.stage.scaling
        unit = scaling.target_variance(sums, scale, self.mean)
        if fit.likelihood.discrete:  # f has no unit
            scale, unit = dataclasses.replace(scale, y_scale=scale.y_scale * np.sqrt(unit)), 1.0
        kernel = hyperparameters.bounds(self, fit.theta, sums, scale)
        k = len(fit.theta.kernel.log_parameters)
        powers = [POWERS.get(name, 0.0) for name in fit.likelihood.parameter_names]
        own = fit.likelihood.log_bounds + np.log(unit) * np.array(powers)[:, None]
        start = fit.likelihood.log_parameters
        limits = {
            "kernel": (kernel[:k, 0], kernel[:k, 1]),
            "likelihood": (np.minimum(own[:, 0], start), np.maximum(own[:, 1], start)),
        }
        return Ascent(
            self.max_iter,
            self.learning_rate,
            rates,
            limits,
            check_every=self.check_every,
            patience=None if self.validation is None else self.patience,
            average_from=AVERAGE_FROM if self.average else None,
            progress=self.progress,
        )

    def _describe(self, fit: Fit) -> Any:
        names = [*fit.theta.kernel.parameter_names, *fit.likelihood.parameter_names]

        def describe(vector: np.ndarray) -> dict[str, float]:
            return dict(zip(names, map(float, np.exp(vector)), strict=True))

        return describe

    def _held_out(self, fit: Fit) -> tuple[AllBut | None, Block]:
        """Rows that are never trained on."""
        stage = fit.stage
        if self.validation is None:
            return None, no_rows(stage.rows)
        number = self._n_validation(int(fit.rows))
        seed = fit.seed, 11
        drawn = sampling.draw(stage.rows, stage.spans, stage.scaling, number, seed, stage.executor)
        return AllBut(seed, int(drawn.keys.max())), Block(drawn.X, drawn.y)

    def _here(self, executor: Executor) -> Executor:
        """Where gradients are computed."""
        if self.gradients == "client" and executor.client is not None:
            return dataclasses.replace(executor, client=None, here=True)
        return executor

    def _pieces(self, fit: Fit) -> list[list[Share]]:
        """One pass over the rows of a call, in batches."""
        stage = fit.stage
        block = stage.scaling.block(*stage.rows.read(0, len(stage.rows)), stage.dtype)
        node, n = delayed(block, traverse=False), len(block.X)
        batch = self.batch_rows or BATCH_ROWS
        found = []
        for span in partition.parts(0, n, batch):
            lanes = partition.parts(*span, LANE_ROWS)
            found.append([Share((node,), (slice(*lane),)) for lane in lanes])
        return found

    def _resumed(self, stage: rounds.Rounds) -> tuple[Fit, Run]:
        """The fit and run so far, on other rows."""
        solved = self.solved_
        if self.likelihood != self._likelihood_name:
            raise SettingError(
                f"likelihood={shown(self.likelihood)}: the model learns with "
                f"{self._likelihood_name!r}, which only fit changes: set it back or call fit"
            )
        found = self.likelihood_
        theta = Theta(solved.theta.kernel, float(self.noise_variance))
        fit = Fit(stage, theta, found, solved.state.offset, 0.0, self._seed())
        if not hasattr(self, "_run"):  # read from a store
            run = Run.begin(solved.state.parameters(solved.theta.kernel))
            names = [*theta.kernel.parameter_names, *found.parameter_names]
            self._run = dataclasses.replace(run, **_retold(self.history_, names))
            self._sums = sampling.describe(stage.rows, stage.spans, stage.executor)
        # a call that is interrupted leaves the history of the last one as it is
        return fit, dataclasses.replace(self._run, history=list(self._run.history))

    @contextmanager
    def _keeping_the_last(self, conclude: Callable[[Run], None]) -> Iterator[None]:
        """Where training meets numbers that are not finite, keep the step before."""
        try:
            yield
        except Stopped as error:
            if len(error.run.parameters.root):
                with suppress(NumericalError):  # of the very first there may be no posterior
                    conclude(error.run)
                    self.history_ = error.history
            raise

    def _conclude(self, fit: Fit, run: Run, rows: float, begun: int = 0) -> None:
        """Remember what prediction needs of a run, and so many rows that were given.

        Bounds of steps before ``begun`` were those of other rows.
        """
        parameters, model = run.result, self._model()
        with solve_threads(len(parameters.root)):
            prepared = model.prepare(fit.theta.kernel, parameters, fit.offset)
        noise = float(np.exp(parameters.likelihood[0])) if self.likelihood == "gaussian" else 0.0
        theta = Theta(prepared.kernel, noise)
        last = max(1, min(SMOOTHED, len(run.history) // 10, run.step - begun))
        bounds = [float(row[0]) for row in run.history[-last:]]
        # as if those held out were trained on too
        self.objective_ = float(np.mean(bounds)) * rows / fit.rows if bounds else None
        self._run, self.n_rows_ = run, int(rows)
        self._remember(fit.stage, theta, model.posterior(prepared), None)


def _retold(history: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """The rows of a run's history, and its step, from the entries that were made of them."""
    rows = []
    for entry in history:
        told = entry["objective"], entry["gradient_norm"], entry["seconds"]
        logs = np.log([entry[name] for name in names])
        rows.append(np.array([*told, entry.get("validation", np.nan), *logs]))
    return {"step": len(rows), "history": rows}


def no_rows(rows: data.Rows) -> Block:
    """A block of none, with the columns of rows."""
    return Block(np.zeros((0, rows.n_features)), np.zeros((0, rows.n_targets)))
