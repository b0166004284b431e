"""Base of the estimators that are trained by stochastic variational inference."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, Self

import dask.array as da
import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskgp import data, likelihoods, metrics
from daskgp.arrays.backend import resolve_device
from daskgp.data import grids, partition, reading, visibility
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.data.stores.checkpoints import Place
from daskgp.data.stores.snapshots import Snapshots
from daskgp.errors import InputError, SettingError
from daskgp.estimators.ascending import Ascending, Fit, no_rows
from daskgp.estimators.attributes import offered_unless
from daskgp.estimators.settings import check_settings
from daskgp.fit import hyperparameters, rounds
from daskgp.fit.minibatches import Stream
from daskgp.fit.starting import Start
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.variational.parameters import Parameters
from daskgp.predict.posterior import Solved, check_columns
from daskgp.runtime.executor import Executor
from daskgp.runtime.map_reduce import map_all
from daskgp.runtime.process import freed_memory_is_kept
from daskgp.train.stochastic import Run, ascend

logger = logging.getLogger("daskgp")

WATCHED = ("kernel", "likelihood")
"""Parameters that the history names."""


def _without_classes(estimator: VariationalGP) -> str | None:
    """Why an estimator has no ``predict_proba``."""
    name = estimator._likelihood_name
    if name.startswith("bernoulli"):
        return None
    return (
        f"{type(estimator).__name__} has no predict_proba, as likelihood={name!r} has no classes: "
        "predict(X, include_noise=True) gives the distribution of y"
    )


class VariationalGP(Ascending):
    """Base of ``DecoupledGP`` and ``SVGP``."""

    # -- prediction ------------------------------------------------------------------------------

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
        X, return_std, return_cov
            As for every estimator.
        include_noise : bool
            Whether mean and spread are those of a new observation y, rather than of the latent f:
            for a Bernoulli likelihood the probability of 1, for a Poisson one the expected count.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov : where asked for
        """
        return super().predict(X, return_std, return_cov, include_noise)

    @offered_unless(_without_classes)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of 0 and 1 at X, (n, 2), for a Bernoulli likelihood; lazy for dask X.

        On the grid of an xarray object they are along a last dimension, ``class``.
        """
        check_is_fitted(self, "solved_")
        if not self.solved_.vector_target:
            raise SettingError("predict_proba is for one target: fit with y of shape (n,)")
        one = self.predict(X, include_noise=True)
        if grids.is_xarray(one):
            return grids.of_classes(one)
        stack = da.stack if isinstance(one, da.Array) else np.stack
        return stack([1.0 - one, one], axis=1)

    def score(self, X: Any, y: Any) -> float:
        """R² of the mean of y at X; for a Bernoulli likelihood the share of right classes."""
        if not likelihoods.by_name(self._likelihood_name).discrete:
            return super().score(X, y)
        likelihood = self.likelihood_
        likelihood.refuse(int(self._error(X, y, y, partial(_unobservable, likelihood))))
        classes = self._likelihood_name.startswith("bernoulli")
        error = _wrong_classes if classes else metrics.nmse
        return 1.0 - self._error(X, y, self.predict(X, include_noise=True), error)

    # -- stages ----------------------------------------------------------------------------------

    def _fit_rows(
        self, rows: data.Rows, executor: Executor, checkpoint: Place | None, keep: str | None = None
    ) -> None:
        if self._likelihood().discrete:
            remedy = f"put it in {visibility.HERE}, with store= where fit writes it"
            for array in (rows.X, rows.y):
                visibility.check(executor, array, "the training data", remedy)
            _check_targets(rows, self._spans(rows), executor, self._likelihood())
        super()._fit_rows(rows, executor, checkpoint, keep)

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> None:
        theta = begun.theta
        keeper = self._keeper(checkpoint, sums)
        kept = keeper.read() if keeper else None
        seed = self._seed() if kept is None else int(kept["seed"])
        fit = self._begin(stage, theta, sums, seed)
        held, validation = self._held_out(fit)
        fit = fit._replace(rows=fit.rows - len(validation.X))
        if kept is None and self._from_subset():
            fit = self._with_hyperparameters(fit, sums, held, len(validation.X))
        run = Run.begin(self._parameters(fit)) if kept is None else Run.restore(Parameters, kept)
        if kept is not None:
            self._refuse_fewer(run.step)
            logger.info("continuing after %d steps", run.step)
        here = self._here(stage.executor)
        where = None if kept is None else kept["where"]
        with closing(self._stream(fit, held, where, here.here)) as stream:
            problem = self._problem(fit, here, stream.take, stream.where, validation)
            if kept is not None:
                problem.restore(kept)

            def conclude(run: Run) -> None:
                self._learned, self._sums, self._streamed = problem.arrays(), sums, False
                self._conclude(fit, run, sums.rows)
                self._run = run.going_on()

            ascent, describe = self._ascent(fit, sums, self._learns), self._describe(fit)
            with self._keeping_the_last(conclude), freed_memory_is_kept:
                run, self.history_ = ascend(problem, run, ascent, describe, WATCHED, keeper)
            conclude(run)
        if self._learns:
            _remark_on_limits(fit.theta.kernel, ascent.at_bounds(run.result, "kernel"))

    def _refuse_fewer(self, steps: int) -> None:
        """SettingError where a checkpoint is farther on than the fit is to go."""
        if steps > self.max_iter:
            raise SettingError(
                f"max_iter={self.max_iter}: the checkpoint is {steps} steps on; choose at least "
                "as many, or another checkpoint"
            )

    def _keeper(self, checkpoint: Place | None, sums: scaling.Sums) -> Snapshots | None:
        if checkpoint is None:
            return None
        identity = hyperparameters.run_identity(self, sums, ("progress", "max_iter"))
        return Snapshots(checkpoint.url, identity, checkpoint.claim)

    def _stream(
        self, fit: Fit, held: AllBut | None, where: np.ndarray | None, fetch: bool
    ) -> Stream:
        """Batches of the rows that are trained on, from the beginning or ``where`` it was."""
        stage = fit.stage
        quiet = dataclasses.replace(stage.executor, show=False)
        rows = stage.rows, stage.spans, stage.scaling
        batch = self._batch(int(fit.rows))
        return Stream(*rows, quiet, stage.dtype, batch, fit.seed, held, where, fetch=fetch)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Go on learning from more rows, in one pass over them.

        The first call sets units, hyper-parameters to start from and inducing inputs as ``fit``
        would from these rows; bases grow from rows of later calls until they are full.  The bound
        is that of the rows seen so far.  Hyper-parameters follow it unless ``optimizer`` is None,
        or ``fit`` has taken them from a subset.  Settings of how ``fit`` ends, such as ``max_iter``
        and ``validation``, do not matter here.  A model read from a store has lost what Adam
        remembers, so its first steps are as long as those of a new one.

        Parameters
        ----------
        X, y : array-like
            As for ``fit``; they need not be kept.

        Returns
        -------
        self
        """
        check_settings(self, besides=("n_added", "average"))
        self._check()
        resolve_device(self.device)
        executor = Executor(None, False, here=True)
        rows = data.rows_of(X, y, None, True, self.block_rows)
        if not len(rows):
            raise InputError("no rows: there is nothing to learn from")
        spans = self._spans(rows)
        if self._likelihood().discrete:
            _check_targets(rows, spans, executor, self._likelihood())
        stage, sums = self._given(rows, spans, executor)
        if hasattr(self, "solved_"):
            before, (fit, run) = self.n_rows_, self._resumed(stage)
        else:
            before, (fit, run) = 0, self._opened(stage, sums)
        self._follow(fit._replace(rows=before + sums.rows), run, before)
        return self

    def _given(
        self, rows: data.Rows, spans: Sequence[partition.Span], executor: Executor
    ) -> tuple[rounds.Rounds, scaling.Sums]:
        """More rows in the units of the first ones, and their sums."""
        sums = sampling.describe(rows, spans, executor)
        if hasattr(self, "solved_"):
            _check_more(self.solved_, rows, sums)
            scale = self.solved_.scaling
            self._warn_of_left_out(sums, rows)
        else:
            self._check_columns(sums, rows)
            scale = self._scaling(sums, rows)
        scaling.check_range(sums, scale, self.dtype, rows.feature_names, rows.target_names)
        scaling.warn_of_missing(sums.dropped)
        units = partition.alone(spans)
        return rounds.Rounds(rows, units, scale, executor, self.dtype, self.device), sums

    def _warn_of_left_out(self, sums: scaling.Sums, rows: data.Rows) -> None:
        """Say once of columns without a scale that they vary in rows of later calls."""
        scale, d = self.solved_.scaling, rows.n_features
        moved = (sums.low[:d] < scale.x_shift) | (sums.high[:d] > scale.x_shift)
        names = [repr(rows.feature_names[j]) for j in np.flatnonzero(moved & ~scale.uses)]
        if names and not self._said_left_out:
            logger.warning(
                "%s: left out because the first rows held one value of it, but now it varies: "
                "begin anew with rows in which it does",
                ", ".join(names),
            )
            self._said_left_out = True

    def _opened(self, stage: rounds.Rounds, sums: scaling.Sums) -> tuple[Fit, Run]:
        """The fit and run that the first rows of a stream begin."""
        fit = self._begin(stage, hyperparameters.start(self, stage, sums).theta, sums, self._seed())
        self._sums, self._learned, self._streamed = sums, None, True
        return fit, Run.begin(self._parameters(fit))

    def _follow(self, fit: Fit, run: Run, before: float) -> None:
        """One pass over the rows of a call, which follow so many others."""
        pieces, begun, executor = self._pieces(fit), run.step, fit.stage.executor
        seen = np.cumsum([before, *(sum(p.size for p in batch) for batch in pieces)])

        def conclude(run: Run) -> None:
            rows = float(seen[run.step - begun])
            self._learned = problem.arrays()
            self._conclude(fit._replace(rows=rows), run, rows, begun)

        none = no_rows(fit.stage.rows)
        problem = self._problem(fit, executor, lambda: pieces.pop(0), _nowhere, none)
        problem.bases = problem.bases._replace(covariance=self._n_inputs(), most=None)
        # a model that fit has begun keeps to its setting
        learn = self._learns or (self._streamed and self.optimizer is not None)
        if learn:
            problem.let_go()
        if self._learned is not None:
            problem.restore(self._learned)
        ascent = dataclasses.replace(
            self._ascent(fit, self._sums, learn),
            steps=run.step + len(pieces),
            patience=None,
        )
        with self._keeping_the_last(conclude):
            run, self.history_ = ascend(problem, run, ascent, self._describe(fit), WATCHED)
        conclude(run)


