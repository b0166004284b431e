"""LMA and PIC: methods of blocks of nearby rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import dask
import numpy as np
from numpy.typing import ArrayLike

from daskgp import data, train
from daskgp.checks import whole
from daskgp.data import partition, visibility
from daskgp.data.blocks import ordering, sampling
from daskgp.data.blocks.around import LANDMARKS, Around, Band, NearestBlocks, NearestRows
from daskgp.data.blocks.layout import DEFAULT_BLOCK_ROWS, Layout, balanced, read_layout
from daskgp.data.blocks.neighbours import conditioned, earlier, held, made_from, mark, open_blocks
from daskgp.data.blocks.prepare import arrange
from daskgp.data.partition import Unit
from daskgp.errors import InputError, SettingError
from daskgp.estimators import blocks_added
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.outcome import Traits
from daskgp.estimators.settings import JITTER
from daskgp.estimators.updating import Grown
from daskgp.fit import conditionals, hyperparameters, means, rounds, subset, timing
from daskgp.fit.effects import TRAINED, WAYS, Effects, Needs, among, chosen
from daskgp.fit.inputs import ChosenInputs
from daskgp.fit.inputs import chosen as chosen_inputs
from daskgp.fit.plan import Workload, rows_bytes
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.models import scaling
from daskgp.models.markov.lma import LMA as LowRankMarkov
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.values import Theta
from daskgp.predict.near import Nearby
from daskgp.predict.posterior import in_users_units
from daskgp.runtime.executor import Executor

DEFAULT_ORDER = 3
APART = 8
"""Rows per block from which distances between blocks are measured."""
NEAR_BLOCKS, NEAR_ROWS = 8, 8_192
"""Least blocks and rows near a row's own block in which its neighbours are looked for."""
FEW_ROWS, FEW_FEATURES = 10_000, 4
"""Most rows that are trained on blocks by default, and most features of those that are not: with
more, the nearest rows say less than blocks."""
DEFAULT_ROWS = 512
"""Default number of nearest rows that a prediction is conditioned on."""
JOINED = Needs("markov_order", lambda gp: gp.markov_order != 0, "choose a markov_order from 1")


