"""What every package is told of a set, and the processor seconds that it may take to train."""

import time
from typing import NamedTuple

import numpy as np
from datasets import Split

from daskgp import kernels

INDUCING = 512
"""Inducing inputs of methods that train them within seconds to minutes."""


class Task(NamedTuple):
    """Smoothness of the Matérn kernel, and whether it has one lengthscale for all columns.

    Then whether places lie in gaps, the processor seconds of a fit, and the threads.
    """

    smoothness: float
    isotropic: bool
    gaps: bool
    seconds: float
    threads: int

    @property
    def neighbours(self) -> int:
        """Rows near a place that a prediction is conditioned on: more where they are far."""
        return 200 if self.gaps else 100

    def held_out(self, split: Split, regions: bool) -> np.ndarray:
        """Return a mask (n,) of about a tenth of the rows: at random, or of whole regions."""
        rng, n = np.random.default_rng(0), len(split.y)
        if not regions:
            return rng.permutation(n) < n // 10
        from sklearn.cluster import MiniBatchKMeans

        region = MiniBatchKMeans(50, n_init=1, random_state=0).fit_predict(split.X)
        return np.isin(region, rng.permutation(50)[:5])

    def kernel(self, split: Split) -> kernels.Kernel:
        """Return a kernel with a lengthscale per column, at the median distance of the rows."""
        from scipy.spatial.distance import pdist

        middle = float(np.median(pdist(split.drawn(min(2_000, len(split.y))).X)))
        kind = {0.5: kernels.Matern12, 1.5: kernels.Matern32}[self.smoothness]
        return kind(lengthscale=(middle,) * split.X.shape[1], variance=1.0)

    def inducing(self, split: Split) -> np.ndarray:
        """Return centres of k-means (m, d), from which inducing inputs start."""
        from sklearn.cluster import MiniBatchKMeans

        number = min(INDUCING, len(split.y) // 2)
        return MiniBatchKMeans(number, n_init=1, random_state=0).fit(split.X).cluster_centers_

    def clock(self) -> "Clock":
        """Return a clock that starts now."""
        return Clock(self.seconds)


class Clock:
    """Processor seconds of this process since the start, of so many."""

    def __init__(self, most: float) -> None:
        self.most, self.began = most, time.process_time()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.process_time() - self.began

    @property
    def over(self) -> bool:
        """Whether they are spent."""
        return self.seconds >= self.most

    @property
    def rate(self) -> float:
        """Factor of a learning rate: 1 until a half of the seconds, 0.1, and 0.01 from 3/4 on."""
        share = self.seconds / self.most
        return 1.0 if share < 0.5 else 0.1 if share < 0.75 else 0.01
