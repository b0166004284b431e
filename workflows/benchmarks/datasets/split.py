"""Rows to learn from and rows to predict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Rows to learn from and rows to predict, with the values without noise where known."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    f_test: np.ndarray | None = None

    def thinned(self, rows: int | None) -> Split:
        """Return at most so many rows to learn from and others in proportion, at random."""
        if rows is None or rows >= len(self.y):
            return self
        rng, share = np.random.default_rng(0), len(self.y_test) / len(self.y)
        train, test = (
            np.sort(rng.permutation(len(y))[: max(1, int(size))])
            for y, size in ((self.y, rows), (self.y_test, share * rows))
        )
        f_test = None if self.f_test is None else self.f_test[test]
        return Split(self.X[train], self.y[train], self.X_test[test], self.y_test[test], f_test)

    def varying(self) -> Split:
        """Return the rows without columns that are constant among those to learn from."""
        varies = np.ptp(self.X, axis=0) > 0
        return self._replace(X=self.X[:, varies], X_test=self.X_test[:, varies])

    def standardised(self, inputs: bool = False) -> Split:
        """Return standardised targets, and inputs, without columns that are constant."""
        X, _, X_test, *_ = self.varying()
        if inputs:
            shift, scale = X.mean(axis=0), X.std(axis=0)
            X, X_test = (X - shift) / scale, (X_test - shift) / scale
        centre, unit = self.y.mean(), self.y.std()
        return Split(X, (self.y - centre) / unit, X_test, (self.y_test - centre) / unit)

    def drawn(self, rows: int | None) -> Split:
        """Return so many of the rows to learn from, at random, and all others."""
        few = np.sort(np.random.default_rng(0).permutation(len(self.y))[:rows])
        return self._replace(X=np.asarray(self.X[few]), y=np.asarray(self.y[few]))

    def drawn_places(self, number: int) -> np.ndarray:
        """Return so many of the places to predict, at random."""
        order = np.random.default_rng(0).permutation(len(self.X_test))
        return self.X_test[np.sort(order[:number])]

    def again(self, share: float, seed: int, rows: int | None = None) -> Split:
        """Return another split of so many of all rows, with that share to learn from."""
        X, y = np.concatenate([self.X, self.X_test]), np.concatenate([self.y, self.y_test])
        order = np.random.default_rng(seed).permutation(len(y))[:rows]
        train, test = np.split(order, [round(share * len(order))])
        return Split(X[train], y[train], X[test], y[test])