def _wrong_classes(y: Any, mean: Any) -> Any:
    """Share of classes 0 and 1 that are not the likelier one."""
    return metrics.mae(y, np.where(np.isnan(mean), np.nan, mean > 0.5))


def _remark_on_limits(kernel: Kernel, at: np.ndarray) -> None:
    """Warn of a kernel most of whose hyper-parameters are at their limits: it may have diverged."""
    if 2 * at.sum() > len(at):
        names = [name for name, limit in zip(kernel.parameter_names, at, strict=True) if limit]
        logger.warning(
            "training ended with %s at their limits: lower learning_rate, or look for columns "
            "without information",
            ", ".join(names),
        )


def _unobservable(likelihood: Likelihood, y: Any, _: Any) -> Any:
    """How many values the likelihood cannot give."""
    y = y if isinstance(y, da.Array) else np.asarray(y)
    reading.check_kind("y", y)
    return (~likelihood.supports(y)).sum()


def _check_targets(
    rows: data.Rows, spans: Sequence[partition.Span], executor: Executor, likelihood: Likelihood
) -> None:
    """Raise InputError for targets of complete rows outside the support of a likelihood."""

    def wrong(span: partition.Span) -> list[np.ndarray]:
        X, y = rows.read(*span)
        y = y[scaling.complete_rows(X, y)]
        return [y[(~likelihood.supports(y)).any(axis=1)]]

    found = map_all(wrong, spans, executor, "targets")
    likelihood.check(np.concatenate(found), rows.target_names)


def _check_more(solved: Solved, rows: data.Rows, sums: scaling.Sums) -> None:
    """Raise InputError for rows that a fitted model cannot learn from."""
    check_columns(solved, rows.X, rows.feature_names)
    if rows.n_targets != solved.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, the model was fitted with {solved.n_targets}: "
            f"{', '.join(solved.target_names)}"
        )
    scaling.check_values(sums, rows.feature_names, rows.target_names)


def _nowhere() -> np.ndarray:
    return np.zeros((0, 3), np.int64)
