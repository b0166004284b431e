"""Passes over rows for their sums, for landmarks of blocks, and for random or nearest rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from daskgp import checks
from daskgp.checks import LARGEST
from daskgp.data import Rows
from daskgp.data.partition import Span, default_block_rows, joined
from daskgp.data.rows import GIVEN, WEIGHT, Y_VARIANCE
from daskgp.errors import InputError
from daskgp.models import fills, place_ranges, repeats, scaling
from daskgp.models.transform import Transform
from daskgp.models.values import Block, Observed
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import single_blas_thread


def describe(
    rows: Rows,
    spans: Sequence[Span],
    executor: Executor,
    transform: Transform | None = None,
    what: str = "row",
) -> scaling.Sums:
    """Sum over the raw rows, in one pass, what the scaling, ranges and reports need.

    Noise variances of rows, if there are any, are checked first; ``what`` one is of for users.
    Targets are transformed.
    """
    usual = _usual_noise(rows, spans, executor, what) if rows.n_noise else (1.0, 1.0)
    task = partial(_describe_block, rows, usual, transform)
    sums: scaling.Sums = map_reduce(task, scaling.combine, spans, executor, "describe")
    return sums._replace(sphere=rows.columns.sphere, transform=transform)


def _describe_block(
    rows: Rows, usual: tuple[float, float], transform: Transform | None, span: Span
) -> scaling.Sums:
    with single_blas_thread():
        raw, given = rows.raw(*span)
        X, y = rows.as_inputs(raw, given)
        p, end = rows.n_targets, rows.noise_from
        if transform is not None:
            y = np.concatenate([transform.forward(y[:, :p]), y[:, p:]], axis=1)
        noise = y[:, end:] if rows.n_noise else None
        sums = scaling.local(X, y[:, :p], noise, usual)
        kept = scaling.complete_rows(X, y[:, :p]) & ~np.isinf(X).any(axis=1)
        sums = sums._replace(checksum=checksum(raw[kept], given[kept], p))
        if rows.geographic is not None:
            places = raw[kept][:, rows.geographic].astype(np.float64)
            sums = sums._replace(ends=place_ranges.local(*places.T))
        if rows.trend is None:
            return sums
        of_trend = scaling.local(
            y[kept, p:end], y[kept, :p], None if noise is None else noise[kept], usual
        )
        return sums._replace(trend=of_trend)


def checksum(X: np.ndarray, y: np.ndarray, p: int) -> int:
    """Return what tells complete rows from others, in any order: X and y as ``Rows.raw`` does.

    Rows of weight 1 without a known error are those without either.
    """
    noise = y[:, p:] if y.shape[1] > p else np.broadcast_to([1.0, 0.0], (len(y), 2))
    return repeats.checksum(np.column_stack([X, y[:, :p], noise]))


def checksum_of_target(X: np.ndarray, y: np.ndarray, p: int, target: int) -> int:
    """Return what tells the values of one of p joint targets from others, as ``checksum`` does."""
    errors = y[:, p + 1 :]
    own = [y[:, target]]
    if y.shape[1] > p:
        own += [y[:, p], errors[:, target if errors.shape[1] > 1 else 0]]
    return checksum(np.column_stack([X, np.full(len(X), target)]), np.column_stack(own), 1)


def checksum_of(rows: Rows, spans: Sequence[Span], executor: Executor) -> int:
    """Return the ``checksum`` of all complete rows."""
    total: np.ndarray = map_reduce(partial(_checksum_block, rows), np.add, spans, executor, "rows")
    return int(total[0])


def _checksum_block(rows: Rows, span: Span) -> np.ndarray:
    X, y = rows.raw(*span)
    kept = scaling.complete_rows(X, y) & ~np.isinf(X).any(axis=1)
    return np.array([checksum(X[kept], y[kept], rows.n_targets)], np.uint64)


def _usual_noise(
    rows: Rows, spans: Sequence[Span], executor: Executor, what: str
) -> tuple[float, float]:
    """Return the geometric means of weights and error variances; InputError for impossible ones."""
    found: _Noise = map_reduce(partial(_noise_block, rows), _both_noises, spans, executor, "errors")
    counts = found.counts
    n, logs, wrong = counts[0], counts[1:3], counts[3:].reshape(2, 3).astype(int)
    likely = fills.found(found.weights, [False], [(0.0, 0.0)])
    wrong[0, 2] += sum(one.rows for one in likely if fills.KNOWN.get(one.value) == 2)
    for name, (not_positive, not_finite, fill) in zip((WEIGHT, Y_VARIANCE), wrong, strict=True):
        unusable = f"not finite, or beyond {1 / LARGEST:.0e} to {LARGEST:.0e},"
        below = "negative" if name == WEIGHT else "zero or negative"
        filled = "a fill value in common use"
        if not_positive or not_finite or fill:
            said = [
                f"{kind} in {checks.rows(count, what)}"
                for count, kind in ((not_positive, below), (not_finite, unusable), (fill, filled))
                if count
            ]
            raise InputError(
                f"{GIVEN[name]} is {' and '.join(said)} of {int(n)}: leave these {what}s out, or "
                "give positive finite numbers, if need be in another unit"
            )
    if not n and rows.weight is not None and len(rows):
        raise InputError(
            f"no usable rows: all {len(rows)} have a sample_weight of zero or a missing "
            "value: give rows at two places or more that have neither"
        )
    weight, error = np.exp(logs / n).tolist() if n else (1.0, 1.0)
    return weight, error


ENDS = (7, 44)
"""Seed of the sample of rows whose weights tell which are fill values."""


class _Noise(NamedTuple):
    """Number of complete rows, sums of log w and log e, counts of wrong ones; ends of weights."""

    counts: np.ndarray
    weights: fills.Ends


def _both_noises(a: _Noise, b: _Noise) -> _Noise:
    return _Noise(a.counts + b.counts, fills.combine(a.weights, b.weights))


def _noise_block(rows: Rows, span: Span) -> _Noise:
    X, y = rows.read(*span)
    noise = y[scaling.complete_rows(X, y[:, : rows.n_targets]), rows.noise_from :]
    # squares of others overflow, or vanish
    finite = np.isfinite(noise) & (noise <= LARGEST) & ~((noise > 0) & (noise < 1 / LARGEST))
    fill = np.isin(noise, fills.SURE)
    fill[:, 1] = False  # a row with so large an error says nothing, as it should
    kinds = finite & (noise <= 0) & ~fill, ~finite & ~fill, fill
    wrong = np.stack([kind.sum(axis=0) for kind in kinds], axis=1)
    if rows.y_variance is None:
        wrong[1] = 0
    logs = np.log(noise, out=np.zeros(noise.shape), where=finite & (noise > 0))
    keys = row_keys(ENDS, span.start, len(noise))
    counts = np.array([len(noise), *logs.sum(axis=0), *wrong.ravel()])
    return _Noise(counts, fills.local((noise[:, :1],), keys))


def landmarks(rows: Rows, spans: Sequence[Span], number: int, executor: Executor) -> np.ndarray:
    """Return ``number`` evenly spaced rows of each block (M, number, d), in the units of X."""
    wanted = default_block_rows(spans[-1].stop - spans[0].start)
    step = max(1, wanted // max(span.rows for span in spans))
    pieces = [tuple(spans[i : i + step]) for i in range(0, len(spans), step)]
    task = partial(_landmarks_of, rows, number)
    return np.asarray(map_reduce(task, joined, pieces, executor, "landmarks"))


def _landmarks_of(rows: Rows, number: int, spans: tuple[Span, ...]) -> np.ndarray:
    X, _ = rows.read(spans[0].start, spans[-1].stop)
    numbers = [np.rint(np.linspace(s.start, s.stop - 1, number)).astype(int) for s in spans]
    return np.asarray(X[np.array(numbers) - spans[0].start], np.float64)


DISTINCT = 0.85
"""Distinct rows, as a share of all, below which many rows may be copies of one."""


class Keys(NamedTuple):
    """Random keys of rows: hashes of a seed and their content, or of their numbers.

    Rows are drawn by their content whatever their order.  Rows that repeat would be drawn together,
    all copies or none, so where there are many all are drawn by number.

    Attributes
    ----------
    seed : tuple of int
    columns : tuple of int
        Columns of X that are hashed; none for keys by number.
    targets : bool
        Whether targets are hashed too.
    dtype : str
        Precision of what is hashed: single, so that the same rows in single precision have the
        same keys, unless it does not tell rows apart.
    longitude : int, optional
        Column of X with degrees east, of which 360 are none.
    """

    seed: tuple[int, ...]
    columns: tuple[int, ...] = ()
    targets: bool = False
    dtype: str = "float32"
    longitude: int | None = None

    @classmethod
    def by_content(cls, seed: tuple[int, ...], rows: Rows, sums: scaling.Sums) -> Keys:
        """Return the keys by content of rows with these sums, or by number where they repeat.

        Columns that are constant do not count, nor do targets unless inputs repeat.
        """
        sketches = sums.inputs, sums.targets
        share, of_y = (repeats.of_sketch(s)[0] for s in sketches)
        few, few_y = (repeats.distinct(s) < DISTINCT * sums.rows for s in sketches)
        if min(share, of_y) >= repeats.SHARE or (few and few_y):
            return cls(seed)
        flat = scaling.constant(sums, rows.n_features)
        columns = [j for j, own in enumerate(rows.columns.where) if not flat[np.array(own)].all()]
        dtype = "float32" if _single_tells(sums) else "float64"
        longitude = None if rows.geographic is None else rows.geographic[0]
        return cls(seed, tuple(columns), share > 0 or few, dtype, longitude)

    @classmethod
    def of_order(cls, seed: int, rows: Rows, sums: scaling.Sums) -> Keys:
        """Return the keys of rows in random order."""
        return cls.by_content((seed, 2), rows, sums)  # 1 is that of samples

    def of(self, start: int, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the keys (n,) uint64 of rows, as they are stored, from number ``start`` on."""
        if not self.columns:
            return row_keys(self.seed, start, len(X))
        content = np.concatenate([X, y], axis=1, dtype=np.float64)
        if self.longitude is not None:
            content[:, self.longitude] %= 360.0
        with np.errstate(over="ignore", invalid="ignore"):
            content = content.astype(self.dtype).astype(np.float64)
        if self.longitude is not None:
            content[:, self.longitude] %= 360.0  # rounding may have reached the whole turn
        targets = range(X.shape[1], content.shape[1]) if self.targets else ()
        content = content[:, [*self.columns, *targets]]
        seed = np.random.SeedSequence(self.seed).generate_state(1, np.uint64)
        return repeats.hashes(content, int(seed[0]))


