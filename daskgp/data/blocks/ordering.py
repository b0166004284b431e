"""Orders of rows in a line: neighbours in it are neighbours in space, or rows are at random.

Every row has a key, an unsigned integer of 64 bits, and rows are sorted by it.  The geometry is
that of inputs divided by their lengthscales.  Random keys are those of
``daskgp.data.blocks.sampling``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, Self

import numpy as np
from threadpoolctl import threadpool_limits

from daskgp.checks import meant, shown
from daskgp.data.blocks.hilbert import hilbert_keys, quantised
from daskgp.errors import InputError, SettingError

RANDOM = "random"
NEARBY_KINDS = ("hilbert", "pca", "kmeans")
KINDS = (*NEARBY_KINDS, RANDOM)
MAX_LEADING, MAX_CENTROIDS = 3, 256
BITS = {1: 63, 2: 31, 3: 21, 4: 15}
"""Bits per coordinate of a Hilbert key of 1 to 4 coordinates."""
TIE_BITS = {1: 32, 2: 16, 3: 10, 4: 8}
"""Bits per coordinate of a Hilbert key of 32 bits in all."""

_TILE = 4_096  # rows whose distances to all centroids stay in the cache
_ARRAYS = ("low", "high", "step", "direction", "centroids")


@dataclass(frozen=True, eq=False)
class Order:
    """A line through the rows: every row has a key.

    Parameters
    ----------
    kind : str
        ``"column"``, ``"hilbert"``, ``"pca"``, ``"kmeans"`` or ``"random"``.
    features : tuple of str
        Names of all columns of the X that it was made for.
    columns : tuple of int
        The k columns that are used, the leading one first; none for a random order.
    low, high : ndarray (k,)
        Their ranges; values outside are clipped.
    step : ndarray (k,)
        Divisor of each column, in its own units: its share of the side of a cube for a curve,
        its lengthscale otherwise.
    direction : ndarray (k,) or (0,)
        First principal component of scaled inputs, where the kind needs it.
    centroids : ndarray (K, k) or (0, k)
        Centres of clusters of scaled inputs, in the order of their chain.
    seed : int
        Seed of random keys; 0 for other kinds.
    """

    kind: str
    features: tuple[str, ...]
    columns: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    step: np.ndarray
    direction: np.ndarray
    centroids: np.ndarray
    seed: int = 0

    @property
    def leading(self) -> tuple[str, ...]:
        """Names of the columns that the line follows, without those that break ties."""
        columns = self.columns[:1] if self.kind == "column" else self.columns
        return tuple(self.features[j] for j in columns)

    def keys(self, X: np.ndarray) -> np.ndarray:
        """Return keys (n,) uint64 of rows X (n, d) in their own units; 0 for a row with a NaN.

        Raises
        ------
        InputError
            If keys are random: they do not belong to places.
        """
        if self.kind == RANDOM:
            raise InputError(
                "rows in random order have no blocks that places belong to: run daskgp.prepare "
                "again with another order"
            )
        keys = np.zeros(len(X), np.uint64)
        for start in range(0, len(X), _TILE):
            tile = np.asarray(X[start : start + _TILE], np.float64)
            whole = np.flatnonzero(~np.isnan(tile).any(axis=1))
            columns = tile[np.ix_(whole, np.array(self.columns))]
            scaled = (np.clip(columns, self.low, self.high) - self.low) / self.step
            keys[start + whole] = self._scaled_keys(np.ascontiguousarray(scaled.T))
        return keys

    def _scaled_keys(self, scaled: np.ndarray) -> np.ndarray:
        """Return the keys of scaled inputs (k, n)."""
        if self.kind == "pca":
            return quantised(self._projection(scaled), BITS[1])
        if self.kind == "kmeans":
            return self._chain_keys(scaled)
        if self.kind == "column" and len(scaled) > 1:
            ties = hilbert_keys(scaled[1:], TIE_BITS[len(scaled) - 1])
            return (quantised(scaled[0], 32) << np.uint64(32)) | ties
        return hilbert_keys(scaled, BITS[len(scaled)])

    def _projection(self, scaled: np.ndarray) -> np.ndarray:
        """Return the place along the direction, from 0 to 1 over the box of the ranges."""
        ends = self.direction * (self.high - self.low) / self.step
        place = _dot(self.direction, scaled) - np.minimum(ends, 0.0).sum()
        return place / (np.abs(ends).sum() or 1.0)

    def _chain_keys(self, scaled: np.ndarray) -> np.ndarray:
        """Return the nearest centroid of the chain and, in lower bits, the place along it there."""
        own, along = _nearest(scaled, self.centroids), self._along()
        apart = scaled - self.centroids.T[:, own]
        place = _dot(along.T[:, own], apart)
        place = 0.5 + 0.5 * place / (1.0 + np.abs(place))
        return (own.astype(np.uint64) << np.uint64(48)) | quantised(place, 48)

    def _along(self) -> np.ndarray:
        """Return the chain's direction (K, k) at each centroid over half its squared length."""
        if len(self.centroids) == 1:
            return self.direction[None]
        padded = np.pad(self.centroids, ((1, 1), (0, 0)), mode="edge")
        along = padded[2:] - padded[:-2]
        length = (along**2).sum(axis=1, keepdims=True)
        return 2.0 * along / np.where(length > 0.0, length, 1.0)

    def widened(self, low: np.ndarray, high: np.ndarray) -> Order:
        """Return a line along a column that goes on to rows of other ranges (d,).

        Places beyond the range of an order of another kind have the keys of its ends, as before.
        """
        if self.kind != "column":
            return self
        lead = self.columns[0]
        ends = min(self.low[0], low[lead]), max(self.high[0], high[lead])
        if ends == (self.low[0], self.high[0]):
            return self
        lows, highs, steps = self.low.copy(), self.high.copy(), self.step.copy()
        lows[0], highs[0], steps[0] = *ends, ends[1] - ends[0]
        return replace(self, low=lows, high=highs, step=steps)

    def rekeyed(self, keys: np.ndarray, wider: Order) -> np.ndarray:
        """Return the keys (n,) of the same rows on a line that was ``widened``, up to a cell."""
        if wider is self:
            return keys
        alone = len(self.columns) == 1
        bits, shift = (BITS[1], np.uint64(0)) if alone else (32, np.uint64(32))
        middle = ((keys >> shift).astype(np.float64) + 0.5) / 2.0**bits
        places = (self.low[0] + middle * self.step[0] - wider.low[0]) / wider.step[0]
        ties = keys & np.uint64(0 if alone else 2**32 - 1)
        return (quantised(places, bits) << shift) | ties

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON takes."""
        plain = {"kind": self.kind, "features": list(self.features), "columns": list(self.columns)}
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        drawn = {"seed": self.seed} if self.kind == RANDOM else {}
        return {**plain, **arrays, **drawn}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Return the order that `to_dict` wrote."""
        columns = tuple(int(j) for j in found["columns"])
        low, high, step, axis, chain = (np.asarray(found[name], np.float64) for name in _ARRAYS)
        chain = chain.reshape(len(chain), len(columns))
        features = tuple(str(name) for name in found["features"])
        seed = int(found.get("seed", 0))
        return cls(str(found["kind"]), features, columns, low, high, step, axis, chain, seed)


