"""Predictions, samples and scores of a fitted estimator."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, Self, Unpack, overload

import dask.array as da
import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from daskgp import data, metrics
from daskgp.arrays import linalg
from daskgp.assess import loo as leaving_out
from daskgp.assess import scores as scoring
from daskgp.assess import weighing
from daskgp.assess.leaderboard import Leaderboard
from daskgp.checks import flags, place, refuse_unknown, shown, text_of, unknown_setting, whole
from daskgp.data import axes, named_beside, named_targets, reading
from daskgp.data import encoding as encodings
from daskgp.data.kinds import (
    Columns,
    DataArray,
    Dataset,
    Elsewhere,
    Fields,
    InMemory,
    Kind,
    OfRows,
    OfTraining,
    Places,
    Stored,
)
from daskgp.data.rows import ARGUMENTS, GIVEN, WEIGHT, Y_VARIANCE, Beside
from daskgp.data.stores import locks
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import SettingError
from daskgp.estimators import nested, settings_of_fit
from daskgp.estimators.attributes import Learned
from daskgp.estimators.bases import BaseEstimator, RegressorMixin
from daskgp.estimators.pickling import carried
from daskgp.estimators.trees import of_nodes
from daskgp.fit import named
from daskgp.fit.fitted import Fit
from daskgp.fit.scratch import scratch_rows
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.output import csv as to_csv
from daskgp.output import job as outputs
from daskgp.output import mapfile as to_file
from daskgp.output import store as to_store
from daskgp.output.job import Job, Written
from daskgp.posterior.posterior import Posterior
from daskgp.predict import average as averaging
from daskgp.predict import hyperparameter_table, known_errors, observed
from daskgp.predict import lazy as prediction
from daskgp.predict import paths as sampling
from daskgp.predict.paths import Paths
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import begin_call
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Path


class FittedGP(RegressorMixin, BaseEstimator):
    """Predictions, samples and scores of an estimator that may have been fitted."""

    kernel: Kernel | str | None
    progress: ShowProgress
    store: Path | None
    fill_values: Any
    geographic: Any

    _fitted: Fit
    """Result of a fit; estimators that are not fitted lack it."""

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """Raise TypeError for a setting that the class lacks, in the words of the command."""
        refuse_unknown(cls, settings)
        return super().__new__(cls)

    objective_: ClassVar[Learned[float | None]] = Learned(lambda fit: fit.objective)
    n_rows_: ClassVar[Learned[int]] = Learned(lambda fit: fit.n)
    history_: ClassVar[Learned[list[dict[str, Any]]]] = Learned(lambda fit: fit.history)
    kernel_: ClassVar[Learned[Kernel | tuple[Kernel, ...]]] = Learned(
        lambda fit: fit.posterior.users_kernel
    )
    noise_variance_: ClassVar[Learned[float | np.ndarray]] = Learned(
        lambda fit: fit.posterior.noise_of_y
    )
    n_features_in_: ClassVar[Learned[int]] = Learned(lambda fit: fit.posterior.n_features)
    feature_names_in_: ClassVar[Learned[np.ndarray]] = Learned(
        lambda fit: np.array(fit.posterior.feature_names, dtype=object)
    )

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a fit, for scikit-learn."""
        return "_fitted" in vars(self)

    @property
    def solved_(self) -> Posterior:
        """The posterior: a method and the layers around it."""
        fit: Fit | None = vars(self).get("_fitted")
        if fit is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit")
        return fit.posterior

    @solved_.setter
    def solved_(self, posterior: Posterior) -> None:
        self._fitted = self._fitted.of(posterior)

    @property
    def _one(self) -> Posterior:
        """The posterior, of which attributes tell; AttributeError if each target has its own."""
        posterior = self.solved_
        if posterior.each:
            raise AttributeError(
                "separate targets with rows of their own each have their own value: ask the "
                f"model of each, such as model.parts_[0] for {posterior.target_names[0]!r}"
            )
        return posterior

    _board: Leaderboard | None = None
    """Trials of the search that has chosen this estimator; None if nothing was searched."""
    acting: ClassVar[frozenset[str]] = frozenset({"progress", "store"})
    """Settings that a fitted estimator reads anew; others have to be those of the fit."""
    _settings_of_fit: Mapping[str, Any] | None = None
    """Settings that the fit had; None if they are not known."""

    def _check_fitted(self, *besides: str) -> None:
        """Raise an error unless fitted, with the settings of the fit or other ones ``besides``."""
        check_is_fitted(self, "solved_")
        if self._settings_of_fit is not None:
            settings_of_fit.check(self, self._settings_of_fit, self.acting.union(besides))

    # -- settings and rows -----------------------------------------------------------------------

    @abstractmethod
    def _check(self) -> None:
        """Raise SettingError for settings that cannot be used."""

    @contextmanager
    def _beginning(
        self, given: tuple[Any, ...], checkpoint: Any, wait: float, clear_lock: bool
    ) -> Iterator[tuple[Any, Any, Place | None, Beside]]:
        """Yield rows, where the progress of a fit is kept under a lock, and what is beside y."""
        place("checkpoint", checkpoint, "a checkpoint")
        if checkpoint is None:
            for name, value in (("wait", wait), ("clear_lock", clear_lock)):
                if value:
                    raise SettingError(
                        f"{name}={shown(value)} belongs to a checkpoint: give checkpoint= or leave "
                        f"{name} out"
                    )
        with self._rows_of(*given) as (X, y, beside):
            if checkpoint is None:
                yield X, y, None, beside
            else:
                with locks.hold(str(checkpoint), wait, clear_lock, resume=True) as claim:
                    yield X, y, Place(str(checkpoint), claim), beside
        if isinstance(given[0], str | os.PathLike):  # a store made of this table is known by it
            self._fitted.seen[-1]["store"] = str(given[0])

    @contextmanager
    def _rows_of(
        self, X: Any, y: Any, features: Any, mask: Path | None, beside: Beside
    ) -> Iterator[tuple[Any, Any, Beside]]:
        """Yield rows and what is beside y; named columns are converted for as long as it takes."""
        settings = self.geographic, self.fill_values
        columns = named.columns_of(X, y, features, mask, beside, *settings)
        if columns is not None:
            self._check()
        with given_rows(columns, X, y, beside, self.store, self.progress) as rows:
            yield rows

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return settings by name.

        Parameters
        ----------
        deep : bool
            Whether to include the parameters of a kernel, as ``kernel__lengthscale``.

        Returns
        -------
        dict

        Examples
        --------
        >>> import daskgp
        >>> daskgp.SGPR(n_inducing=100).get_params()["n_inducing"]
        100
        """
        settings: dict[str, Any] = super().get_params(deep)
        return settings | (nested.parameters(self.kernel) if deep else {})

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; those of the kernel, ``kernel__lengthscale``, last.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the estimator or its kernel has no parameter of that name.

        Examples
        --------
        >>> import daskgp
        >>> daskgp.SGPR().set_params(n_inducing=100).n_inducing
        100
        """
        names = [key for key in params if key.startswith(nested.PREFIX)]
        own = {key: params.pop(key) for key in names}
        known = self.get_params(deep=False)
        for name in params:
            if name.partition("__")[0] not in known:
                raise SettingError(unknown_setting(name, type(self).__name__, known))
        super().set_params(**params)
        if own:
            self.kernel = nested.replaced(self.kernel, own)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled; SettingError where training rows would be left behind."""
        state = dict(super().__getstate__())
        fit: Fit | None = state.get("_fitted")
        if fit is not None:
            state["_fitted"] = fit.of(carried(fit.posterior, type(self).__name__))
        return state

    def __copy__(self) -> Any:
        """Copy within this process, where temporary rows stay where they are."""
        return self._twin(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy all that is in memory, within this process."""
        twin = memo[id(self)] = self._twin({})
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def _twin(self, state: dict[str, Any]) -> Any:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(state)
        return twin

    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[False] = ...,
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        *,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> Kind: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[True],
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        *,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> tuple[Kind, Kind]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[False] = ...,
        *,
        return_cov: Literal[True],
        include_noise: bool = ...,
        quantiles: None = ...,
        **beside: Unpack[OfRows],
    ) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        return_cov: Literal[False] = ...,
        include_noise: bool = ...,
        *,
        quantiles: Sequence[float],
        **beside: Unpack[OfRows],
    ) -> tuple[Kind, ...]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        **beside: Unpack[OfRows],
    ) -> Any: ...
    @overload
    def predict(
        self,
        X: Stored,
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        **beside: Unpack[OfRows],
    ) -> Any: ...
    @of_nodes
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
        *,
        y_variance: Any = None,
        quantiles: Sequence[float] | None = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
    ) -> Any:
        """Return the posterior mean, and on request its standard deviation, covariance, quantiles.

        Parameters
        ----------
        X : array-like (n, d)
            A NumPy array gives NumPy arrays.  A dask or Zarr array gives dask arrays with its row
            chunks, and nothing is computed.  An xarray object gives DataArrays on its grid, lazy
            where it is chunked.  A DataTree gives a DataTree of the same nodes, each
            with the results on its grid.  Rows with a missing feature give NaN.
        return_std : bool
            Also return the standard deviation, with the shape of the mean.
        return_cov : bool
            Also return the joint covariance (n, n), or (n, n, p) for several targets; (n, p, n, p)
            where these were fitted with ``targets="joint"``.  For rows in memory.  `LMA`, `PIC`
            and `VecchiaGP` then condition all rows, their means too, on the training rows near any
            of them, at most 10,000.
        include_noise : bool
            Whether the spread is that of a new observation y rather than of f; with a likelihood
            other than the Gaussian the mean is, too: of a Bernoulli likelihood the probability of
            1, of a Poisson one the expected count.
        y_variance : float or array-like (n,), (n, 1) or (n, p), optional
            With ``include_noise``, known error variance of each new observation besides the learned
            noise variance, in units of y squared; on the grid of X where X is an xarray object.
        quantiles : sequence of float, optional
            Levels between 0 and 1, such as ``(0.05, 0.95)``: quantiles of f, or with
            ``include_noise`` of a new observation under the model's likelihood.
        trials, exposure, offset : float, array-like (n,) or (n, 1), or str, optional
            With ``include_noise``, what a likelihood takes of each new observation, as for ``fit``;
            on the grid of X where X is an xarray object, or the name of a variable or column of X.
            Default 1, 1 and 0: shares and rates.

        Returns
        -------
        mean : (n,) or (n, p)
        std or cov : if asked for
        quantiles : (n, q) or (n, p, q), along the dimension ``quantile``, if asked for

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))
        >>> mean, quantiles = model.predict(X[:3], quantiles=(0.05, 0.95), include_noise=True)
        >>> quantiles.shape
        (3, 2)
        """
        self._check_fitted()
        flags(return_std=return_std, return_cov=return_cov, include_noise=include_noise)
        begin_call(self.solved_.token)
        spread = return_std or quantiles is not None
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        X, columns = observed.named(self.solved_, X, columns)
        reading.refuse_other_order(X, y_variance=y_variance, **columns)
        beside = observed.checked(self.solved_, columns, include_noise)
        noisy = include_noise and (spread or return_cov)
        y_variance = known_errors.checked(self.solved_, reading.lazily(y_variance), noisy)
        if return_cov and spread:
            other = "return_std" if return_std else "quantiles"
            raise SettingError(f"{other} and return_cov exclude each other: ask for one")
        if return_cov and beside:
            raise SettingError(
                f"{next(iter(beside))} has no effect on return_cov, the covariance of f: leave it "
                "out, or ask for return_std"
            )
        if return_cov:
            self.solved_.refuse_transformed("a joint covariance", "ask for sample_y or return_std")
            mean, cov = prediction.joint(self.solved_, X, include_noise)
            return mean, known_errors.on_diagonal(cov, y_variance)
        levels = None if quantiles is None else prediction.check_levels(quantiles)
        outer = self.solved_.outer(include_noise)
        if levels:
            outer.check("quantiles")
        if beside:
            return observed.predicted(self.solved_, X, return_std, levels, beside)
        mean, std = prediction.marginal(self.solved_, X, "std" if spread else "none", include_noise)
        if not spread:
            return mean
        std = known_errors.added(std, y_variance)
        if levels is None:
            return mean, std
        given = mean, std
        if not outer.keeps_moments:
            given = prediction.marginal(self.solved_, X, "std", include_noise, gaussian=True)
        found = prediction.quantiles(self.solved_, *given, levels, include_noise)
        return (mean, std, found) if return_std else (mean, found)

    @overload
    def loo(
        self, X: DataArray | Dataset, y: Any, **beside: Unpack[OfTraining]
    ) -> tuple[np.ndarray | da.Array, np.ndarray | da.Array]: ...
    @overload
    def loo(
        self, X: da.Array, y: Any, **beside: Unpack[OfTraining]
    ) -> tuple[da.Array, da.Array]: ...
    @overload
    def loo(self, X: Stored, y: Any, **beside: Unpack[OfTraining]) -> tuple[da.Array, da.Array]: ...
    @overload
    def loo(
        self, X: InMemory, y: Any, **beside: Unpack[OfTraining]
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def loo(
        self,
        X: Any,
        y: Any,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
    ) -> tuple[Any, Any]:
        """Return predictions of the training rows as new observations, each from all others.

        They come from the fit to all rows: hyper-parameters, inducing or support inputs and the
        scaling are kept, a trend that is integrated over is that of the others.  Those of `SGPR`,
        `SparseSpectrumGP` and `ExactGP` are what a fit without the row would then predict, and
        those of `PIC` and of an `LMA` whose windows span all blocks, too; those of `VecchiaGP` and
        others of `LMA` are conditioned on the rows that predictions near the row take, without it.
        For other methods take `cross_validate`.  Joint targets are left out one value at a time:
        the others of its row stay.  With another likelihood a row is left out by its Gaussian site,
        and the sites of others stay as they are: the site that the posterior has, which ``update``
        and ``forget`` leave as it was, with methods that keep their rows (`VecchiaGP`, `LMA`,
        `PIC`); others have those of a fit alone, and refuse it after ``update`` or ``forget``.

        Parameters
        ----------
        X, y : array-like (n, d) and (n,) or (n, p)
            The rows that the model has, or some of them; of `SGPR` and `SparseSpectrumGP`, which
            keep sums over the rows, and with another likelihood, all of them in any order.
        y_variance, sample_weight : float or array-like (n,), (n, 1) or (n, p), optional
            As ``fit`` was given them; default those of a dataset store, False leaves these out.
        trials, exposure, offset, lower, upper : float, array-like (n,) or (n, 1), or str, optional
            As those; a name is that of a variable or column of X.

        Returns
        -------
        mean, std : (n,) or (n, p)
            NumPy arrays for rows in memory, else dask arrays and nothing is computed; NaN for rows
            with a missing value.

        Raises
        ------
        SettingError
            If the method has no leave-one-out predictions, or rows were added or taken out whose
            sites it does not keep.
        InputError
            If rows, their y or their noise are not those of the fit; for lazy rows once they are
            computed.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> y = np.sin(6 * X[:, 0])
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, y)
        >>> mean, std = model.loo(X, y)
        >>> bool(np.abs(mean - y).max() < 0.3)
        True
        """
        self._check_fitted()
        self.solved_.refuse_separate("loo")
        known = leaving_out.KnownRows.of(self._fitted.seen, self.n_rows_)
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        columns |= {"lower": lower, "upper": upper}
        X, columns = observed.named(self.solved_, X, columns)
        beside = named_beside(**noise, **columns)
        return leaving_out.left_out(self.solved_, known, X, y, beside)

    @overload
    def predict_exceedance(
        self,
        X: Places[Kind],
        threshold: float | Sequence[float],
        include_noise: bool = ...,
        **columns: Unpack[Columns],
    ) -> Kind: ...
    @overload
    def predict_exceedance(
        self,
        X: Stored,
        threshold: float | Sequence[float],
        include_noise: bool = ...,
        **columns: Unpack[Columns],
    ) -> da.Array: ...
    @of_nodes
    def predict_exceedance(
        self,
        X: Any,
        threshold: float | Sequence[float],
        include_noise: bool = False,
        *,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
    ) -> Any:
        """Return the posterior probability that f, or a new observation, exceeds a threshold.

        Parameters
        ----------
        X : array-like (n, d)
            As for `predict`.
        threshold : float or sequence of float (p,)
            One for all targets, or for each, as targets of different units need, among them joint
            ones whose units are not known.  In units of the target, which f has with Gaussian and
            other measured targets.  With a likelihood of counts, shares or classes f is on the
            scale of its link: the probability of a rate above 5 is that of the threshold
            ``np.log(5)``, and of a share above 0.2 that of ``scipy.special.logit(0.2)``.
        include_noise : bool
            Whether the probability is that of a new observation y, under the model's likelihood,
            rather than of f; the threshold is then in units of the target with all of them.
        trials, exposure, offset : float, array-like (n,) or (n, 1), or str, optional
            As for `predict`.

        Returns
        -------
        probability : (n,) or (n, p)

        Raises
        ------
        SettingError
            If a threshold is no finite number, or there is not one for each target that needs it.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> p = model.predict_exceedance(X, threshold=0.5)
        >>> p.shape, bool(p[np.argmax(np.sin(6 * X[:, 0]))] > 0.9)
        ((50,), True)
        """
        self._check_fitted()
        flags(include_noise=include_noise)
        begin_call(self.solved_.token)
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        X, columns = observed.named(self.solved_, X, columns)
        reading.refuse_other_order(X, **columns)
        beside = observed.checked(self.solved_, columns, include_noise)
        return prediction.exceedance(self.solved_, X, threshold, include_noise, beside)

    @overload
    def predict_average(
        self,
        X: Elsewhere | Fields[Elsewhere],
        weights: Any = ...,
        include_noise: bool = ...,
    ) -> tuple[Elsewhere, Elsewhere]: ...
    @overload
    def predict_average(
        self, X: Stored, weights: Any = ..., include_noise: bool = ...
    ) -> tuple[da.Array, da.Array]: ...
    @overload
    def predict_average(
        self, X: InMemory, weights: Any = ..., include_noise: bool = ...
    ) -> tuple[np.float64 | np.ndarray, np.float64 | np.ndarray]: ...
    def predict_average(
        self, X: Any, weights: Any = None, include_noise: bool = False
    ) -> tuple[Any, Any]:
        """Return mean and standard deviation of the posterior's weighted average over many places.

        The variance of the average of n places is w' C w with their joint covariance C, which is
        computed and summed by tiles of 1,000 places: memory does not grow with n, but about 2 n^2
        entries of C are computed.  `LMA`, `PIC` and `VecchiaGP` condition all places on the
        training rows near any of them, at most 10,000, as with ``return_cov``.  Where the
        hyper-parameters of `VecchiaGP` vary, places are conditioned one after another, and it takes
        n steps.

        Parameters
        ----------
        X : array-like (n, d)
            The places, at most 200,000; ``sample_paths(100).average(X)`` takes any number.  A NumPy
            array gives NumPy numbers; a dask or Zarr array
            gives dask arrays and nothing is computed; an xarray object gives DataArrays, lazy
            where it is chunked.  Places with a missing feature are left out.
        weights : array-like (n,), optional
            Weights of 0 or more, equal by default; they are divided by their sum.  For an xarray
            object a DataArray over some of its dimensions, such as ``np.cos(np.deg2rad(lat))``.
        include_noise : bool
            Whether the spread is that of the average of new observations rather than of f.

        Returns
        -------
        mean, std : numbers, or arrays (p,) for several targets

        Raises
        ------
        InputError
            If there are too many places, or training rows near them, or weights that cannot be
            used.
        SettingError
            If the method has no joint covariance.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> mean, std = model.predict_average(X)
        >>> round(float(mean), 2), bool(0 < std < model.predict(X, return_std=True)[1].mean())
        (0.01, True)
        """
        self._check_fitted()
        flags(include_noise=include_noise)
        reading.refuse_other_order(X, weights=weights)
        begin_call(self.solved_.token)
        self.solved_.refuse_targets_together("an average")
        self.solved_.refuse_transformed("an average", "average sample_paths, which are those of y")
        return averaging.average(self.solved_, X, weights, include_noise)

    def predict_store(
        self,
        source: Any,
        output: Any,
        resume: bool = False,
        *,
        group: str | None = None,
        mask: Path | None = None,
        variance: bool = False,
        quantiles: Sequence[float] | None = None,
        exceedance: float | Sequence[float] | None = None,
        n_samples: int | None = None,
        random_state: int | None = None,
        trials: float | str | None = None,
        exposure: float | str | None = None,
        offset: float | str | None = None,
        encoding: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        clear_lock: bool = False,
        verify: bool = False,
    ) -> Written:
        """Predict a dataset store or a labelled grid into a prediction store, chunk by chunk.

        Of the ``X`` of a dataset store mean and variance (noise included) are written with its
        chunks by one task per chunk, so memory does not grow with the rows and a run that was
        stopped can be repeated.  Of a grid mean and standard deviation are written with its
        coordinates, as a map that ``xarray.open_zarr`` opens.  One run at a time writes an output;
        its lock is an object beside it.  From a csv to a csv, its columns get mean and standard
        deviation of a new observation beside them, all at once at the end; so do the bands of a
        GeoTIFF, see `daskgp.to_geotiff`.

        Parameters
        ----------
        source : str, path, DataArray or Dataset
            Dataset store, which need not have a ``y``; or a grid that has the features by name, a
            Zarr group, a netCDF file or an xarray object, among them a DataTree of which one node
            has the features; or a csv with a column per feature.
        output : str, path or icechunk.Session
            Prediction store to create; or, on this machine, a csv from a csv, or a GeoTIFF (.tif)
            from a grid.  A name that ends in .icechunk is that of an Icechunk repository, and what
            follows after a slash, or ``group``, the group in it.  Into a repository, or a writable
            session of one, a run writes by forks of the session that are merged, and makes one
            commit at its end.
        resume : bool
            Whether to finish an output that was begun with the same model and input.  Where the
            input has grown since, at the end of its rows or of a dimension, what is new is
            predicted.
        group : str, optional
            Group of a session that the predictions are in; default its root.
        mask : str or path, optional
            Variable of the grid; cells where it is NaN, or False or 0 if it holds booleans or
            integers, are not predicted.  Nor are cells without a feature.  Or the path of a
            GeoJSON file, outside whose polygons cells are not predicted.
        variance : bool
            Whether a map has the variance, too.
        quantiles : sequence of float, optional
            Levels of the quantiles of a new observation that a map has along ``quantile``, and a
            csv as columns such as ``y_q0.05``.
        exceedance : float or sequence of float (p,), optional
            Threshold in units of the target, or that of each; a map, or a csv, then has the
            probability that a new observation exceeds it.
        n_samples, random_state : int, optional
            Number and seed of sample paths of f, as `sample_paths` draws them, that the output has
            as ``samples`` along ``sample``.
        trials, exposure, offset : float or str, optional
            What a likelihood takes of each new observation: a number for all, or the name of an
            array of the dataset store, or the column that it comes from, of a variable of the grid
            or of a column of the csv.  Default 1, 1 and 0: shares and rates.
        encoding : mapping, optional
            How a map is stored: ``chunks`` and ``shards``, cells by dimension, and ``dtype``,
            "float64" or "float32".  Default the chunks of the grid, and float64.  A task predicts
            and writes what lies in one stored object, a chunk or a shard.
        wait : float
            Seconds to wait for another run on this output to end.
        clear_lock : bool
            Whether to take over the lock that a dead run left.
        verify : bool
            Whether to check that all of the input that is done is unchanged, not only the chunks
            that were written since.

        Returns
        -------
        written
            Number of rows, or cells, predicted now, and of those that were done already, or in a
            csv have no prediction.

        Raises
        ------
        StoreError
            If the source is neither a dataset store nor a grid, the output exists and ``resume``
            is not set, or it was made by another model or from another input.
        RunError
            If another run is at work on the output, or one that died left its lock.

        Examples
        --------
        >>> import tempfile, numpy as np, daskgp, xarray
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> grid = model.make_grid({"x0": 0.25})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = model.predict_store(grid, f"{folder}/map.zarr")
        ...     predictions = xarray.open_zarr(f"{folder}/map.zarr").load()
        >>> predictions["mean"].dims, predictions.sizes["x0"]
        (('x0',), 5)
        """
        self._check_fitted()
        begin_call(self.solved_.token)
        asked = variance, quantiles, exceedance, n_samples, random_state
        source = outputs.source_of(source, self.solved_)
        wanted = outputs.wanted(self.solved_, *asked)
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = outputs.checked_beside(self.solved_, **columns)
        given = resume, None, verify, text_of(mask), wanted, self._windows
        job = Job(self.solved_, source, outputs.place_of(output, group), *given, beside=beside)
        job = job._replace(notes=self._fitted.seen)
        if encoding is not None:
            job = job._replace(encoding=encodings.checked(encoding))
        executor = Executor.current(self.progress, self.solved_.device)
        is_csv = to_csv.is_csv(output)
        if not (is_csv or to_file.is_file(output)):
            return to_store.write(job, executor, wait, clear_lock)
        if wait or clear_lock:
            raise SettingError("wait and clear_lock are for the lock of a store: a file has none")
        with scratch_rows(self.store) as url:
            by_way_of = (
                to_csv.stored(job, url, self.progress) if is_csv else to_file.stored(job, url)
            )
            with by_way_of as inner:
                return to_csv.without_prediction(inner, to_store.write(inner, executor))

    def is_predicted(
        self,
        source: Any,
        output: Any,
        *,
        group: str | None = None,
        mask: Path | None = None,
        variance: bool = False,
        quantiles: Sequence[float] | None = None,
        exceedance: float | Sequence[float] | None = None,
        n_samples: int | None = None,
        random_state: int | None = None,
        trials: float | str | None = None,
        exposure: float | str | None = None,
        offset: float | str | None = None,
    ) -> bool:
        """Return True if a prediction store holds the predictions of all of its input.

        `predict_store` with ``resume=True`` then has nothing to do, and needs no cluster.

        Parameters
        ----------
        source, output, group, mask, variance, quantiles, exceedance, n_samples, random_state, \
trials, exposure, offset
            As for `predict_store`, which raises the same errors; the output need not exist.

        Examples
        --------
        >>> import tempfile, numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> grid = model.make_grid({"x0": 0.25})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     before = model.is_predicted(grid, f"{folder}/map.zarr")
        ...     _ = model.predict_store(grid, f"{folder}/map.zarr")
        ...     before, model.is_predicted(grid, f"{folder}/map.zarr")
        (False, True)
        """
        self._check_fitted()
        asked = variance, quantiles, exceedance, n_samples, random_state
        source = outputs.source_of(source, self.solved_)
        wanted = outputs.wanted(self.solved_, *asked)
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = outputs.checked_beside(self.solved_, **columns)
        place = outputs.place_of(output, group)
        job = Job(self.solved_, source, place, mask=text_of(mask), outputs=wanted, beside=beside)
        return to_store.is_done(job)

    def make_grid(
        self,
        resolution: Mapping[str, float] | None = None,
        extent: Mapping[str, Any] | None = None,
        like: Any = None,
    ) -> Dataset:
        """Return a grid to predict on, whose dimensions are the features.

        Parameters
        ----------
        resolution : mapping of str to float, optional
            Steps by feature.
        extent : mapping of str to (low, high) or one value, optional
            Ends of axes, dates for times, such as "2021-03-04" or 20210304; an axis begins at the
            lower end and does not go beyond the other.  Others have the multiples of their step
            that cover the training data; longitudes may go across the date line or all round.  A
            feature without a step has a single value, ``{"depth": (10, 10)}``.
        like : str, path, DataArray or Dataset, optional
            Grid, or its address, whose coordinates are the axes of features that neither
            ``resolution`` nor ``extent`` names, and whose variables are their values, such as an
            elevation.

        Returns
        -------
        grid : xarray.Dataset
            Of coordinates, and of the variables of ``like`` that are features.

        Raises
        ------
        SettingError, InputError
            If nothing says what the axis of a feature is.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(0, 10, (60, 2))
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, X[:, 0])
        >>> grid = model.make_grid({"x0": 2.5, "x1": 5}, extent={"x0": (0, 10), "x1": (0, 10)})
        >>> dict(grid.sizes)
        {'x0': 5, 'x1': 3}
        >>> model.predict(grid).dims
        ('x0', 'x1')
        """
        self._check_fitted()
        names = self.solved_.feature_names
        known = self.solved_.ranges
        pairs = zip(names, known, strict=True) if known else ()
        ranges = {name: pair for name, pair in pairs if pair is not None}
        units = self.solved_.feature_units
        sphere = tuple(names[j] for j in self.solved_.geographic or ())
        more = units, sphere, self.solved_.reference
        return axes.make(names, resolution or {}, extent or {}, ranges, like, *more)

    def needs_cluster(
        self,
        source: Any,
        output: Any,
        *,
        group: str | None = None,
        mask: Path | None = None,
        variance: bool = False,
        quantiles: Sequence[float] | None = None,
        exceedance: float | Sequence[float] | None = None,
        n_samples: int | None = None,
        random_state: int | None = None,
        trials: float | str | None = None,
        exposure: float | str | None = None,
        offset: float | str | None = None,
        verify: bool = False,
        chosen: bool = False,
    ) -> bool:
        """Return whether `predict_store` has so much to do that it pays to start a cluster.

        That takes some seconds, in which this process predicts a few thousand rows itself.

        Parameters
        ----------
        source, output, group, mask, variance, quantiles, exceedance, n_samples, random_state, \
trials, exposure, offset, verify
            As for `is_predicted` and `predict_store`.
        chosen : bool
            Whether a cluster is wanted for any work at all.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> model.needs_cluster(model.make_grid({"x0": 0.25}), "map.zarr")
        False
        """
        self._check_fitted()
        asked = variance, quantiles, exceedance, n_samples, random_state
        source = outputs.source_of(source, self.solved_)
        wanted = outputs.wanted(self.solved_, *asked)
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = outputs.checked_beside(self.solved_, **columns)
        given = True, None, verify, text_of(mask), wanted
        job = Job(self.solved_, source, outputs.place_of(output, group), *given, beside=beside)
        return to_store.needs_cluster(job, chosen)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | None = 0, include_noise: bool = False
    ) -> np.ndarray:
        """Draw samples from the joint posterior at X, for rows in memory.

        It is that of ``return_cov``; `sample_paths` draws functions, for any number of rows.

        Returns
        -------
        samples : ndarray (n, n_samples), or (n, p, n_samples) for several targets

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> model.sample_y(X[:4], n_samples=3, random_state=0).shape
        (4, 3)
        """
        self._check_fitted()
        begin_call(self.solved_.token)
        whole("n_samples", n_samples, 1)
        mean, cov = prediction.joint(self.solved_, X, include_noise)
        try:
            rng = np.random.default_rng(random_state)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"random_state={shown(random_state)}: a whole number of at least 0 is needed"
            ) from error
        flat = mean.ndim == 1
        if cov.ndim == 4:  # of all targets together
            mean, cov = mean.reshape(-1), cov.reshape(mean.size, mean.size)
        means, covs = (mean[:, None], cov[:, :, None]) if mean.ndim == 1 else (mean, cov)
        draws = np.empty((*means.shape, n_samples))
        for j in range(means.shape[1]):
            factor, _ = linalg.cholesky(np.ascontiguousarray(covs[:, :, j]), jitter=1e-10)
            draws[:, j] = means[:, [j]] + factor @ rng.standard_normal((len(means), n_samples))
        if not flat and mean.ndim == 1:
            draws = draws.reshape(-1, self.solved_.n_targets, n_samples)
        outer = self.solved_.outer(include_noise)
        draws = np.moveaxis(outer.outward(np.moveaxis(draws, 1, -1)), -1, 1)
        return draws[:, 0] if flat else draws

    def sample_paths(
        self,
        n_samples: int = 1,
        random_state: int | None = 0,
        *,
        n_frequencies: int | None = None,
    ) -> Paths:
        """Draw functions from the posterior of f, to be evaluated at any number of places.

        A path is a draw of the prior by random features of the kernel, corrected by what the
        training data say (Wilson et al. 2020): at the inducing inputs, or for `LMA`, `PIC`,
        `VecchiaGP`, `CaGP` and `ExactGP` by the mean that the method would predict from targets
        drawn of the prior, which takes a pass over the training rows.  Paths of these have the
        covariance of the error of the method's mean.  Where hyper-parameters vary, draws of the
        prior have the spectrum that the kernel has at each place.

        Parameters
        ----------
        n_samples : int
            Number of functions S.
        random_state : int, optional
            Seed; None draws another one each time.  With the same seed the first functions are the
            same whatever their number, up to rounding.
        n_frequencies : int, optional
            Number m of random frequencies of each term of the kernel, default 2,048.  Prior
            covariances are missed by up to v / sqrt(m), as a standard deviation, with v the
            variance of the term: 2.2 % of it.  All functions share them.

        Returns
        -------
        paths : callable
            ``paths(X)`` gives (n, S), or (n, p, S) for several targets: as lazy as X is, and the
            same bits for any chunks and workers.  On a grid the last dimension is ``sample``.

        Raises
        ------
        SettingError
            If the method, or the kernel, has no sample paths.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> paths = model.sample_paths(3)
        >>> paths(X).shape, bool((paths(X)[:5] == paths(X[:5])).all())
        ((50, 3), True)
        """
        self._check_fitted()
        executor = Executor.current(self.progress, self.solved_.device)
        windows = partial(self._windows, executor)
        return sampling.draw(
            self.solved_, n_samples, random_state, n_frequencies, executor, windows
        )

    def _windows(self, executor: Executor) -> Any:
        """Return the rounds that the posterior of a local method was solved on; None for others."""
        return None

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        y_variance: Any = None,
        trials: Any = None,
        exposure: Any = None,
        offset: Any = None,
        lower: Any = None,
        upper: Any = None,
        features: Any = None,
        mask: Path | None = None,
    ) -> float:
        """Return the coefficient of determination R² of the mean at X against y; 1 is perfect.

        With a likelihood of classes it is the share of right ones.

        Parameters
        ----------
        X, y : array-like (n, d) and (n,) or (n, p), or a source and names of targets
            Rows, or columns of what `convert` takes by their names, as for ``fit``.
        sample_weight : float or array-like (n,) or (n, 1), or str, optional
            Weight w of each row, or its column; all weigh the same by default.
        y_variance : float or array-like (n,), (n, 1) or (n, p), or str, optional
            Known error variance e of each target, for Gaussian noise of variance s: rows weigh by
            the inverse of their noise variances, s / w + e.
        trials, exposure, offset, lower, upper : float, array-like (n,) or (n, 1), or str, optional
            What the likelihood takes of each row beside y, as for ``fit``; default those of a
            dataset store that y lies in.
        features, mask : sequence of str and str or path, optional
            As for `convert`, where ``y`` is a name; the features of the model by default.

        Raises
        ------
        InputError
            If rows or weights cannot be used, or nothing is left to score.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, np.sin(6 * X[:, 0]))
        >>> bool(model.score(X, np.sin(6 * X[:, 0])) > 0.99)
        True
        """
        self._check_fitted()
        noise = {"y_variance": y_variance, "sample_weight": sample_weight}
        columns = {"trials": trials, "exposure": exposure, "offset": offset}
        beside = named_beside(**noise, **columns, lower=lower, upper=upper)
        source = named.columns_of(X, y, features, mask, beside, fill_values=self.fill_values)
        own = self.solved_.own_columns
        if source is not None:
            source = source.like(
                self.solved_.columns, self.solved_.feature_units, self.solved_.target_names
            )
            own = tuple(ARGUMENTS)
        else:
            data.warn_of_packed(y=y)
            reading.refuse_other_order(X, y=y, **{ARGUMENTS[k]: a for k, a in beside.items()})
        with given_rows(source, X, y, beside, self.store, self.progress) as (X, y, given):
            stored = {k: reading.from_zarr(a) for k, a in data.beside_in_store(y, own).items()}
            known = stored | {k: reading.lazily(a) for k, a in given.items() if a is not None}
            self._fitted.refuse_without_columns(known, given)
            known = {k: a for k, a in known.items() if a is not False}
            names = self.solved_.target_names
            y, known = named_targets.by_name(y, known, names, some=True)
            named_targets.refuse_other_number(y, names)
            return self._score(X, reading.lazily(y), known)

    def _score(self, X: Any, y: Any, beside: Beside) -> float:
        posterior, likelihood = self.solved_, self.solved_.likelihood
        executor = Executor.current(self.progress, posterior.device)
        compared = partial(scoring.compared, posterior, X, y, fill_values=self.fill_values)
        coded, classes = False, False
        columns = {name: a for name, a in beside.items() if name not in GIVEN}
        columns = observed.checked(posterior, columns, True)
        if likelihood is not None and not likelihood.standardised:
            coded, classes = True, likelihood.classes
            if not columns:
                wrong = partial(_unobservable, likelihood)
                likelihood.refuse(int(compared(y, wrong, executor)))
        # a mean that depends on the variance depends on the noise
        noisy = any(layer.needs_variance for layer in posterior.outer(False).layers)
        if columns:
            mean = observed.predicted(posterior, X, False, None, columns)
        else:
            mean = self.predict(X, include_noise=coded or noisy)
        if likelihood is not None and columns:
            impossible = partial(observed.impossible, likelihood, columns, mean)
            likelihood.refuse(int(compared(mean, impossible, executor)))
        weight = weighing.weights(posterior, mean, *map(beside.get, (WEIGHT, Y_VARIANCE)))
        errors: tuple[Callable[..., Any], ...] = weighing.observed_nmse, weighing.nmse
        if classes:
            errors = _wrong_classes, weighing.wrong
        error = errors[weight is not None]
        if columns:  # a missing one misses y
            error = partial(observed.error_of_known, error)
        return 1.0 - compared(mean, error, executor, weight)

    def log_marginal_likelihood(self) -> float:
        """Return the log evidence of the training targets in their own units, or the best bound.

        With a trend that is integrated over it is the restricted one, of contrasts that have none.

        Raises
        ------
        SettingError
            If the method has no evidence, or rows have bounds.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> y = np.sin(6 * X[:, 0])
        >>> rough = daskgp.ExactGP("matern12", optimizer=None).fit(X, y)
        >>> smooth = daskgp.ExactGP("rbf", optimizer=None).fit(X, y)
        >>> bool(smooth.log_marginal_likelihood() > rough.log_marginal_likelihood())
        True
        """
        self._check_fitted()
        if self.objective_ is None:
            raise SettingError(
                f"{type(self).__name__} has no evidence, because it is not "
                "trained: compare fits by their scores, such as "
                "daskgp.cross_validate"
            )
        if not self.solved_.method.has_evidence:
            raise SettingError(f"{type(self).__name__} has no evidence: use objective_")
        if bounds := [name for name in self.solved_.own_columns if name in ("lower", "upper")]:
            raise SettingError(
                f"rows with {' and '.join(bounds)} have densities in the unit of y and "
                "probabilities, which have none: compare fits to the same rows by objective_"
            )
        scale = self.solved_.scaling
        slopes = 0.0 if scale.transform is None else scale.transform.log_slopes
        trends = [one.scaling.trend for one in self.solved_.each or (self.solved_,)]
        lost = np.array([0 if trend is None else trend.n_functions for trend in trends])
        free = self._fitted.values - lost
        return self.objective_ - float(free @ np.log(scale.y_scale)) + slopes

    @property
    def hyperparameters_(self) -> hyperparameter_table.Table:
        """Hyper-parameters in the units of the data, with standard errors where they are known.

        The errors come from the curvature of the objective on the rows that were trained on; those
        of the likelihood's own parameters from that of the bound for the f that was found, whose
        uncertainty they leave out.  Separate targets that have rows of their own have each theirs,
        named ``lengthscale[x0] of zinc``.
        """
        names, fits = self.solved_.target_names, self._fitted.each or (self._fitted,)
        each = [
            hyperparameter_table.table(
                fit.posterior, fit.errors, fit.likelihood_errors, history=fit.history
            )
            for fit in fits
        ]
        return hyperparameter_table.of_targets(names, each) if self._fitted.each else each[0]

    @property
    def n_iter_(self) -> int:
        """Iterations of the search for hyper-parameters; 0 without one."""
        return len(self.history_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # such rows are left out, and predicted as NaN
        tags.target_tags.multi_output = True
        return tags


def _wrong_classes(y: Any, mean: Any) -> Any:
    """Return the share of classes 0 and 1 that are not the likelier one."""
    return metrics.mae(y, np.where(np.isnan(mean), np.nan, mean > 0.5))


def _unobservable(likelihood: Likelihood, y: Any, _: Any) -> Any:
    """Return how many values the likelihood cannot produce."""
    y = y if isinstance(y, da.Array) else np.asarray(y)
    reading.check_kind("y", y)
    return (~likelihood.supports(y)).sum()


@contextmanager
def given_rows(
    columns: named.Named | None,
    X: Any,
    y: Any,
    beside: Beside,
    store: Path | None,
    progress: ShowProgress,
) -> Iterator[tuple[Any, Any, Beside]]:
    """Yield rows and what is beside y: those of named columns while they are converted, if any."""
    if columns is None:
        yield X, y, beside
        return
    none = {name: False for name, one in beside.items() if one is False}
    with scratch_rows(store) as url, columns.converted(url, progress) as (X, y, _):
        yield X, y, none
