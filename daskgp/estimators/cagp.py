"""CaGP: computation-aware GPs, whose variance includes what was not computed."""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from daskgp import data, train
from daskgp.checks import choice, positive, whole
from daskgp.data import partition, visibility
from daskgp.data.blocks import ordering, sampling
from daskgp.data.blocks.layout import read_layout
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.outcome import Outcome, Traits
from daskgp.fit import effects, hyperparameters, rounds, timing
from daskgp.fit.arrange import AsStored, Sorted
from daskgp.fit.arrange.rewriting import check_order, lengths
from daskgp.fit.effects import TRAINED, Effects, among, chosen
from daskgp.fit.inputs import Inputs
from daskgp.fit.plan import Beside, Workload
from daskgp.fit.subset import Start
from daskgp.fit.task import HELD_POINTS
from daskgp.kernels.weights import Weights
from daskgp.models import scaling
from daskgp.models.actions.cagp import CaGP as ComputationAware
from daskgp.models.actions.cagp import LossName
from daskgp.models.actions.choice import Dense, normalised
from daskgp.models.actions.passes import PANEL_ROWS, Paired
from daskgp.models.actions.sums import TILE_ROWS, ActionTheta
from daskgp.models.values import Block, Theta
from daskgp.posterior import action_points
from daskgp.posterior.action_points import Supports
from daskgp.predict import computational
from daskgp.predict import lazy as prediction
from daskgp.runtime.executor import FAN_IN, Executor
from daskgp.train import Evaluate

logger = logging.getLogger("daskgp")

DENSE = ("cg", "random", "eigen")
PACE = 10.0
"""Factor on steps of weights, relative to kernel parameters: weights of an action are many."""
PATIENCE, DECAY = 20, 0.1
"""Steps of Adam within which there must be a gain, and the share its learning rate falls to."""
ENTRY = 30
"""Operations per kernel entry, with what is computed from it."""
CORRECTIONS = 20
"""Pairs that L-BFGS remembers: weights are many and depend on one another."""
COLUMNS, COLUMN_BYTES = 256, 256 << 20
"""Most places whose computational part is computed at a time, and most bytes of its matrices."""
SHARED = f"give store= {visibility.HERE}"


