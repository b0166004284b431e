"""AutoGP: method, kernel and sizes chosen by scores of held-out rows, within a budget."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, overload

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes
from sklearn.base import clone

from daskgp import data
from daskgp.assess.cross_validation import rows_at
from daskgp.assess.leaderboard import HeldOut, Leaderboard, Trial
from daskgp.assess.refits import scratch
from daskgp.checks import choice, place, positive, shown, whole
from daskgp.choose import profile as profiling
from daskgp.choose.candidates import CANDIDATES, Candidate, full_size, methods, plan_of
from daskgp.choose.held_out import folds_of
from daskgp.choose.profile import LIKELIHOODS
from daskgp.choose.search import Search
from daskgp.choose.trials import NOT_OF_TRIALS, Rules, Trials, Tried
from daskgp.data import folds as splitting
from daskgp.data import grids, named_beside, valid
from daskgp.data.kinds import Dataset, Kind, Places, Stored
from daskgp.data.rows import COLUMNS, Beside
from daskgp.data.stores.checkpoints import KeptTrials, Place
from daskgp.errors import DaskgpError, InputError, PlanError, SettingError
from daskgp.estimators import settings_of_fit
from daskgp.estimators.attributes import Learned, offered_unless
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.prediction import FittedGP
from daskgp.estimators.requirements import alike, defaults
from daskgp.estimators.settings import check_settings, kernel_of
from daskgp.fit import separate, targets
from daskgp.fit.plan import Plan
from daskgp.fit.work import check_sites
from daskgp.kernels import Kernel
from daskgp.kernels.registry import describe
from daskgp.likelihoods import by_name
from daskgp.models import scaling
from daskgp.runtime import interrupts
from daskgp.runtime.executor import Executor
from daskgp.runtime.progress import Amount, ShowProgress, progress_line
from daskgp.train.callbacks import Callback, calling
from daskgp.typing import Device, LikelihoodName, Mean, Path, UnseenName

if TYPE_CHECKING:
    from daskgp.data.folds import Parts

logger: logging.Logger = logging.getLogger("daskgp")

Task = Literal["interpolate", "gaps", "forecast"]
Metric = Literal["nlpd", "crps", "rmse"]
ASKED = (
    "mean",
    "likelihood",
    "targets",
    "footprint",
    "unseen",
    "fixed",
    "limits",
    "prior",
    "target_transform",
)
"""Settings of all candidates that say what the data are."""
TRIALS = "-trials"
"""End of the URL of the trials that are kept beside a checkpoint."""
LATE = 1.25
"""Times the budget beyond which a warning says what search and last fit took."""


@dataclass(eq=False, repr=False)
class AutoGP(FittedGP):
    """GP regression that chooses its method, kernel and sizes within a budget of time.

    Kernels are compared by the exact GP on few rows, then methods on samples that grow from round
    to round, then sizes of the best one, all by scores of rows that were held out as the task asks.
    With a short budget methods hold the hyper-parameters that the exact GP or ``VecchiaGP`` has
    found, on as many rows as there is room for, and the best of them are trained.
    What is left of the time goes to what expected times have shut out, the most promising first.
    The last fit is of all rows.  The same seed makes the same choice where time does not run out.
    Ctrl-C ends the search and takes the best so far; another one ends the fit.

    Parameters
    ----------
    time_budget : float
        Seconds for search and last fit together.
    memory : int or str, optional
        Most memory of a process, in bytes or as "4GiB"; default that of the workers.
    task : {"interpolate", "gaps", "forecast"}
        What predictions are for: places among the rows (random rows are held out), regions without
        rows (blocks of space are), or later times (the last part along ``time`` is).
    metric : {"nlpd", "crps", "rmse"}
        Score that decides: the mean negative log predictive density of y, the continuous ranked
        probability score, or the root mean squared error.
    candidates : sequence of str or estimators, optional
        Methods to choose from, by name or with settings of their own; default those that suit the
        data.
    time : str or int, optional
        Column of X that the task "forecast" cuts; default the one whose unit is a time.
    kernel : Kernel or str, optional
        Kernel of all candidates; default a choice.
    mean : str, list of str, or fitted regressor
        Mean function of all candidates, as in ``SGPR``; "auto" compares none with a linear trend.
    likelihood : str
        Likelihood of all candidates, as in ``SGPR``; "auto" is that which the target suggests.
    targets, footprint, unseen, fixed, limits, prior, target_transform
        As in ``SGPR``, of all candidates.  Those that do not take them are left out.
    device, store, random_state, progress, geographic, fill_values
        As in ``SGPR``.

    Attributes
    ----------
    best_ : estimator
        The one chosen, fitted to all rows.
    chosen_ : Trial
        Its trial: method, kernel, settings and score.
    leaderboard_ : Leaderboard
        All trials, with scores, their standard errors, seconds and bytes; ``print`` shows a table.
    findings_ : tuple of str
        What was recognised in the data, and what was done about it.
    held_out_ : HeldOut
        Held-out rows and the chosen candidate's predictions of them, before the last fit.
    kernel_, noise_variance_, hyperparameters_, objective_, history_, n_features_in_, \