@dataclass(eq=False, repr=False, kw_only=True)
class LMA(GaussianProcess):
    """Low-rank-cum-Markov approximation: GP regression that is local and global at once.

    A low-rank part on support inputs carries what is smooth; the residual is exact within a block
    of nearby rows and the blocks it is conditioned on ([LMA]).  Fit and prediction are linear in
    the number of rows, the log evidence is that of all rows, and variances are those of one joint
    distribution.  Markov order 0 is PIC; conditioned on all other blocks it is the exact GP.

    Parameters
    ----------
    kernel : Kernel or str, optional
        Default a Matérn kernel with one lengthscale per column, of the order (1/2, 3/2 or 5/2) with
        the largest evidence on a subset of rows (3/2 where nothing is trained).  Numbers in it are
        in the units of the data, and where training starts; those that are not given start where
        the evidence of the subset is largest.
    n_support : int
        Number m of support inputs.
    support : {"greedy", "kmeans", "random"} or array-like (m, d)
        How support inputs are chosen from a sample of rows, or the inputs themselves, in the units
        of X.
    train_support : bool
        Whether training also moves the support inputs.
    markov_order : int, optional
        Number B of blocks that a block is conditioned on, less than the number of blocks.  Default
        3, or all others if there are fewer.
    neighbours : {"nearest", "order"}
        Whether these are the nearest blocks before it, in units of the kernel's lengthscales, or
        the B blocks after it in the order, as in the paper.  Predictions are conditioned on the
        training rows nearest to the place, or on the place's own block with B on either side.
    predict_rows : int, optional
        With ``neighbours="nearest"``, the number of training rows nearest to a place that a
        prediction is conditioned on.  Default 512; a place's own block if ``markov_order=0``,
        all rows if ``markov_order`` spans all blocks.
    predict_order : int, optional
        Condition predictions on whole blocks instead: the one that the place lies in, and that many
        more that are nearest to it.
    prediction : {"consistent", "paper"}
        "paper" extends the paper's eq. 1 to test inputs; its variance can come out negative,
        which is an error.  It needs ``neighbours="order"``.
    order : str or sequence of str
        Order of the rows before they are cut into blocks: "hilbert", "pca", "kmeans", "auto", the
        name of a column, or names of up to three for a Hilbert curve through them.
        A store that ``daskgp.prepare`` made keeps its own; a random one is refused.
    block_rows : int, optional
        Rows of a block; default those of a prepared store, or 256.
    noise_variance : float
        Initial noise variance, in units of the standardised y.
    train_blocks : int, "auto" or None
        Train hyper-parameters on that many blocks drawn at random, each with those it is
        conditioned on; the posterior is always that of all rows.  "auto" takes as many as keep the
        expected loss of evidence of all rows, against training on all blocks, to at most 25 nats,
        and says in the log what is lost; None takes all blocks.
    train_with : {"auto", "blocks", "vecchia"}
        What hyper-parameters are trained on: the evidence of blocks, or conditionals of rows given
        their nearest earlier rows, as in ``VecchiaGP``, which takes a fraction of the time.  "auto"
        takes these for more than 10,000 rows of up to four features, unless ``train_blocks`` or
        ``train_support`` is set.
    training_rows : int, "auto" or None
        Rows whose conditionals are drawn, as in ``VecchiaGP``.
    max_iter : int
        Maximum number of iterations of training, on each of the growing parts of the blocks.
    store : str, optional
        Folder or URL where rows in the order of blocks are kept, which prediction reads back;
        default a temporary folder that lasts as long as this process.  ``save`` copies them.
    mean, standardize, optimizer, learning_rate, tol, dtype, device, random_state, \
progress, geographic, fill_values, fixed, limits, prior, target_transform, calibrate
        As in ``SGPR``.

    Attributes
    ----------
    kernel_ : learned kernel, in the units of the data
    noise_variance_ : learned noise variance, in units of the standardised y
    hyperparameters_ : table of name, value, standard error and unit, in the units of the data
    support_ : ndarray (m, d), in the units of X
    n_blocks_ : int
    trend_ : table of a trend's coefficients in the units of the data, if ``mean`` is one
    objective_ : float, the log evidence of all standardised rows
    history_ : list of dict, one per iteration
    n_features_in_, feature_names_in_, n_rows_

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.LMA(n_support=10, block_rows=40).fit(X, y)
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-3)
    True
    """

    model_name: ClassVar[str] = "lma"
    traits: ClassVar[Traits] = Traits(ard_reach=100.0, knows_enough_blocks=True, reads_blocks=False)
    effects: ClassVar[Effects] = {
        **GaussianProcess.effects,
        "n_support": (chosen("support", *WAYS),),
        "train_support": (TRAINED, among("train_with", "auto", "blocks")),
        "train_blocks": (TRAINED, among("train_with", "auto", "blocks")),
        "train_with": (TRAINED,),
        "training_rows": (TRAINED, among("train_with", "auto", "vecchia")),
        "predict_order": (among("neighbours", "nearest"),),
        "predict_rows": (
            among("neighbours", "nearest"),
            Needs(
                "predict_order",
                lambda gp: gp.predict_order is None,
                "choose predict_order=None",
            ),
        ),
        "neighbours": (JOINED,),
        "prediction": (JOINED,),
    }

    windows_stay: ClassVar[bool] = True
    """Whether blocks are conditioned on the same ones when others are added."""
    default_block_rows: ClassVar[int] = DEFAULT_BLOCK_ROWS

    n_support: int = 256
    support: Literal["greedy", "kmeans", "random"] | ArrayLike = "greedy"
    train_support: bool = False
    markov_order: int | None = None
    neighbours: Literal["nearest", "order"] = "nearest"
    predict_order: int | None = None
    predict_rows: int | None = None
    prediction: Literal["consistent", "paper"] = "consistent"
    order: str | Sequence[str] = "auto"
    max_iter: int = 50
    train_blocks: int | Literal["auto"] | None = "auto"
    train_with: Literal["auto", "blocks", "vecchia"] = "auto"
    training_rows: int | Literal["auto"] | None = "auto"

    @property
    def support_(self) -> np.ndarray:
        """Support inputs (m, d) in the units of X."""
        return in_users_units(self.solved_)

    @property
    def n_blocks_(self) -> int:
        """Number of blocks."""
        assert isinstance(self.solved_.rows, Nearby)
        return self.solved_.rows.layout.n_blocks

    # -- settings ----------------------------------------------------------------------------

    def _model(self) -> LowRankMarkov:
        if self.prediction == "paper" and self._neighbours() != "order":
            raise SettingError(
                "prediction='paper' conditions on blocks on either side in the order: choose "
                "neighbours='order' or prediction='consistent'"
            )
        return LowRankMarkov(self._reach(), self.prediction, JITTER[self.dtype])

    def _reach(self) -> int:
        if self.markov_order is None:
            return DEFAULT_ORDER
        return whole("markov_order", self.markov_order, 0)

    def _neighbours(self) -> str:
        return self.neighbours

    def _blocks_around(self) -> int | None:
        """Return how many blocks beside its own a prediction uses; None for the nearest rows."""
        if self._neighbours() == "order":
            return 2 * self._reach()
        if self.predict_order is not None:
            return whole("predict_order", self.predict_order, 0)
        return 0 if self.predict_rows is None and self._reach() == 0 else None

    def _rows_around(self, n: int, blocks: int) -> int:
        """Return how many nearest rows a prediction is conditioned on: all for the exact GP."""
        if self.predict_rows is not None:
            return min(whole("predict_rows", self.predict_rows, 1), n)
        return n if self._reach() + 1 >= blocks else min(DEFAULT_ROWS, n)

    @property
    def _inputs(self) -> ChosenInputs:
        moved = self.train_support
        return chosen_inputs(self, "support", "n_support", "support inputs", trained=moved)

    # -- blocks ------------------------------------------------------------------------------

    def _check(self, rows: data.Rows, n: int | None) -> None:
        layout = read_layout(rows.X)
        if layout is None:
            self._check_order(rows, nearby=True)
        elif layout.order.kind == ordering.RANDOM:
            raise InputError(
                f"the dataset was prepared in random order but {type(self).__name__} needs nearby "
                "rows in blocks: run daskgp.prepare again with another order, such as 'auto'"
            )
        super()._check(rows, n)
        if n is not None and self.optimizer is not None and self._trains_on_rows(rows):
            conditionals.refuse_few(self, rows, n)

    def _workload(self, rows: data.Rows, value: int | None = None) -> Workload:
        layout, n = read_layout(rows.X), len(rows)
        block_rows = self._block_rows(n, layout) if value is None else value
        spans = partition.blocks(n, None, block_rows)
        if value is None:
            self._refuse_few_blocks(len(spans), block_rows)
        work = self._in_blocks(rows, spans, value)
        largest, m, d, p = work.largest, work.n_inputs, rows.n_features, rows.n_sides
        count, around = -(-n // max(largest, 1)), self._blocks_around()
        window = min(n, largest * (1 + self._reach()))
        near = self._rows_around(n, count) if around is None else min(n, largest * (1 + around))
        trained = round(len(work.units) * work.trained)
        cached = 8 * n * (2 * d + p + m) + len(work.units) * 8 * near * (near + m + d + p)
        # the trust region trains on a part of the blocks first, which takes other times
        usual = self.optimizer in ("auto", "trust-region")
        settings = {"block_rows": largest} | ({"optimizer": "l-bfgs"} if usual else {})
        if self.optimizer is not None and self._trains_on_rows(rows):
            work = dataclasses.replace(work, beside=work.beside.with_compiled(predicting=False))
        return dataclasses.replace(
            work,
            window_rows=window,
            near_rows=near,
            per_task=partition.per_task(count, largest, rounds.WINDOW_TASKS),
            written=work.written + (0 if layout else rows_bytes(rows)),
            kept=trained * self._model().window_bytes(window, m, p),
            cached=cached,
            staged=usual and not self._inputs.trained,
            probes=timing.in_blocks(n, 2 * largest, m, **settings),
        )

    def _block_rows(self, n: int, layout: Layout | None) -> int:
        if layout is None:
            return balanced(max(n, 1), self.block_rows or self.default_block_rows)
        if self.block_rows is not None and layout.block_rows != balanced(n, self.block_rows):
            raise SettingError(
                f"block_rows={self.block_rows} but the store was prepared in blocks of "
                f"{layout.block_rows} rows: leave block_rows out or run daskgp.prepare again"
            )
        return layout.block_rows

    def _refuse_few_blocks(self, count: int, block_rows: int) -> None:
        if self.markov_order is not None and self._reach() >= max(count, 1):
            raise SettingError(
                f"markov_order={self._reach()} but there {_number(count)} of {block_rows} rows: "
                f"choose at most {max(count - 1, 0)}, where the method is the exact GP, or a "
                "smaller block_rows"
            )

    def _arranged(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> rounds.Rounds:
        rows, layout = stage.rows, read_layout(stage.rows.X)
        if layout is None:
            rows, layout = self._rewritten(stage, theta, sums, keep)
            rows = dataclasses.replace(rows, trend=stage.rows.trend)
        elif rows.passing:  # y is what a regressor leaves, which predictions read back
            data.remove(keep)
            Nearby(rows, layout, Band(0)).write(keep)
            rows, layout = open_blocks(keep)
        else:
            rows = held(rows)
        self._refuse_few_blocks(layout.n_blocks, layout.block_rows)
        arranged = dataclasses.replace(
            stage, rows=rows, layout=layout, least_tasks=rounds.WINDOW_TASKS
        )
        if self._neighbours() == "nearest":
            marks = sampling.landmarks(rows, layout.spans, LANDMARKS, stage.executor)
            arranged = dataclasses.replace(arranged, landmarks=marks)
        return self._settled(arranged, theta)

    def _rewritten(
        self, stage: rounds.Rounds, theta: Theta, sums: scaling.Sums, keep: str
    ) -> tuple[data.Rows, Layout]:
        """Return the rows in the order of blocks: on disk, or in memory if they were there."""
        lengthscales = hyperparameters.lengths(stage, theta, sums)
        made = (
            lengthscales,
            self.order,
            self.block_rows or self.default_block_rows,
            self.random_state,
        )
        source = str(dask.base.tokenize(*sums.parts, *made))
        if not made_from(keep, source):  # else they are those of the resumed run
            data.remove(keep)
            arrange(
                dataclasses.replace(stage.rows, trend=None),
                keep,
                self.order,
                self.block_rows or self.default_block_rows,
                lengthscales,
                self._seed(),
                stage.executor,
                sums,
                f"give store= {visibility.HERE}",
            )
            mark(keep, source)
        rows, layout = open_blocks(keep)
        if isinstance(stage.rows.X, np.ndarray):
            rows = rows.held_here()
            data.remove(keep)
        return rows, layout

    # -- training on conditionals ------------------------------------------------------------

    def _rows_model(self, stage: rounds.Rounds) -> Vecchia:
        """Return the method whose conditionals hyper-parameters are trained on."""
        model: Vecchia = means.with_trend(
            Vecchia(jitter=JITTER[self.dtype], seed=self.random_state or 0), stage.scaling
        )
        return model

    def _trains_on_rows(self, rows: data.Rows) -> bool:
        """Return whether hyper-parameters are trained on conditionals of rows."""
        if self.train_with != "auto":
            return self.train_with == "vecchia"
        usual = self.optimizer in ("auto", "trust-region") and self.train_blocks == "auto"
        spatial = len(rows) > FEW_ROWS and rows.n_features <= FEW_FEATURES
        return usual and not self.train_support and spatial

    def _near_either_side(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        """Return blocks with those in which their rows find their earlier neighbours."""
        layout = _layout(stage)
        if stage.landmarks is None:
            marks = sampling.landmarks(stage.rows, layout.spans, LANDMARKS, stage.executor)
            stage = dataclasses.replace(stage, landmarks=marks)
        sizes = np.sort([span.rows for span in layout.spans])  # updates may have left small ones
        around = 1 + int(np.searchsorted(np.cumsum(sizes), NEAR_ROWS))
        count = min(max(NEAR_BLOCKS, around), layout.n_blocks - 1)
        units = earlier(layout, _places(stage, theta), count, later=True)
        return dataclasses.replace(stage, units=units)

    def _refined(
        self, stage: rounds.Rounds, begun: subset.Start, sums: scaling.Sums, url: str
    ) -> subset.Start:
        if not self._trains_on_rows(stage.rows):
            return super()._refined(stage, begun, sums, url)
        try:
            first = self._arranged(stage, begun.theta, sums, url)
            return self._started(first, begun, sums)
        finally:
            data.remove(url)

    def _started(
        self, stage: rounds.Rounds, begun: subset.Start, sums: scaling.Sums
    ) -> subset.Start:
        """Return the start with the largest evidence of some conditionals."""
        model, near = self._rows_model(stage), self._near_either_side(stage, begun.theta)
        return conditionals.best_start(self, model, near, begun, sums, model.first(near))

    def _train(self, stage: rounds.Rounds, theta: Theta, run: hyperparameters.Run) -> train.Trained:
        if not self._trains_on_rows(stage.rows):
            return super()._train(stage, theta, run)
        model, near = self._rows_model(stage), self._near_either_side(stage, theta)
        return conditionals.on_conditionals(self, model, near, theta, run, model.first(near))

    def _settled(self, stage: rounds.Rounds, theta: Theta) -> rounds.Rounds:
        """Return windows for the hyper-parameters: distances are in units of the lengthscales."""
        layout, reach = _layout(stage), self._reach()
        units: tuple[Unit, ...]
        if self._neighbours() == "order":
            units = partition.following(layout.spans, reach)
        elif layout.near is not None:
            units = conditioned(layout)
        else:
            units = earlier(layout, _places(stage, theta), reach)
        return dataclasses.replace(stage, units=units)

    def _why_no_change(self, forget: bool) -> str | None:
        if not forget or self._neighbours() == "order" or not self._reach():
            return None
        return (
            "later blocks are conditioned on earlier ones that are near (neighbours='nearest'): "
            "fit the rows that stay, or fit with neighbours='order'"
        )

    def _grown(self, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Grown:
        return self._changed(blocks_added.appended(self, stage, sums, spill))

    def _shrunk(self, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Grown:
        return self._changed(blocks_added.taken(self, stage))

    def _forgettable(self, X: Any, y: Any, y_variance: Any, weight: Any) -> int:
        return blocks_added.oldest(self, X, y, y_variance, weight)

    def _changed(self, changed: blocks_added.Changed) -> Grown:
        """Return the windows that were changed, and all rows that predictions read back."""
        stage, units = changed
        kept = blocks_added.trimmed(self, self._kept(stage, self.solved_.theta))
        return Grown(dataclasses.replace(stage, units=units), kept)

    def _windows(self, executor: Executor) -> rounds.Rounds:
        posterior = self.solved_
        assert isinstance(posterior.rows, Nearby)
        rows, layout, around = posterior.rows.rows, posterior.rows.layout, posterior.rows.around
        marks = getattr(around, "landmarks", None)
        if marks is None and self._neighbours() == "nearest":
            marks = sampling.landmarks(rows, layout.spans, LANDMARKS, executor)
        stage = rounds.Rounds(
            rows,
            (),
            posterior.scaling,
            executor,
            posterior.dtype,
            posterior.device,
            layout,
            marks,
            least_tasks=rounds.WINDOW_TASKS,
        )
        return self._settled(stage, posterior.theta)

    def _kept(self, stage: rounds.Rounds, theta: Theta) -> Nearby:
        return Nearby(stage.rows, _layout(stage), self._around(stage, theta))

    def _around(self, stage: rounds.Rounds, theta: Theta) -> Around:
        """Return the choice of training rows that predictions are conditioned on."""
        layout, blocks = _layout(stage), self._blocks_around()
        number = self._rows_around(layout.rows, layout.n_blocks)
        lengths = _lengths(stage, theta) * stage.scaling.x_scale
        if self._neighbours() == "order" or blocks == 0:
            return Band((blocks or 0) // 2)
        if not np.isfinite(lengths).any():  # only the order tells which rows are near
            more = -(-number // layout.block_rows) - 1 if blocks is None else blocks
            return Band(-(-more // 2))
        landmarks = stage.landmarks
        assert landmarks is not None
        if blocks is None:
            return NearestRows(number, layout.rows, lengths, landmarks)
        return NearestBlocks(1 + blocks, lengths, landmarks)


@dataclass(eq=False, repr=False, kw_only=True)
class PIC(LMA):
    """Partially independent conditional approximation: LMA of Markov order 0.

    Blocks are independent given the support inputs.  Parameters as in ``LMA``.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = daskgp.PIC(n_support=10, block_rows=40).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict(np.array([[0.5]]))[0] - np.sin(3)) < 1e-2)
    True
    """

    model_name: ClassVar[str] = "pic"

    markov_order: int | None = field(default=0, init=False)
    neighbours: Literal["nearest", "order"] = field(default="nearest", init=False)
    predict_order: int | None = field(default=None, init=False)
    predict_rows: int | None = field(default=None, init=False)
    prediction: Literal["consistent", "paper"] = field(default="consistent", init=False)


def _layout(stage: rounds.Rounds) -> Layout:
    assert stage.layout is not None, "the rows are not in blocks yet"
    return stage.layout


def _places(stage: rounds.Rounds, theta: Theta) -> np.ndarray:
    """Return some rows of the blocks (M, r, d) in units of the kernel's correlation lengths."""
    assert stage.landmarks is not None
    scaled, lengths = np.asarray(stage.scaling.inputs(stage.landmarks)), _lengths(stage, theta)
    matters = np.isfinite(lengths)
    if not matters.any():
        return np.arange(len(scaled), dtype=np.float64)[:, None, None]
    return scaled[:, :: len(scaled[0]) // APART, matters] / lengths[matters]


def _lengths(stage: rounds.Rounds, theta: Theta) -> np.ndarray:
    """Return the correlation lengths (d,) of the kernel in scaled units."""
    centroids = np.asarray(stage.scaling.inputs(_layout(stage).centroids))
    spread = np.ptp(centroids, axis=0)
    least = np.where(stage.scaling.uses, 1.0, 0.0)
    return correlation_lengths(theta.kernel, np.where(spread > 0, spread, least))


def _number(count: int) -> str:
    return "is only 1 block" if count == 1 else f"are only {count} blocks"