@dataclass(eq=False, repr=False, kw_only=True)
class CaGP(GaussianProcess):
    """Computation-aware GP regression: exact given a few combinations of the targets.

    The targets are seen through n_actions linear combinations (actions), [CAGP] eq. 5.  Whatever
    the actions are, the variance is never below the exact GP's with the same hyper-parameters: it
    also includes what was not computed.  A value and gradient takes two kernel entries for each
    pair of a training row and a point of an action: about 2 n² if all rows are points,
    2 n k n_actions with ``support=k``, and no tile of the kernel is ever kept.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order (1/2, 3/2 or 5/2) with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Numbers in it are
        in the units of the data, and where training starts; those that are not given start where
        the evidence of the subset is largest.
    n_actions : int
        Number of actions.
    actions : {"sparse", "cg", "random", "eigen"} or array-like (n, n_actions)
        Learned weights, each action on rows of its own (eq. 14); residuals of conjugate gradients;
        normal random numbers; the leading eigenvectors of the kernel matrix; or the actions
        themselves, for rows in their original order.  All but "sparse" keep n x n_actions numbers
        in the client, and a pass takes n² n_actions operations.
    support : int, optional
        Maximum rows of an action, drawn at random from all; other targets then affect the posterior
        only through the hyper-parameters.  Default all rows.
    order : str or sequence of str, optional
        Sparse actions combine rows next to one another in this order, as for ``daskgp.prepare``;
        None for the rows' own order.  A store that ``daskgp.prepare`` made is read as it is.
    loss : {"elbo", "projected"}
        What training maximises: the evidence lower bound of all targets (eq. 11), or the evidence
        of the combinations alone (eq. 9), with which learned actions fit what is easy to fit and
        others overestimate the noise.
    batch_rows : int, optional
        Approximate number of rows drawn anew for each step, from which the bound's sums over rows
        are estimated without bias; for ``optimizer="adam"`` with ``support=``.
    action_tol : float
        Relative residual at which "cg" adds no further action.
    refreshes : int
        Number of times that training starts from actions chosen for the hyper-parameters so far,
        if actions depend on these ("cg", "eigen"), with at most ``max_iter`` iterations each.
    noise_variance : float
        Initial noise variance, in units of the standardised y.
    learning_rate : float
        Learning rate of Adam at the start; it falls to a tenth of that.
    tol : float
        Gain of the objective, in nats per hyper-parameter, below which training stops, as in
        ``SGPR``; Adam stops when 20 steps have gained less than that over the 20 before.
    mean, standardize, optimizer, max_iter, block_rows, dtype, device, store, random_state, \
progress, geographic, fill_values, fixed, limits, prior, target_transform, calibrate
        As in ``SGPR``.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data
    noise_variance_ : learned noise variance, in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    n_actions_ : int, number of actions that are neither zero nor combinations of others
    actions_ : sparse array or ndarray (a, n_actions), the weights of all actions
    points_ : ndarray (a, d), the rows they are on, in the units of X
    objective_ : float, what training maximised, of all standardised rows; with ``batch_rows`` an
        estimate from that many
    history_ : list of dict, one per iteration
    n_features_in_, feature_names_in_, n_rows_

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.CaGP(n_actions=20).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "cagp"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0)
    effects: ClassVar[Effects] = {
        **GaussianProcess.effects,
        "n_actions": (chosen("actions", "sparse", *DENSE),),
        "support": (among("actions", "sparse"),),
        "order": (among("actions", "sparse"),),
        "batch_rows": (
            among("actions", "sparse"),
            among("loss", "elbo"),
            among("optimizer", "adam", None),
        ),
        "action_tol": (among("actions", "cg"),),
        "refreshes": (among("actions", "cg", "eigen"), TRAINED),
    }

    n_actions: int = 512
    actions: Literal["sparse", "cg", "random", "eigen"] | ArrayLike = "sparse"
    support: int | None = None
    order: str | Sequence[str] | None = "auto"
    loss: LossName = "elbo"
    batch_rows: int | None = None
    action_tol: float = 1e-6
    refreshes: int = 2
    learning_rate: float = 0.1

    # -- what is learned ---------------------------------------------------------------------

    @property
    def n_actions_(self) -> int:
        """Number of actions that are neither zero nor combinations of others."""
        check_is_fitted(self, "solved_")
        return len(self.solved_.state.columns)

    @property
    def actions_(self) -> Any:
        """Weights (a, n_actions): a sparse array if each action has points of its own."""
        S = self._supports().weights()
        if S.owner is None:
            return S.values
        places = np.arange(len(S)), S.owner
        return sp.csc_array((S.values, places), shape=(len(S), S.count))

    @property
    def points_(self) -> np.ndarray:
        """Points (a, d) that actions are on, in the units of X, missing values included."""
        return self._supports().whole()[0]

    def _supports(self) -> Supports:
        check_is_fitted(self, "solved_")
        kept = self.solved_.rows
        assert isinstance(kept, Supports)
        return kept

    # -- prediction --------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
        return_computational: bool = False,
        *,
        y_variance: Any = None,
        quantiles: Sequence[float] | None = None,
    ) -> Any:
        """Return the posterior mean, and on request its spread and the spread's computational part.

        Parameters
        ----------
        X, return_std, return_cov, include_noise, y_variance, quantiles
            As for every estimator.
        return_computational : bool
            Also return the standard deviation of the computational part, which more actions would
            remove: its square is the variance of f less that of the exact GP given all targets.
            For rows in memory, and for actions on all rows; computed by conjugate gradients, of
            which a step costs n² kernel entries.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov, quantiles, computational : if asked for

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> model = daskgp.CaGP(n_actions=8, max_iter=3, progress=False).fit(X, np.sin(6 * X[:, 0]))
        >>> mean, std, part = model.predict(X, return_std=True, return_computational=True)
        >>> bool((part <= std + 1e-9).all())
        True
        """
        if not return_computational:
            return super().predict(
                X, return_std, return_cov, include_noise, y_variance=y_variance, quantiles=quantiles
            )
        self._check_fitted()
        part = self._computational(X)
        posterior = super().predict(
            X, return_std, return_cov, include_noise, y_variance=y_variance, quantiles=quantiles
        )
        several = posterior if isinstance(posterior, tuple) else (posterior,)
        return *several, part

    def _computational(self, X: Any) -> np.ndarray:
        """Return the standard deviation of the computational part at rows in memory."""
        kept, posterior = self._supports(), self.solved_
        posterior.refuse_transformed("the computational part", "leave return_computational out")
        if len(kept.rows) < self.n_rows_:
            raise SettingError(
                f"support={self.support} keeps {len(kept.rows)} of {self.n_rows_} training rows: "
                "the computational part needs all; fit with support=None"
            )
        inputs = prediction.in_memory(posterior, X)
        scaled = posterior.scaled(inputs)
        usable = np.flatnonzero(scaling.usable_rows(scaled))
        executor = Executor.current(self.progress, posterior.device)
        units, scale = partition.alone(self._spans(kept.rows)), posterior.scaling
        # the columns are weights of actions, which are not read; errors are in units of y
        columns = kept.rows.n_targets
        inputs_alone = dataclasses.replace(
            scale.of_inputs(columns), y_scale=np.repeat(scale.y_scale[:1], columns)
        )
        stage = rounds.Rounds(kept.rows, units, inputs_alone, executor, device=posterior.device)
        pairs = self._paired(stage, kept.rows, self.n_rows_, kept.count)
        variance = np.full(len(scaled), np.nan)
        step = max(1, min(COLUMNS, COLUMN_BYTES // (8 * len(kept.rows))))
        for rows in np.split(usable, range(step, len(usable), step)):
            variance[rows] = computational.variance(pairs, kept, posterior, scaled[rows])
        spread: np.ndarray = np.sqrt(variance)[:, None] * posterior.unit
        return spread[:, 0] if posterior.vector_target else spread

    def log_marginal_likelihood(self) -> float:
        """Return the bound on the log evidence of the training targets in their own units.

        With ``batch_rows`` it is an estimate from that many rows, which may exceed the evidence;
        with ``loss="projected"`` it is the log evidence of the combinations alone.
        """
        if self.loss == "elbo":
            return super().log_marginal_likelihood()
        self._check_fitted()
        self.solved_.refuse_transformed("the evidence of combinations", "take loss='elbo'")
        assert self.objective_ is not None
        units = np.log(self.solved_.scaling.y_scale).sum()
        return self.objective_ - self.n_actions_ * float(units)

    # -- settings ----------------------------------------------------------------------------

    def _model(self) -> Any:
        return ComputationAware(self.loss)

    @property
    def _sparse(self) -> bool:
        return isinstance(self.actions, str) and self.actions == "sparse"

    @property
    def _given(self) -> np.ndarray | None:
        """Actions (n, t) that the user set; None if they are named."""
        if isinstance(self.actions, str):
            choice("actions", self.actions, ("sparse", *DENSE))
            return None
        known = ", ".join(map(repr, ("sparse", *DENSE)))
        try:
            actions = np.asarray(self.actions, np.float64)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"actions of type {type(self.actions).__name__} are not numbers: give a NumPy "
                f"array (n, n_actions), or one of {known}"
            ) from error
        if actions.ndim != 2 or not actions.shape[1] or not np.isfinite(actions).all():
            raise SettingError(
                f"actions of shape {actions.shape}: give finite numbers (n, n_actions), or one of "
                f"{known}"
            )
        return actions

    @property
    def _inputs(self) -> Inputs:
        actions, number = self._given, self.n_actions
        number = whole("n_actions", number, 1) if actions is None else actions.shape[1]
        usual = number == effects.defaults(type(self))["n_actions"]
        usual &= actions is None and self.support is None
        spare = int(isinstance(self.actions, str) and self.actions == "eigen")
        return Inputs(number, "actions", self._sparse, usual, spare)

    def _check(self, rows: data.Rows, n: int | None) -> None:
        actions = self._given
        positive("action_tol", self.action_tol)
        whole("refreshes", self.refreshes, 1)
        if self.support is not None:
            whole("support", self.support, 1)
        if self.batch_rows is not None:
            whole("batch_rows", self.batch_rows, 1)
            if self.support is None:
                raise SettingError(
                    f"batch_rows={self.batch_rows} saves nothing where all rows are points of "
                    "actions, whose kernel matrix each step needs: set support=, or leave it out"
                )
        if actions is not None and len(actions) != len(rows):
            raise SettingError(
                f"actions have {len(actions)} rows, the training data {len(rows)}: give one for "
                "each row"
            )
        if self.order is not None and self.support is not None:
            check_order(rows, self.order)
        super()._check(rows, n)
        if n is not None:
            self._check_number(n)

    def _check_number(self, n: int) -> None:
        """Raise InputError for more actions, points or drawn rows than n rows allow."""
        t = self._inputs.of(n)
        if self.support is not None and self.support * t > n:
            raise InputError(
                f"support={self.support} for {t} actions on {n} usable rows: an action has at "
                f"most {n // t} of them; choose a smaller support or fewer actions"
            )
        if isinstance(self.actions, str) and self.actions == "eigen" and t >= n:
            raise InputError(
                f"{t} eigenvectors of {n} usable rows: choose at most {n - 1}, or "
                "actions='sparse', of which as many as rows give the exact GP"
            )
        if self.batch_rows is not None and self.batch_rows > n:
            raise InputError(
                f"batch_rows={self.batch_rows} for {n} usable rows: choose at most {n}"
            )

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        work, n, t = super()._workload(rows, value), len(rows), self._inputs.of(len(rows))
        points, counted = self._n_points(n), self._counted_rows(n)
        panel = points if points <= HELD_POINTS else PANEL_ROWS
        task, client, disk, per_row = self._grows_with(points, t)
        store = 8 * points * (rows.n_features + (1 if self._sparse else t))
        functions = counted if self.loss == "elbo" else points
        settings: dict[str, Any] = {"block_rows": work.largest, "refreshes": 1}
        if self._given is not None:
            settings |= {"actions": "random", "n_actions": self._inputs.count}
        least = max(2 * self._inputs.count, self._n_points(0), self.batch_rows or 0)
        anew = self._given is None and self.actions in ("cg", "eigen") and self.refreshes > 1
        return dataclasses.replace(
            work,
            window_rows=max(work.largest, panel),
            near_rows=panel,
            written=work.written + (0 if isinstance(rows.X, np.ndarray) else store),
            kept=work.itemsize * self._inputs.count * functions,
            generous=True,
            staged=self.optimizer is not None and anew,
            beside=Beside(task, 0, client, disk + 8 * points * rows.n_features),
            operations=2.0 * ENTRY * counted * points + 6.0 * counted * t * t + per_row * n,
            probes=timing.in_blocks(n, work.largest, least, **settings),
        )

    def _arrangement(self) -> AsStored:
        if not self._sparse or self.support is not None or self.order is None:
            return AsStored(self.block_rows, keeps_rows=True)
        return Sorted(self.block_rows, True, self.order, self.random_state)

    def _counted_rows(self, n: int) -> int:
        """Return how many rows an iteration needs the actions' functions at, with drawn points."""
        own = 0 if self.support is None else self._n_points(n)
        return own + (n if self.batch_rows is None else self.batch_rows)

    def _grows_with(self, points: int, t: int) -> tuple[int, int, int, float]:
        """Return bytes in a task, in the client and on disk, and operations per row, to add."""
        if self._sparse:  # weights, their gradients in a sum, and what L-BFGS remembers
            return 8 * (FAN_IN + 3) * points, 8 * (2 * CORRECTIONS + 8) * points, 8 * points, 0.0
        # weights as chosen and at the points, their products with the kernel and what follows
        dense = 8 * points * t
        return 2 * dense, 4 * dense, dense, 6.0 * points * t

    def _n_points(self, n: int) -> int:
        return n if self.support is None else self.support * self._inputs.count

    # -- stages ------------------------------------------------------------------------------

    def _learn(
        self,
        stage: rounds.Rounds,
        begun: Start,
        sums: scaling.Sums,
        checkpoint: Place | None,
        keep: str,
    ) -> Outcome:
        theta = begun.theta
        if self._sparse and self.loss == "projected" and self.optimizer is not None:
            logger.warning(
                "loss='projected' lets learned actions fit what is easy to fit, with too little "
                "noise: loss='elbo' fits all targets"
            )
        seed = self._seed()
        points, edges = self._points(stage, theta, sums, seed)
        t = self._inputs.of(len(stage.rows))
        pairs, quiet = (
            self._paired(one, points, int(sums.rows), t) for one in (stage, stage.quiet)
        )
        run = hyperparameters.plan_run(self, stage, begun, sums, checkpoint)
        learn = self._learn_sparse if edges is not None else self._learn_dense
        theta, weights, history = learn(pairs, quiet, points, theta, run, edges, seed)
        drawn = pairs if self.batch_rows is None else pairs.drawn((self.batch_rows, seed))
        acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
        state, objective = self._model().solve(acting, drawn)
        dropped = weights.count - len(state.columns)
        if dropped:
            logger.warning(
                "%d of %d actions are zero or combinations of others and were dropped",
                dropped,
                weights.count,
            )
        values = weights.values[:, None] if weights.owner is not None else weights.values
        values = np.where(pairs.complete[:, None], values, np.nan)
        kept = action_points.keep(points, values, edges, stage.executor, keep)
        return Outcome(stage, theta, state, objective, history, kept)

    def _paired(self, stage: rounds.Rounds, points: data.Rows, count: int, t: int) -> Paired:
        """Return the rows, paired with the points that actions are on."""
        over = stage
        if points is not stage.rows:
            # as many tasks for large blocks of rows as for small ones
            size = max(1, min(stage.spans[0].rows, TILE_ROWS))
            units = partition.alone(partition.parts(0, len(points), size))
            over = dataclasses.replace(stage, rows=points, units=units)
        return Paired(stage, over, count, stage.rows.n_targets, t)

    def _points(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, seed: int
    ) -> tuple[data.Rows, np.ndarray | None]:
        """Return the rows that actions are on, and the first row of each action with its own."""
        rows, t = stage.rows, self._inputs.of(len(stage.rows))
        if not self._sparse:
            return rows, None
        if self.support is None:
            return rows, np.linspace(0, len(rows), t + 1).astype(np.int64)
        number, d = self.support * t, rows.n_features
        plain = scaling.identity(d, rows.n_targets)
        keys = sampling.Keys.by_content((seed, 1), rows, sums)
        drawn = sampling.gather_sample(rows, stage.spans, plain, number, keys, stage.executor)
        line = self._line(drawn, stage, theta, sums, seed)
        arrays = {"X": rows.columns.places(drawn.X[line]), "y": drawn.y[line]}
        if drawn.noise is not None:  # in the user's units, as the scaling is plain
            values = {"weight": 1.0 / drawn.noise[line, 0], "y_variance": drawn.noise[line, 1]}
            arrays |= {name: values[name] for name in values if name in rows.arrays}
        points = rows.with_arrays(arrays, chunks=None, identity=None, passing=False)
        return points, np.arange(t + 1) * self.support

    def _line(
        self,
        drawn: Block,
        stage: rounds.Rounds,
        theta: Theta,
        sums: scaling.Sums,
        seed: int,
    ) -> np.ndarray:
        """Return the order in which drawn rows are cut into actions."""
        if self.order is None or self.order == ordering.RANDOM:  # drawn rows are in random order
            return np.arange(len(drawn.X))
        d, columns = stage.rows.n_features, stage.rows.columns
        units = lengths(stage, theta, sums)
        low, high = sums.low[:d], sums.high[:d]
        order = ordering.make_order(
            columns.order(self.order),
            drawn.X,
            low,
            high,
            columns.inputs_names,
            self._inputs.count,
            units,
            seed,
            columns.sphere,
        )
        return np.argsort(order.keys(drawn.X), kind="stable")

    def _learn_sparse(
        self,
        pairs: Paired,
        quiet: Paired,
        points: data.Rows,
        theta: Theta,
        run: hyperparameters.Run,
        edges: np.ndarray | None,
        seed: int,
    ) -> tuple[Theta, Weights, list[dict[str, Any]]]:
        """Learn hyper-parameters and actions by one search, [CAGP] eq. 13."""
        assert edges is not None
        owner, k = np.repeat(np.arange(len(edges) - 1), np.diff(edges)), len(run.start)
        count = len(edges) - 1
        start = self._started(pairs.complete, points, seed)
        if self.optimizer is None:
            return theta, normalised(start, owner, count)[0], []

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            weights, norms = normalised(PACE * vector[k:], owner, count)
            batch = None
            if self.batch_rows is not None:  # a resumed run must draw the same rows
                batch = self.batch_rows, seed + zlib.crc32(vector.tobytes())
            value, bar = self._evaluated(theta.from_vector(vector[:k]), weights, quiet.drawn(batch))
            along = np.bincount(owner, weights.values * bar.weights, count)
            by_weights = (bar.weights - weights.values * along[owner]) / norms[owner]
            return value, np.concatenate([bar.kernel, [bar.noise], PACE * by_weights])

        free = np.tile([-np.inf, np.inf], (len(start), 1))
        whole_run = run._replace(
            start=np.concatenate([run.start, start / PACE]),
            bounds=np.concatenate([run.bounds, free]),
            describe=lambda vector: run.describe(vector[:k]),
        )
        best, history, *_ = self._maximise(evaluate, whole_run, pairs)
        weights, _ = normalised(PACE * best[k:], owner, count)
        return theta.from_vector(best[:k]), weights, history

    def _evaluated(self, theta: Theta, weights: Any, pairs: Paired) -> tuple[float, Any]:
        """Return the objective and its gradient for some actions."""
        acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
        objective = self._model().evaluate(acting, pairs)
        return objective.value, objective.gradient

    def _maximise(
        self, evaluate: Evaluate, run: hyperparameters.Run, pairs: Paired
    ) -> train.Trained:
        values = pairs.count * pairs.n_targets
        return hyperparameters.maximise(
            self,
            evaluate,
            run._replace(values=values),
            values,
            self._tol(),
            patience=PATIENCE,
            decay=DECAY,
            noisy=self.batch_rows is not None,
            corrections=CORRECTIONS,
        )

    def _started(self, complete: np.ndarray, points: data.Rows, seed: int) -> np.ndarray:
        """Return the first weights (a,): nearly local means, or random ones if in no order."""
        layout = read_layout(points.X)
        shuffled = layout is not None and layout.order.kind == ordering.RANDOM
        lone = shuffled or self.order in (None, ordering.RANDOM)
        noise = np.random.default_rng([seed, 7]).standard_normal(len(complete))
        start: np.ndarray = (noise if lone else 1.0 + 0.1 * noise) * complete
        return start

    def _learn_dense(
        self,
        pairs: Paired,
        quiet: Paired,
        points: data.Rows,
        theta: Theta,
        run: hyperparameters.Run,
        edges: np.ndarray | None,
        seed: int,
    ) -> tuple[Theta, Weights, list[dict[str, Any]]]:
        """Learn hyper-parameters for fixed actions, then choose these anew, [CAGP] section 4."""
        history: list[dict[str, Any]] = []
        kind = "given" if self._given is not None else str(self.actions)
        t = self._inputs.of(pairs.count)
        choose = Dense(kind, t, self.action_tol, seed, self._given)
        for i in range(0 if self.optimizer is None else self.refreshes if choose.follows else 1):
            fixed = pairs.hold(choose(pairs, theta))

            def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
                value, bar = self._evaluated(theta.from_vector(vector), fixed, quiet)  # noqa: B023
                return value, np.append(bar.kernel, bar.noise)

            start = run.start if i == 0 else theta.to_vector(False)
            tape = run.tape and run.tape.stage(i)
            part = run._replace(start=start, tape=tape)
            trained = self._maximise(evaluate, part, pairs)
            theta = theta.from_vector(trained.vector)
            history = hyperparameters.continued(history, trained.history)
            if trained.stopped:
                break
        return theta, choose(pairs, theta), history