def _single_tells(sums: scaling.Sums) -> bool:
    """Return True if the range of each column has as many steps of single precision as rows."""
    extent, size = sums.high - sums.low, np.maximum(np.abs(sums.low), np.abs(sums.high))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = extent / np.spacing(size.astype(np.float32))
        return bool((steps[extent > 0] >= sums.rows).all())


class Drawn(NamedTuple):
    """Scaled rows with a random key each, in the order of their keys."""

    keys: np.ndarray
    rows: Block

    def at(self, rows: np.ndarray) -> Drawn:
        """Return some of the rows, by a mask or their numbers."""
        return Drawn(self.keys[rows], self.rows.at(rows))

    def smallest(self, number: int) -> Drawn:
        """Return the rows with the ``number`` smallest keys; of equal keys, those before others."""
        few = np.arange(len(self.keys))
        if len(few) > number:
            few = np.flatnonzero(self.keys <= np.partition(self.keys, number)[number])
        return self.at(few[np.argsort(self.keys[few], kind="stable")[:number]])

    @classmethod
    def join(cls, several: Sequence[Drawn]) -> Drawn:
        """Return the rows of several draws, one after another."""
        rows = Block.join([drawn.rows for drawn in several])
        return cls(np.concatenate([drawn.keys for drawn in several]), rows)