def _dot(weights: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """Sum over the first axis in a fixed order: the same bits wherever a row stands."""
    total = np.zeros(scaled.shape[1])
    for weight, column in zip(weights, scaled, strict=True):
        total += weight * column
    return total


def _nearest(scaled: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the index (n,) of the centroid nearest to each of the scaled inputs (k, n)."""
    near = scaled.T @ centroids.T
    near -= 0.5 * (centroids**2).sum(axis=1)
    return near.argmax(axis=1)


# -- making an order -------------------------------------------------------------------------


def make_order(
    order: str | Sequence[str],
    sample: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    names: Sequence[str],
    n_blocks: int,
    lengthscales: Sequence[float] | np.ndarray | None = None,
    seed: int = 0,
    sphere: Sequence[int] = (),
) -> Order:
    """Make an order of rows from a sample of them.

    Parameters
    ----------
    order : str or sequence of str
        ``"auto"``, ``"hilbert"``, ``"pca"``, ``"kmeans"``, ``"random"``, a column, or up to
        three columns for a Hilbert curve through them.  ``"auto"`` is the column itself if
        there is only one, a curve for two or three, and a chain of clusters for more.
    sample : ndarray (N, d)
        Complete rows in their own units; may be empty for ``"random"``.
    low, high : ndarray (d,)
        Ranges of all rows.
    names : sequence of str
        Names of the columns.
    n_blocks : int
        Number of blocks wanted; there are no more clusters than blocks.
    lengthscales : sequence of d floats, optional
        In the units of X; the standard deviations of the sample by default.  A column with
        an infinite one does not matter and is left out.
    seed : int
        Seed of the clusters or of random keys.
    sphere : sequence of int
        Columns that are x, y and z of a place on a sphere, which count as two and stay together on
        a curve.

    Raises
    ------
    SettingError
        For an order that is neither a kind nor a column, or for invalid lengthscales.
    """
    sample, names = np.asarray(sample, np.float64), tuple(names)
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    named = _named(order, names, sphere)
    if order == RANDOM:
        none = np.empty(0)
        return Order(RANDOM, names, (), none, none, none, none, np.empty((0, 0)), int(seed))
    spread = sample.std(axis=0)
    scale = spread if lengthscales is None else checked_lengths(lengthscales, names)
    matters = np.isfinite(scale) & (scale > 0.0) & (high > low)
    scale = np.where(matters, scale, np.where(spread > 0.0, spread, 1.0))
    extent = (high - low) / scale
    ranked = [j for j in _widest_first(extent) if matters[j]] or list(range(len(names)))
    kind = _kind(order, len(named), len(ranked))
    columns = _columns(kind, named, ranked, sphere)
    step = scale[columns]
    if kind == "hilbert":
        step = step * extent[columns].max()
    elif kind == "column":
        step[1:] *= extent[columns[1:]].max(initial=0.0)
        step[0] *= extent[columns[0]]
    step = np.where(step > 0.0, step, 1.0)
    low, high, k = low[columns], high[columns], len(columns)
    scaled = (sample[:, columns] - low) / step
    axis = _principal(scaled) if kind in ("pca", "kmeans") else np.empty(0)
    chain = np.empty((0, k))
    if kind == "kmeans":
        chain = _chain(_clusters(scaled, min(n_blocks, MAX_CENTROIDS), seed), axis)
    return Order(kind, names, tuple(columns), low, high, step, axis, chain)


def check_order(order: str | Sequence[str], names: Sequence[str], nearby: bool = False) -> None:
    """Raise SettingError for what `make_order` cannot use, before there is a sample.

    ``names`` are those of the user's columns.  With ``nearby``, refuse a random order too: its
    neighbours are not near one another.
    """
    _named(order, tuple(names))
    if nearby and order == RANDOM:
        raise SettingError(
            "order='random' does not keep nearby rows together, as the method needs: choose "
            f"{', '.join(map(repr, ('auto', *NEARBY_KINDS)))} or columns"
        )


def refuse_number(order: object) -> None:
    """Raise SettingError for an order that is a number, as of the rows of a block."""
    if isinstance(order, Number):
        raise SettingError(
            f"order={shown(order)}: name 1 to {MAX_LEADING} different columns, or one of "
            f"{', '.join(map(repr, ('auto', *NEARBY_KINDS)))}; a number of rows is block_rows"
        )


def _named(
    order: str | Sequence[str], names: tuple[str, ...], sphere: Sequence[int] = ()
) -> list[int]:
    """Return the columns that an order names; none for a kind."""
    if isinstance(order, str) and order in ("auto", *KINDS):
        return []
    several = isinstance(order, Sequence) and not isinstance(order, str)
    wanted = list(order) if several else [order]
    texts = all(isinstance(name, str) for name in wanted)
    most = MAX_LEADING + any(name == names[j] for j in sphere for name in wanted)
    if not texts or not 1 <= len(wanted) <= most or len(set(wanted)) < len(wanted):
        raise SettingError(
            f"order={shown(order)}: name 1 to {MAX_LEADING} different columns of "
            f"{', '.join(names)}, or one of {', '.join(map(repr, ('auto', *KINDS)))}"
        )
    for name in wanted:
        if name not in names:
            raise SettingError(_unknown(name, names))
    return [names.index(name) for name in wanted]


def _unknown(name: object, names: tuple[str, ...]) -> str:
    hint = meant(str(name), ("auto", *KINDS, *names))
    hint = f" ({hint})" if hint else ""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (
        f"order {shown(name)} is neither one of {', '.join(('auto', *KINDS))} nor a column{hint}; "
        f"X has {', '.join(names[:20])}{more}"
    )


def checked_lengths(
    lengthscales: Sequence[float] | np.ndarray, names: tuple[str, ...]
) -> np.ndarray:
    """Return lengthscales (d,) as numbers; SettingError unless all are greater than 0."""
    try:
        scales = np.asarray(lengthscales, np.float64)
    except (ValueError, TypeError) as error:
        raise SettingError(f"lengthscales={shown(lengthscales)}: numbers are needed") from error
    if scales.shape != (len(names),):
        raise SettingError(
            f"lengthscales have shape {scales.shape}, one for each of the {len(names)} columns is "
            f"needed: {', '.join(names[:20])}"
        )
    for name, value in zip(names, scales, strict=True):
        if not value > 0.0:
            raise SettingError(f"lengthscale {value:g} of {name!r}: it must be greater than 0")
    return scales


def _kind(order: str | Sequence[str], named: int, mattering: int) -> str:
    if named or order == "auto":
        if (named or mattering) == 1:
            return "column"
        return "hilbert" if named or mattering <= MAX_LEADING else "kmeans"
    return str(order)


def _widest_first(extent: np.ndarray) -> list[int]:
    """Return the columns, widest first; ties, which rounding must not break, keep their order."""
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.round(np.log(extent), 9)
    return [int(j) for j in np.argsort(-width, kind="stable")]


def _columns(
    kind: str, named: list[int], ranked: list[int], sphere: Sequence[int] = ()
) -> list[int]:
    """Return the columns that are used; those of a curve begin with the widest."""
    if kind == "column":
        first = named or ranked[:1]
        return first + _leading([j for j in ranked if j != first[0]], sphere)
    if kind == "hilbert":
        return named or _leading(ranked, sphere)
    return sorted(ranked)


def _leading(ranked: list[int], sphere: Sequence[int]) -> list[int]:
    """Return the first columns, those of a sphere all or none, and as two."""
    place, chosen, left = [j for j in ranked if j in sphere], [], MAX_LEADING
    for j in ranked:
        group = place if j in sphere else [j]
        if j not in chosen and min(len(group), 2) <= left:
            chosen += group
            left -= min(len(group), 2)
    return chosen


def _principal(scaled: np.ndarray) -> np.ndarray:
    """Return the first principal component (k,) of scaled inputs (N, k), largest entry positive."""
    apart = scaled - scaled.mean(axis=0)
    with threadpool_limits(1):  # sums of several threads are in no fixed order
        axis = np.linalg.eigh(apart.T @ apart)[1][:, -1]
    return np.asarray(axis * np.sign(axis[np.argmax(np.abs(axis))]))


def _clusters(scaled: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return the centres (K, k) of at most ``number`` clusters."""
    from sklearn.cluster import KMeans  # takes a second, which workers need not wait

    distinct, counts = np.unique(scaled, axis=0, return_counts=True)
    number = max(1, min(number, len(distinct)))
    with threadpool_limits(1):
        search = KMeans(number, n_init=1, max_iter=20, random_state=seed % 2**32)
        return np.asarray(search.fit(np.repeat(distinct, counts, axis=0)).cluster_centers_)


def _chain(centroids: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Order centroids in a path from an end of an axis, each time to the nearest one left."""
    left, path = np.ones(len(centroids), bool), [int(np.argmin(centroids @ axis))]
    for _ in range(len(centroids) - 1):
        left[path[-1]] = False
        away = ((centroids - centroids[path[-1]]) ** 2).sum(axis=1)
        path.append(int(np.argmin(np.where(left, away, np.inf))))
    return centroids[path]