feature_names_in_, n_rows_ : as of ``best_``
    hyperparameter_map_ : Dataset of hyper-parameters at knots, if those of ``best_`` vary

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = daskgp.AutoGP(time_budget=20, candidates=["sgpr"]).fit(X, np.sin(6 * X[:, 0]))
    >>> model.chosen_.method, bool(model.chosen_.scores["rmse"] < 0.1)
    ('sgpr', True)
    """

    _: KW_ONLY
    time_budget: float = 300.0
    memory: int | str | None = None
    task: Task = "interpolate"
    metric: Metric = "nlpd"
    candidates: Sequence[Any] | Sequence[str] | str | None = None
    time: str | int | None = None
    kernel: Kernel | str | None = None
    mean: Mean | Literal["auto"] = "auto"
    likelihood: LikelihoodName | Literal["auto"] | str = "auto"
    targets: Literal["separate", "joint"] = "separate"
    footprint: Sequence[str] | str | int | None = None
    unseen: UnseenName = "error"
    fixed: Sequence[str] | str | Mapping[str, float | Sequence[float]] | None = None
    limits: Mapping[str, Sequence[float]] | None = None
    prior: Mapping[str, Any] | None = None
    target_transform: Literal["log", "sqrt", "boxcox"] | None = None
    device: Device = "auto"
    store: Path | None = None
    random_state: int = 0
    progress: ShowProgress = "auto"
    geographic: Sequence[str] | str | bool | None = None
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto"

    model_name: ClassVar[str] = "auto"

    best_ = Learned[GaussianProcess]()
    leaderboard_ = Learned[Leaderboard]()
    held_out_ = Learned[HeldOut]()

    # -- fit -------------------------------------------------------------------------------------

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
        places: Any = None,
        callback: Callback | None = None,
        features: Any = None,
        mask: Path | None = None,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> Self:
        """Search, and fit what was chosen to all training rows.

        Parameters
        ----------
        X, y, y_variance, sample_weight, features, mask, wait, clear_lock
            As for the other estimators.
        trials, exposure, offset, lower, upper
            As for the other estimators.  All candidates then have the likelihood that takes them:
            binomial with ``trials``, Poisson or negative binomial with ``exposure`` or ``offset``,
            and censored with ``lower`` and ``upper``.
        checkpoint : str or path, optional
            URL where evaluations of the last fit are kept, and beside it, at its end "-trials", the
            trials: a search with the same data and settings goes on from there.  The time of trials
            that were kept counts.
        places : array-like (m, d), optional
            Places that predictions are for: with ``task="gaps"``, held-out blocks are as far from
            other rows as they are.
        callback : callable, optional
            Called with each entry of the history of the last fit, as by the other estimators.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If the data or a setting cannot be used.
        PlanError
            If no candidate fits in the memory or the time allowed.
        RunError
            If the cluster fails, or another fit uses the checkpoint.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(100, 1))
        >>> model = daskgp.AutoGP(time_budget=20, candidates=["exact"], progress=False)
        >>> model = model.fit(X, np.sin(6 * X[:, 0]))
        >>> model.chosen_.method, model.best_.n_rows_
        ('exact', 100)
        """
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        given = X, y, features, mask, beside
        with (
            calling(callback),
            self._beginning(given, checkpoint, wait, clear_lock) as (X, y, at, beside),
        ):
            return self._fit(X, y, at, beside=beside, places=places)

    def _fit(
        self,
        X: Any,
        y: Any,
        checkpoint: Place | None = None,
        keep: str | None = None,
        beside: Beside | None = None,
        start: Any = None,
        places: Any = None,
    ) -> Self:
        """Fit as ``fit`` does; any rows that prediction needs are kept at the URL ``keep``."""
        began = time.monotonic()
        self._check(places)
        _refuse_start(start, y)
        running: list[Trials] = []
        with interrupts.first(partial(_end, running)):
            found, last, board = self._searched(X, y, checkpoint, beside, places, began, running)
            trials = running[0]
            with trials.until(trials.deadline - self._after) as deadline:
                last._fit(X, y, checkpoint, keep, beside)
        if deadline.passed and not trials.ended:
            logger.info("the deadline has ended the last training early")
        _say_late(trials)
        self._learn(last, board, found.held_out)
        return self

    def _searched(
        self,
        X: Any,
        y: Any,
        checkpoint: Place | None,
        beside: Beside | None,
        places: Any,
        began: float,
        running: list[Trials],
    ) -> tuple[Tried, GaussianProcess, Leaderboard]:
        """Return the trial chosen, the estimator of the last fit, and all trials.

        The trials are put into ``running`` before the first one.
        """
        executor = Executor.current(self.progress, self.device)
        with ExitStack() as stack:
            url = stack.enter_context(scratch(self.store))
            settings = self.geographic, self.fill_values
            # the last fit says what fill values are
            given = X, y, beside or {}, settings, executor, tuple(COLUMNS)
            rows = rows_at(f"{url}-rows", *given, silent=True)
            _check_columns(rows, executor)
            if self.targets != "joint":
                _refuse_gaps(rows, executor)
            _check_places(places, rows)
            column = self._time_column(rows)
            profile = self._profile(rows, column, f"{url}-each", executor)
            self._check_metric(profile)
            for finding in profile.findings:
                logger.info("%s", finding)
            several = self._given(profile.likelihood if profile.columns else None)
            seed, task = self.random_state, self.task
            made = task, column, places, seed, url, executor, profile.at_places
            parts = folds_of(rows, profile.rows, *made)
            stack.callback(_remove_folds, url, parts)
            kept = self._kept(checkpoint, rows, profile)
            own = float(self.time_budget), self._bytes(), self.metric, self.random_state
            kind = self.task != "interpolate", self.task == "forecast", self._left_out_tell
            rules = Rules(*own, *kind)
            with progress_line("search", None, Amount(unit="trials"), self.progress) as advance:
                trials = Trials(rules, rows, parts, profile, url, executor, began, kept, advance)
                running.append(trials)
                search = Search(trials)
                found = search.chosen(self._common(), several)
            if trials.ended and not found.candidate.holds:  # it would be trained anew
                found = trials.best_held or found
            last = self._last(found, rows, trials)
            return found, last, self._judged(search, found, last)

    def _profile(
        self, rows: data.Rows, column: int | None, url: str, executor: Executor
    ) -> profiling.Profile:
        """Return the profile of rows; of joint targets with gaps that of the one known most."""
        if self.targets == "joint" and rows.n_targets > 1:
            counts, some, every = separate.values(rows, splitting.even_spans(rows), executor)
            if some != every:
                columns = profiling.varying(rows, executor)
                apart = separate.OfTargets(rows, executor, url)
                try:
                    with scaling.missing_on_purpose():
                        each = [
                            profiling.of_rows(own, column, executor, "gaussian", columns)
                            for own in apart.written()
                        ]
                finally:
                    apart.clear()
                token = str(dask.base.tokenize([own.token for own in each]))
                return replace(each[int(np.argmax(counts))], rows=some, token=token)
        return profiling.of_rows(rows, column, executor, self._told)

    def _judged(self, search: Search, found: Tried, last: GaussianProcess) -> Leaderboard:
        """Return all trials, with what has to be said of the one chosen."""
        board, trials = search.leaderboard(found), search.trials
        if not found.mostly_better(trials.of_mean):
            logger.warning(
                "no method predicts most held-out rows better than their mean (%s %.4g "
                "against %.4g): the features may say nothing about the target",
                self.metric,
                found.trial.score,
                trials.of_mean.trial.score,
            )
        if trials.ended:
            number = len(trials.tried) - 1
            return board.with_finding(f"Ctrl-C has ended the search after {number} trials")
        if search.holding:
            by = _called(search.holder)
            board = board.with_finding(
                "the time budget left no training of every method: they are compared with the "
                f"hyper-parameters of {by} on {search.holding:,} rows"
                + (", and the best of them trained" if search.trained else "")
            )
        if found.candidate.estimator.optimizer is not None and last.optimizer is None:
            by = _called(found.learner) if found.learned else "the chosen trial"
            rows = found.learned or found.trial.rows
            return board.with_finding(
                "the time budget left no training on all rows: hyper-parameters are those of "
                f"{by}, on {rows:,} rows"
            )
        return board

    def _last(self, found: Tried, rows: data.Rows, trials: Trials) -> GaussianProcess:
        """Return the estimator of the last fit: trained again where the budget has room for it."""
        candidate, executor = self._steps(found.next(), rows, trials), trials.executor
        plan, threads = plan_of(candidate.estimator, rows, executor), executor.threads()
        held = candidate.held()
        slowness = trials.slowness(candidate.method)
        one = slowness * candidate.one_evaluation(plan, threads)
        self._after = slowness * held.seconds(plan, threads, rows) if candidate.holds else 0.0
        left = trials.left
        more: dict[str, Any] = {}
        left_out = slowness * candidate.left_out_seconds(plan, threads, rows)
        y = found.held_out.y
        varies = bool(np.any(np.fmax.reduce(y) > np.fmin.reduce(y)))  # else no error tells it
        learns = varies and self._left_out_tell and candidate.learns_spread(rows)
        if learns and self._after + left_out <= left:
            more["calibrate"] = "loo"
            self._after += left_out
        whole = trials.pace(candidate.method) * candidate.seconds(plan, threads, rows)
        # a training that ends early leaves cycles, and noise of heavy tails, where they began
        all_of_it = candidate.cyclic or candidate.robust
        trained = self._after + (whole if all_of_it else one) <= left
        decided = trials.kept.decision() if trials.kept else None
        if decided is not None:  # the fit that was interrupted goes on
            trained, more, self._after = decided["trained"], dict(decided["more"]), decided["after"]
        elif trials.kept and not trials.ended:  # a search that Ctrl-C has ended may go on
            trials.kept.decide({"trained": trained, "more": more, "after": self._after})
        chosen = candidate if trained or not candidate.holds else held
        if not trained and candidate.holds:
            logger.info("the budget leaves no time for training on all rows: those of the sample")
        return clone(chosen.estimator).set_params(progress=self.progress, **more)

    def _steps(self, candidate: Candidate, rows: data.Rows, trials: Trials) -> Candidate:
        """Return a method of few steps with its default sizes, where the budget has room for it."""
        left = trials.left
        for one in full_size(candidate) if self.candidates is None else ():
            plan = plan_of(one.estimator, rows, trials.executor)
            if one.seconds(plan, trials.executor.threads(), rows) <= left and trials.fits(
                one, plan
            ):
                return one
        return candidate

    @property
    def _left_out_tell(self) -> bool:
        """True if left-out rows are like the places that predictions are for."""
        return self.task == "interpolate" and self.metric != "rmse"

    def _learn(self, best: GaussianProcess, board: Leaderboard, held_out: HeldOut) -> None:
        best._board = board
        self.best_, self.leaderboard_, self.held_out_ = best, board, held_out
        self._fitted = best._fitted
        self._settings_of_fit = settings_of_fit.of(self)

    def _check_fitted(self, *besides: str) -> None:
        super()._check_fitted(*besides)
        self.best_._check_fitted()
        self._fitted = self.best_._fitted

    # -- what was found --------------------------------------------------------------------------

    @property
    def chosen_(self) -> Trial:
        """Trial of the candidate that was chosen."""
        return self.leaderboard_.best

    @property
    def findings_(self) -> tuple[str, ...]:
        """Facts recognised in the data, and what was done about them."""
        return self.leaderboard_.findings

    @overload
    def predict_proba(self, X: Places[Kind]) -> Kind: ...
    @overload
    def predict_proba(self, X: Stored) -> da.Array: ...
    @offered_unless(lambda gp: _no_classes(gp))
    def predict_proba(self, X: Any) -> Any:
        """Return the posterior probabilities of classes 0 and 1, of a target of these.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(100, 1))
        >>> own = [daskgp.SVGP(n_inducing=10, max_iter=20, likelihood="bernoulli")]
        >>> model = daskgp.AutoGP(time_budget=60, candidates=own, progress=False)
        >>> model.fit(X, X[:, 0] > 0.5).predict_proba(X).shape
        (100, 2)
        """
        best: Any = self.best_
        return best.predict_proba(X)

    @property
    def hyperparameter_map_(self) -> Dataset:
        """Hyper-parameters at the knots, in the units of the data, as a Dataset."""
        if missing := _no_map(self):
            raise AttributeError(missing)
        best: Any = self.best_
        return best.hyperparameter_map_

    @offered_unless(lambda gp: _no_map(gp))
    def hyperparameter_map(self, X: Any) -> Dataset:
        """Return the hyper-parameters at places, in the units of the data.

        Parameters
        ----------
        X : array-like (n, d) or xarray object
            As for ``hyperparameter_map`` of `VecchiaGP`.

        Returns
        -------
        Dataset

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(100, 1))
        >>> own = [daskgp.VecchiaGP(max_iter=3)]
        >>> model = daskgp.AutoGP(time_budget=20, candidates=own, progress=False)
        >>> model.fit(X, np.sin(6 * X[:, 0])).hyperparameter_map(X[:4])["noise_variance"].shape
        (4,)
        """
        best: Any = self.best_
        return best.hyperparameter_map(X)

    def save(
        self,
        url: Path,
        *,
        overwrite: bool = False,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> None:
        """Write the fitted model to a store, of which ``daskgp.load`` makes ``best_``.

        The leaderboard is kept with it, as its attribute ``leaderboard_``.

        Parameters
        ----------
        url, overwrite, wait, clear_lock
            As for the other estimators.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(100, 1))
        >>> model = daskgp.AutoGP(time_budget=20, candidates=["exact"], progress=False)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.fit(X, np.sin(6 * X[:, 0])).save(f"{folder}/model.zarr")
        ...     len(daskgp.load(f"{folder}/model.zarr").leaderboard_) > 1
        True
        """
        self._check_fitted()
        self.best_.save(url, overwrite=overwrite, wait=wait, clear_lock=clear_lock)
        self._fitted = self.best_._fitted

    def plan(
        self,
        X: Any,
        y: Any,
        measure: bool = False,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        features: Any = None,
        mask: Path | None = None,
    ) -> Plan:
        """Return the work of the costliest candidate on all rows, and the most memory of any.

        Candidates that do not fit in memory are left out, as they are in a search.

        Parameters
        ----------
        X, y, measure, y_variance, sample_weight, features, mask
            As for the other estimators.

        Returns
        -------
        Plan

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(100, 1))
        >>> model = daskgp.AutoGP(time_budget=20, candidates=["exact"], progress=False)
        >>> model.plan(X, np.sin(6 * X[:, 0])).rows
        100
        """
        self._check()
        beside = named_beside(y_variance=y_variance, sample_weight=sample_weight)
        with self._rows_of(X, y, features, mask, beside) as (X, y, beside):
            costliest, others = self._costliest(X, y, beside)
            return costliest._plan(X, y, measure, beside).beside(others)

    def _costliest(
        self, X: Any, y: Any, beside: Beside | None = None
    ) -> tuple[GaussianProcess, list[Plan]]:
        """Return the candidate of most operations that fits in memory, and the plans of all."""
        executor = Executor.current(self.progress)
        given = None, executor.shares_memory, None, beside, self.geographic, tuple(COLUMNS)
        rows = data.rows_of(X, y, *given)
        profile = profiling.of_sizes(rows, self._told)
        several = self._given(profile.likelihood if profile.columns else None)
        plans: list[tuple[Plan, GaussianProcess]] = []
        for one in several or methods(profile, self._common(), len(rows)):
            try:
                plans.append((plan_of(one.estimator, rows, executor), one.estimator))
            except DaskgpError as error:
                logger.info("%s is left out: %s", one.method, error)
        if not plans:
            raise PlanError(f"no candidate fits in memory for {len(rows)} rows: give candidates")
        costliest = max(plans, key=lambda pair: pair[0].operations)[1]
        return costliest, [plan for plan, _ in plans]

    def _windows(self, executor: Executor) -> Any:
        """Return the windows of the estimator chosen."""
        return self.best_._windows(executor)

    # -- settings --------------------------------------------------------------------------------

    def _check(self, places: Any = None) -> None:
        """Raise SettingError for a setting that cannot be, or places beside another task."""
        positive("time_budget", self.time_budget, unit="seconds")
        for name, allowed in (("task", Task), ("metric", Metric), ("device", Device)):
            choice(name, getattr(self, name), get_args(allowed))
        choice("progress", self.progress, (True, False, "auto"))
        whole("random_state", self.random_state, 0)
        place("store", self.store, "a folder")
        kernel_of(self.kernel)
        valid.numbers_of(self.fill_values)
        self._bytes()
        if self._given() is None:
            self._check_asked()
        if places is not None and self.task != "gaps":
            raise SettingError("places belong to task='gaps': set it, or leave places out")
        if self.time is not None and self.task != "forecast":
            raise SettingError(
                f"time={shown(self.time)} has no effect with task={self.task!r}: set "
                "task='forecast', or leave time out"
            )

    def _check_asked(self) -> None:
        """Raise SettingError for settings of candidates that none of those there are takes."""
        refused = list[SettingError]()
        for kind in CANDIDATES:
            try:
                return check_settings(kind(**self._common()))
            except SettingError as error:
                refused.append(error)
        raise refused[0]

    def _check_metric(self, profile: profiling.Profile) -> None:
        """Raise SettingError for a score that such targets do not have."""
        if profile.kind == "class" and self.metric == "crps":
            raise SettingError(
                "metric='crps' is for numbers, but the target is 0 or 1: choose 'nlpd'"
            )
        if profile.kind == "bounded" and self.metric != "nlpd":
            raise SettingError(
                f"metric={self.metric!r} is for measured values, but the target has bounds: "
                "choose 'nlpd'"
            )

    def _bytes(self) -> int | None:
        if self.memory is None:
            return None
        try:
            size = int(parse_bytes(self.memory) or 0)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise SettingError(
                f"memory={shown(self.memory)}: give bytes, or text such as '4GiB'"
            ) from error
        if isinstance(self.memory, bool):
            positive("memory", self.memory)
        if size <= 0:
            raise SettingError(f"memory={shown(self.memory)}: it must be greater than 0")
        return size

    def _given(self, likelihood: str | None = None) -> list[Candidate] | None:
        """Return the candidates given, None for those that suit the data.

        Those that are given by name get a likelihood, if there is one.
        """
        from daskgp.estimators.loading import ESTIMATORS

        if self.candidates is None:
            return None
        several = self.candidates
        if isinstance(several, str):
            several = [name.strip() for name in several.split(",")]
        if not isinstance(several, Sequence) or not len(several):
            raise SettingError(
                f"candidates={shown(several)}: give names among {', '.join(ESTIMATORS)}, or "
                "estimators"
            )
        found = []
        for one in several:
            if isinstance(one, GaussianProcess):
                own = self._as_candidate(one)
            elif isinstance(one, str) and ESTIMATORS.knows(one):
                own = self._by_name(ESTIMATORS[one])
                if likelihood is not None:
                    own.set_params(likelihood=likelihood)
            else:
                raise SettingError(
                    f"candidates have {shown(one)}: give names among {', '.join(ESTIMATORS)}, or "
                    "estimators of daskgp"
                )
            missing = own._model().why_no_variance()
            if missing:
                raise SettingError(f"candidate {own.model_name}: {missing}")
            check_settings(own)
            found.append(Candidate("method", own))
        return found

    def _as_candidate(self, one: GaussianProcess) -> GaussianProcess:
        """Return an estimator that is given, with the settings of all candidates."""
        fills = one.fill_values
        if not (alike(fills, "auto") or fills == self.fill_values):
            raise SettingError(
                f"candidate {one.model_name} has fill_values={shown(fills)}, which are those of "
                "the rows: give them to AutoGP, fill_values="
            )
        own: GaussianProcess = clone(one)
        own.set_params(progress=False)
        if self.kernel is not None:
            own.set_params(kernel=self.kernel)
        own.set_params(fill_values=self.fill_values, **self._asked())
        return own

    def _by_name(self, kind: type[GaussianProcess]) -> GaussianProcess:
        """Return an estimator of a class, with the kernel of the class where none is set."""
        common = self._common()
        if self.kernel is None:
            del common["kernel"]
        return kind(**common)

    def _common(self) -> dict[str, Any]:
        """Return the settings of all candidates."""
        names = ("kernel", "device", "store", "random_state", "geographic", "fill_values")
        return {name: getattr(self, name) for name in names} | self._asked() | {"progress": False}

    def _asked(self) -> dict[str, Any]:
        """Return the settings of candidates that say what the data are, where asked for."""
        usual, own = defaults(type(self)), {name: getattr(self, name) for name in ASKED}
        return {name: value for name, value in own.items() if not alike(value, usual[name])}

    @property
    def _told(self) -> str | None:
        """Likelihood that is asked for; None if the target tells it."""
        return None if self.likelihood == "auto" else self.likelihood

    # -- rows ------------------------------------------------------------------------------------

    def _time_column(self, rows: data.Rows) -> int | None:
        """Return the column that the task "forecast" cuts; None for another task."""
        if self.task != "forecast":
            return None
        if self.time is not None:
            return splitting.column_of("time", self.time, rows)
        marks = profiling.times_of(rows)
        if len(marks) != 1:
            names = ", ".join(rows.feature_names)
            raise SettingError(
                "task='forecast' needs the column of the times: set time= (--set time=NAME) to one "
                f"of {names}"
            )
        return marks[0]

    def _kept(
        self, checkpoint: Place | None, rows: data.Rows, profile: profiling.Profile
    ) -> KeptTrials | None:
        if checkpoint is None:
            return None
        own = self.get_params(deep=False).items()
        asked = self._asked()  # others are left out, as earlier versions had none
        named = ((name, value) for name, value in own if name not in ASKED or name in asked)
        settings = {name: self._plain(value) for name, value in named if name not in NOT_OF_TRIALS}
        columns = f"[{rows.feature_names}, {rows.target_names}, {len(rows)}, {profile.text}]"
        identity = {"settings": settings, "data": str(dask.base.tokenize(columns, profile.token))}
        return KeptTrials(f"{checkpoint.url}{TRIALS}", identity, checkpoint.claim)

    def _plain(self, value: Any) -> Any:
        """Return a setting as JSON has it."""
        if isinstance(value, Kernel):
            return describe(value)
        if isinstance(value, list | tuple):
            return [self._plain(one) for one in value]
        return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _no_classes(gp: AutoGP) -> str | None:
    """Return why an estimator has no classes; None if it has."""
    if not hasattr(gp, "best_"):
        return "AutoGP has predict_proba once it is fitted to a target of 0 and 1"
    if hasattr(gp.best_, "predict_proba"):
        return None
    return f"the target was no class and AutoGP has chosen {type(gp.best_).__name__}: use predict"


def _no_map(gp: AutoGP) -> str | None:
    """Return why an estimator has no map of hyper-parameters; None if it has."""
    if not hasattr(gp, "best_"):
        return "AutoGP has hyperparameter_map once a fit has chosen LMA, PIC or VecchiaGP"
    if hasattr(gp.best_, "hyperparameter_map"):
        return None
    chosen = type(gp.best_).__name__
    return f"AutoGP has chosen {chosen}, whose hyper-parameters do not vary: see hyperparameters_"


def _check_places(places: Any, rows: data.Rows) -> None:
    """Raise InputError for places of predictions with other columns than the rows."""
    names = rows.feature_names
    if grids.is_xarray(places):
        raise InputError(
            f"places is a {type(places).__name__}: give places as an array (m, d) with the columns "
            f"of X, {', '.join(names)}"
        )
    shape = np.shape(places)
    if places is not None and (len(shape) != 2 or shape[1] != len(names) or not shape[0]):
        raise InputError(
            f"places has shape {shape}: give places with the {len(names)} columns of X, "
            f"{', '.join(names)}"
        )


def _called(method: str) -> str:
    """Return what a sentence calls the method that has trained what others hold."""
    return {"exact": "the exact GP", "vecchia": "VecchiaGP"}.get(method, f"the method {method!r}")


def _end(running: Sequence[Trials]) -> None:
    """End a search, or the last training, with the best so far; KeyboardInterrupt before one."""
    if not running:
        raise KeyboardInterrupt
    logger.warning("Ctrl-C: the best so far is fitted to all rows; another Ctrl-C ends the fit")
    running[0].end()


def _remove_folds(url: str, parts: Parts) -> None:
    for number in range(len(parts.folds)):
        data.remove(f"{url}-fold-{number}")


def _check_columns(rows: data.Rows, executor: Executor) -> None:
    """Raise an error for numbers beside y that do not go with it or with their likelihood."""
    kind = profiling.of_columns(rows.beside)
    if kind is None:
        return
    likelihood, spans = by_name(LIKELIHOODS.get(kind, "poisson")), splitting.even_spans(rows)
    try:
        check_sites(likelihood, rows)
        targets.check_columns(rows, spans, executor, likelihood)
        targets.check(rows, spans, executor, likelihood)
    except (InputError, SettingError) as error:
        names = list(rows.beside)
        without = ", ".join(f"{name}=False" for name in names)
        raise type(error)(
            f"the rows have {' and '.join(names)}, with which AutoGP takes the {likelihood.name} "
            f"likelihood, and {error}; or leave out what does not belong to y ({without} in Python)"
        ) from error


def _refuse_gaps(rows: data.Rows, executor: Executor) -> None:
    """Raise InputError for several targets that do not share all of their rows and their noise."""
    if rows.n_targets < 2:
        return
    counts, some, every = separate.values(rows, splitting.even_spans(rows), executor)
    if some == every and rows.y_variance is None:
        return
    if some == every:
        what = "y_variance is given of each"
    else:
        pairs = zip(rows.target_names, counts.tolist(), strict=True)
        what = ", ".join(f"{name} has {count}" for name, count in pairs)
    raise InputError(
        f"the targets have rows of their own ({what} of {len(rows)} rows), and AutoGP chooses one "
        "method for rows that all share: set targets='joint', which takes all values together, "
        "choose a method, such as VecchiaGP (--model vecchia), which fits each target to its own "
        f"rows, {separate.ALONE}, or leave out rows in which one is missing, for example with "
        "dropna()"
    )


def _say_late(trials: Trials) -> None:
    """Warn if search and last fit took much longer than the budget."""
    took, budget = trials.rules.seconds - trials.left, trials.rules.seconds
    if math.isfinite(took) and took > LATE * budget:
        logger.warning(
            "search and last fit took %.0f s, beyond time_budget=%g s, as no step of a training "
            "ends in the middle: give more time, or fewer rows",
            took,
            budget,
        )


def _refuse_start(start: Any, y: Any) -> None:
    """Raise SettingError for a model to start from, InputError where there are no targets."""
    if start is not None:
        raise SettingError(
            "AutoGP searches for its start: leave start out, or fit the class of that model"
        )
    if y is None:
        raise InputError("AutoGP requires y to be passed, but the target y is None")