def draw(
    rows: Rows,
    spans: Sequence[Span],
    scale: scaling.Scaling,
    number: int,
    keys: Keys,
    executor: Executor,
) -> Drawn:
    """Draw ``number`` scaled rows uniformly from those without missing values, or take all.

    Those with the smallest keys are drawn, in the order of these, so the sample is the same
    however rows are cut into blocks and, with keys by content, in whatever order they are.
    """
    task = partial(_sample_block, rows, scale, number, keys)
    combine = partial(_sample_both, number)
    drawn: Drawn = map_reduce(task, combine, spans, executor, "sample")
    return drawn


def draw_given(
    rows: Rows, spans: Sequence[Span], number: int, keys: Keys, executor: Executor, partly: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``number`` rows as ``draw`` does, and return them as ``Rows.raw`` has them.

    ``partly`` are there those that miss some of the targets, too.
    """
    task, combine = partial(_given_block, rows, number, keys, partly), partial(_sample_both, number)
    drawn: Drawn = map_reduce(task, combine, spans, executor, "sample")
    return drawn.rows.X, drawn.rows.y


def _given_block(rows: Rows, number: int, keys: Keys, partly: bool, span: Span) -> Drawn:
    X, y = rows.raw(*span)
    targets = y[:, : rows.n_targets]
    missing = np.isnan(targets).all(axis=1) if partly else np.isnan(y).any(axis=1)
    keep = ~np.isnan(rows.columns.inputs(X)).any(axis=1) & ~missing
    return Drawn(keys.of(span.start, X, targets), Block(X, y)).at(keep).smallest(number)


class Nearest(NamedTuple):
    """Rows nearest to each of some places: squared distances and ``Drawn`` per place."""

    away: tuple[np.ndarray, ...]
    rows: tuple[Drawn, ...]

    def smallest(self, number: int) -> Nearest:
        """Return the ``number`` nearest rows of each place; ties go to smaller keys."""
        near = [
            np.lexsort((rows.keys, away))[:number]
            for away, rows in zip(self.away, self.rows, strict=True)
        ]
        return Nearest(
            tuple(away[i] for away, i in zip(self.away, near, strict=True)),
            tuple(rows.at(i) for rows, i in zip(self.rows, near, strict=True)),
        )


def draw_near(
    rows: Rows,
    spans: Sequence[Span],
    scale: scaling.Scaling,
    places: np.ndarray,
    number: int,
    keys: Keys,
    executor: Executor,
) -> Drawn:
    """Return the ``number`` rows nearest to each place (s, d), in scaled units, each row once."""
    task = partial(_near_block, rows, scale, places, number, keys)
    combine = partial(_near_both, number)
    nearest: Nearest = map_reduce(task, combine, spans, executor, "near")
    drawn = Drawn.join(nearest.rows)
    return drawn.at(np.unique(drawn.keys, return_index=True)[1])


def _near_block(
    rows: Rows,
    scale: scaling.Scaling,
    places: np.ndarray,
    number: int,
    keys: Keys,
    span: Span,
) -> Nearest:
    with single_blas_thread():
        scaled = _scaled(_keyed(rows, keys, span), scale)
        away = tuple(((scaled.rows.X - place) ** 2).sum(axis=1) for place in places)
        return Nearest(away, (scaled,) * len(places)).smallest(number)


def _near_both(number: int, a: Nearest, b: Nearest) -> Nearest:
    away = tuple(np.concatenate(both) for both in zip(a.away, b.away, strict=True))
    rows = tuple(map(Drawn.join, zip(a.rows, b.rows, strict=True)))
    return Nearest(away, rows).smallest(number)


def _keyed(rows: Rows, keys: Keys, span: Span) -> Drawn:
    """Return the keys, inputs and targets, as ``Rows.read`` does, of rows without missing ones."""
    raw, given = rows.raw(*span)
    X, y = rows.as_inputs(raw, given)
    observed = Observed(**rows.beside_in(given)) if rows.beside else None
    keyed, keep = keys.of(span.start, raw, given[:, : rows.n_targets]), scaling.complete_rows(X, y)
    return Drawn(keyed, Block(X, y, None, observed)).at(keep)


def _scaled(drawn: Drawn, scale: scaling.Scaling) -> Drawn:
    """Return drawn rows in the units of the model."""
    X, y, _, observed = drawn.rows
    return Drawn(drawn.keys, scale.block(X, y, observed=observed and observed.given))


def row_keys(seed: tuple[int, ...], start: int, count: int) -> np.ndarray:
    """Return the random keys (count,) of rows from ``start`` on, by number."""
    # one step of the generator per row
    return np.random.PCG64(list(seed)).advance(start).random_raw(count)


def _sample_block(rows: Rows, scale: scaling.Scaling, number: int, keys: Keys, span: Span) -> Drawn:
    with single_blas_thread():
        return _scaled(_keyed(rows, keys, span).smallest(number), scale)


def _sample_both(number: int, a: Drawn, b: Drawn) -> Drawn:
    return Drawn.join([a, b]).smallest(number)
