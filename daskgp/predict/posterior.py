"""A fitted method as one value: all that prediction needs, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import aligned
from daskgp.data import checksum, feature_units, moments, reading
from daskgp.data.reading import check_table, unmasked
from daskgp.data.regressor import Known
from daskgp.data.rows import Rows, names_differ
from daskgp.data.stores.remote import Carried
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.registry import describe, identity
from daskgp.kernels.units import in_users_units as kernel_in_users_units
from daskgp.likelihoods import Likelihood, by_name
from daskgp.models.columns import Columns
from daskgp.models.fills import Fills
from daskgp.models.method import Method
from daskgp.models.scaling import Scaling, usable_rows
from daskgp.models.transform import Transform
from daskgp.models.trend import NONE, Trend, posterior
from daskgp.models.values import TILE_ROWS, Moments, Theta, Want, leaves, move
from daskgp.predict.law import Law
from daskgp.predict.tails import Tails
from daskgp.predict.training_rows import Fitted, NewRows, TrainingRows, cached, in_tiles
from daskgp.runtime import device_memory
from daskgp.typing import Device

DENSE_ROWS = 20_000
"""Maximum number of rows n of a joint covariance (n, n)."""
ROUNDING = 1e-6
"""Share of the prior variance below zero up to which a variance is rounding, and clipped."""


@dataclass(frozen=True)
class Origin:
    """Model store that a fitted method lies in, and the checksum of its content."""

    url: str
    checksum: str
    carried: Carried | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Solved:
    """A fitted method with all that prediction needs; one node in any graph."""

    model: Method
    theta: Theta
    state: Any
    scaling: Scaling
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    vector_target: bool
    dtype: str = "float64"
    device: Device = "cpu"
    kept: TrainingRows | None = None
    target_units: tuple[str, ...] = ()
    origin: Origin | None = None
    geographic: tuple[int, int] | None = None
    feature_units: tuple[str, ...] = ()
    known: Known | None = None
    spread: float = 1.0
    fills: Fills = ()
    tails: Tails | None = None

    def __dask_tokenize__(self) -> str:
        return self.token

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(value) for name, value in state.items()})

    @cached_property
    def token(self) -> str:
        """Checksum of all that predictions depend on."""
        theta, parts = self.theta, enumerate(leaves(self.state))
        arrays = {f"state_{i}": np.asarray(a) for i, a in parts if np.shape(a) != NONE.shape}
        arrays |= {k: np.asarray(v) for k, v in self.scaling.arrays.items()}
        if theta.inputs is not None:
            arrays["inputs"] = theta.inputs
        if self.kept is not None:
            arrays |= self.kept.arrays()
        settings: dict[str, Any] = {
            "model": [self.model.name, repr(self.model)],
            "kernel": _identity(theta.kernel),
            "noise_variance": theta.noise_variance,
            "names": [self.feature_names, self.target_names],
            "dtype": self.dtype,
            "device": self.device,
        }
        if self.kept is not None:
            settings["rows"] = self.kept.token
        if self.transform is not None:
            settings["transform"] = self.transform.to_dict()
        if self.geographic is not None:
            settings["geographic"] = list(self.geographic)
        more = {"units": list(self.feature_units), "fills": [list(own) for own in self.fills]}
        settings |= {name: said for name, said in more.items() if said}
        if self.trend is not None:
            settings["trend"] = list(self.trend.columns)
            arrays |= {f"trend_{name}": array for name, array in self.trend.arrays.items()}
        if self.known is not None:
            settings["regressor"] = self.known.regressor.token
        if self.spread != 1.0:
            settings["spread"] = self.spread
        if self.tails is not None:
            settings["tails"] = self.tails.to_dict()
        return checksum(arrays, settings)

    def labelled(self, data: Any, grid: Any, what: str, include_noise: bool) -> Any:
        """Return the ``what`` ("mean", "std", "variance") in ``data`` as a DataArray on a grid."""
        targets = self.target_names
        description = moments.describe(what, targets, self.target_units, include_noise)
        return grid.wrap(data, targets, self.vector_target, what, description)

    @property
    def n_features(self) -> int:
        """Number of columns that X must have."""
        return len(self.feature_names)

    @cached_property
    def columns(self) -> Columns:
        """Columns that X must have, and those of the inputs that the method sees."""
        return Columns(self.feature_names, self.geographic, self.fills[: self.n_features])

    @property
    def users_kernel(self) -> Kernel:
        """Kernel of the columns of X, in their units and those of y; in km on a sphere."""
        own = kernel_in_users_units(self.theta.kernel, len(self.columns), self.scaling.size)
        return self.columns.users_kernel(own)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        """Return the inputs in the model's units at rows X (n, d) in the user's."""
        return np.asarray(self.scaling.inputs(self.columns.inputs(np.asarray(X, np.float64))))

    @property
    def n_targets(self) -> int:
        """Number of columns of the mean."""
        return len(self.target_names)

    def refuse_spread(self, include_noise: bool) -> None:
        """Raise SettingError if the method has no variance of f, or of y with noise."""
        missing = self.model.why_no_variance()
        if missing:
            raise SettingError(missing)
        if not include_noise and self.model.noisy:
            raise SettingError(
                "experts with noise_in_experts=True give the spread of new observations alone: "
                "ask for include_noise=True, or fit with noise_in_experts=False"
            )

    def refuse_joint(self, include_noise: bool) -> None:
        """Raise SettingError if the method has no joint covariance of f, or of y with noise."""
        missing = self.model.why_no_joint()
        if missing:
            raise SettingError(missing)
        if include_noise and self.likelihood is not None:
            raise SettingError(
                f"a joint covariance of new observations of likelihood {self.likelihood.name!r} "
                "is not available: leave include_noise out for the covariance of f"
            )

    @cached_property
    def likelihood(self) -> Likelihood | None:
        """Likelihood of y given f; None if y is f and Gaussian noise."""
        name = self.model.likelihood_name
        return None if name == "gaussian" else by_name(name, self.state.likelihood)

    @property
    def noise(self) -> np.ndarray:
        """Noise variance (p,) that predictions of a row of weight 1 have, in y's units squared."""
        return np.asarray(self.theta.noise_variance * (self.spread * self.scaling.y_scale) ** 2)

    @property
    def transform(self) -> Transform | None:
        """Transform of the targets, if there is one."""
        return self.scaling.transform

    @property
    def trend(self) -> Trend | None:
        """Trend whose coefficients are integrated over, or known, if there is one."""
        return self.scaling.trend

    @cached_property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (r, p) and a root (r, r) of the covariance of a trend's coefficients.

        They are those of scaled targets, of which the least squares fit is taken.
        """
        assert self.trend is not None
        return posterior(np.asarray(self.state.trend), self.trend.n_functions)

    @property
    def scaling_of_mean(self) -> Scaling:
        """Scaling whose trend has the posterior mean of its coefficients."""
        if self.trend is None or not self.trend.n_functions:
            return self.scaling
        own = self.coefficients[0] * self.scaling.y_scale
        return replace(self.scaling, trend=self.trend.given(own))

    def refuse_transformed(self, what: str, instead: str) -> None:
        """Raise SettingError if targets are transformed, for what would be of these."""
        if self.transform is not None:
            raise SettingError(
                f"{what} is not available for targets with "
                f"target_transform={self.transform.kind!r}: {instead}"
            )

    def law(self, observed: bool) -> Law:
        """Return the law of f, or of a new observation, given the Gaussian that is predicted."""
        likelihood = self.likelihood if observed else None
        unit = 1.0 if likelihood is None else self.scaling.y_scale
        return Law(likelihood, unit, self.transform, self.tails if observed else None)

    def usable(self, X: np.ndarray) -> np.ndarray:
        """Return the mask (n,) of the rows of X (n, d) that can be predicted."""
        return usable_rows(self.scaled(X))

    def grouped(self, X: np.ndarray) -> np.ndarray | None:
        """Return the order (n,) in which rows X (n, d) are best predicted; None for any."""
        if self.kept is None:
            return None
        return self.kept.order(self.columns.inputs(X), self.usable(X))

    def moments(
        self, X: np.ndarray, want: Want, include_noise: bool = False, gaussian: bool = False
    ) -> Moments:
        """Return the posterior at X (n, d) in the user's units; NaN for rows with missing values.

        ``gaussian`` asks for those of the Gaussian that a law is given by: of f where the
        likelihood is another one, and of the transformed y.  A covariance always is.

        Mean and variance are computed tile by tile, so memory beyond the result is that of a tile.
        """
        X = unmasked(X)
        if want == "covariance":
            self.refuse_joint(include_noise)
            if len(X) > DENSE_ROWS:
                raise InputError(
                    f"a joint covariance of {len(X)} rows needs {8e-9 * len(X) ** 2:.0f} GB: "
                    f"ask for at most {DENSE_ROWS} rows at once, or for return_std"
                )
            return self._covariance(X, include_noise)
        mean = np.empty((len(X), self.n_targets))
        variance = np.empty_like(mean) if want == "variance" else None
        step = max(len(X), 1) if self.kept is not None and self.kept.together else TILE_ROWS
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            tile = self._tile(X[rows], want, include_noise, gaussian)
            mean[rows] = tile.mean
            if variance is not None:
                variance[rows] = tile.variance
        return Moments(mean, variance)

    def _tile(self, X: np.ndarray, want: Want, include_noise: bool, gaussian: bool) -> Moments:
        other = self.likelihood is not None
        observed, transform = include_noise and other and not gaussian, self.transform
        if gaussian:
            transform = None
        if observed or transform is not None:  # their means depend on the variance
            want = "variance"
        given, X = X, self.columns.inputs(X)
        scaled = self.scaling.inputs(np.asarray(X, np.float64))
        usable = usable_rows(scaled)
        scaled[~usable] = 0.0
        predicted = self._scaled_moments(NewRows(X, scaled, usable), want)
        if predicted.variance is not None:
            variance = self._checked(predicted.variance, scaled)
            predicted = predicted._replace(variance=variance)
        predicted = self._with_trend(predicted, given, usable)
        if predicted.variance is not None:
            variance = predicted.variance
            adds = include_noise and not predicted.noisy and not other
            variance = (variance + (self.theta.noise_variance if adds else 0.0)) * self.spread**2
            predicted = predicted._replace(variance=variance)
        if observed:
            assert self.likelihood is not None
            mean, variance = self.likelihood.response(predicted.mean, predicted.variance)
            predicted = predicted._replace(mean=mean, variance=variance)
        predicted = self.scaling.moments(predicted, scaled)
        if transform is not None:
            assert predicted.variance is not None
            unbounded = np.isinf(predicted.variance)  # and so are moments of what is transformed
            finite = np.where(unbounded, 0.0, predicted.variance)
            mean, variance = transform.moments(predicted.mean, finite)
            mean, variance = (np.where(unbounded, np.inf, part) for part in (mean, variance))
            predicted = predicted._replace(mean=mean, variance=variance)
        if self.known is not None:
            predicted = predicted._replace(mean=predicted.mean + self.known.regressor(given))
        for values in (predicted.mean, predicted.variance):
            if values is not None:
                values[~usable] = np.nan
        return predicted

    def _covariance(self, X: np.ndarray, include_noise: bool) -> Moments:
        given, X = X, self.columns.inputs(X)
        scaled = self.scaling.inputs(np.asarray(X, np.float64))
        if not usable_rows(scaled).all():
            raise InputError(
                "X has missing or infinite values, or some that are too large to be squared: a "
                "joint covariance needs none"
            )
        new = NewRows(X, scaled, np.ones(len(X), bool))
        predicted = self._scaled_moments(new, "covariance")
        covariance = np.asarray(predicted.covariance, np.float64)
        diagonal = np.diag_indices(len(X))
        covariance[diagonal] = self._checked(covariance[diagonal], scaled)
        covariance[diagonal] += self.theta.noise_variance if include_noise else 0.0
        found = self.jointly(predicted._replace(covariance=covariance), given, scaled)
        if self.known is None:
            return found
        return found._replace(mean=found.mean + self.known.regressor(given))

    def jointly(self, predicted: Moments, X: np.ndarray, scaled: np.ndarray) -> Moments:
        """Return a joint posterior with the trend, in the user's units, without a regressor.

        All of this is linear in X and ``scaled``, so those of an average of places may be given.
        """
        predicted = self._with_trend(predicted, X, np.ones(len(X), bool))
        wider = np.asarray(predicted.covariance) * self.spread**2
        return self.scaling.moments(predicted._replace(covariance=wider), scaled)

    def _with_trend(self, predicted: Moments, X: np.ndarray, usable: np.ndarray) -> Moments:
        """Return the posterior of a trend and the rest, from that of targets and trend functions.

        With a = h - E h, where E h is what the method predicts of the functions themselves, the
        mean gains a' B and the covariance a G a'.
        """
        trend, p = self.trend, self.n_targets
        if trend is None:
            return predicted
        values = np.where(usable[:, None], np.asarray(X, np.float64)[:, trend.columns], 0.0)
        own, off = np.asarray(predicted.mean, np.float64), trend.off(values) & usable
        if off.any() and (predicted.covariance is not None or not trend.n_functions):
            self.refuse_unknown_trend(np.asarray(X, np.float64)[usable])
        mean = own[:, :p] + trend.fitted(values) / self.scaling.y_scale
        if not trend.n_functions:
            return predicted._replace(mean=mean)
        apart, (B, root) = trend.functions(values) - own[:, p:], self.coefficients
        spread, (variance, covariance) = apart @ root, predicted[1:3]
        added = np.where(off, np.inf, (spread**2).sum(axis=1))  # the prior of coefficients is flat
        return predicted._replace(
            mean=mean + apart @ B,
            variance=None if variance is None else variance + added,
            covariance=None if covariance is None else covariance + spread @ spread.T,
        )

    def refuse_unknown_trend(self, X: np.ndarray) -> None:
        """Raise InputError for places off the plane that collinear columns of a trend lie in."""
        trend = self.trend
        off = 0 if trend is None else int(trend.off(X[:, trend.columns]).sum())
        if trend is None or not off:
            return
        columns = [self.feature_names[j] for j in trend.columns]
        groups = "; ".join(", ".join(repr(columns[j]) for j in g) for g in trend.collinear())
        raise InputError(
            f"columns of the trend are linear combinations of one another in the training rows "
            f"({groups}), but not at {off} of {len(X)} places, where nothing is known of the "
            "trend: leave one of them out of mean=, or ask for the standard deviation of each "
            "place, which is infinite there"
        )

    def _scaled_moments(self, new: NewRows, want: Want) -> Moments:
        device, n = backend.resolve_device(self.device), len(new.X)

        def work(most: int) -> Moments:
            fit = self.fitted(device)
            if self.kept is None:
                return in_tiles(fit, None, new.scaled, want, most)
            return self.kept.moments(fit, new, want, most)

        name, remedy = f"predictions of {self.model.name}", self._room()
        if want == "covariance":
            what = f"a joint covariance of {n} rows"
            return device_memory.whole(lambda: work(max(n, 1)), device, what, remedy)
        return device_memory.shrinking(work, min(TILE_ROWS, max(n, 1)), device, name, remedy)

    def fitted(self, device: str) -> Fitted:
        """Return the method with its hyper-parameters and state on a device, where they stay."""
        theta, state = self.theta, self.state
        if device != "cpu":
            key: tuple[str, tuple[int, ...]] = (self.token, (-1,))  # no block has this number
            on_device = cached(key, lambda: _There.of(theta, state, device), device)
            theta, state = on_device.theta, on_device.state
        return Fitted(self.model, theta, state, self.scaling, self.token, device)

    def _room(self) -> str:
        """Return advice on how predictions need less of a GPU's memory."""
        less = TrainingRows.fewer if self.kept is None else self.kept.fewer
        return f"fit again with {less}, {device_memory.ANOTHER}"

    def prior(self, X: np.ndarray) -> float:
        """Return the largest prior variance of f at rows X (n, d), in the model's units."""
        return float(np.max(self.theta.kernel.diag(self.scaled(X)), initial=0.0))

    def _checked(self, variance: np.ndarray, scaled: np.ndarray) -> np.ndarray:
        prior = float(np.max(self.theta.kernel.diag(scaled), initial=0.0))
        return self.sound(variance, prior)

    def sound(self, variance: np.ndarray, prior: float) -> np.ndarray:
        """Return variances in the model's units; those that rounding makes negative are clipped.

        Raise NumericalError for any beyond rounding, relative to the largest prior variance.
        """
        variance = np.asarray(variance, np.float64)
        tolerance = ROUNDING * prior
        worst = float(np.min(variance, initial=0.0))
        if not worst >= -tolerance:  # or NaN
            raise NumericalError(
                f"a predictive variance of {worst:.3g} is below zero beyond rounding (prior "
                f"{prior:.3g}): fit again with {self.model.steadier()}"
            )
        return np.maximum(variance, 0.0)


@dataclass(frozen=True, eq=False)
class _There:
    """Hyper-parameters and state that predictions need, on a device."""

    theta: Theta
    state: Any
    nbytes: int

    @classmethod
    def of(cls, theta: Theta, state: Any, device: str) -> _There:
        moved = move(theta, device), move(state, device)
        inputs = 0 if theta.inputs is None else theta.inputs.nbytes
        return cls(*moved, inputs + sum(getattr(array, "nbytes", 0) for array in leaves(state)))


def _identity(kernel: Kernel) -> Any:
    """Return the description of a kernel, or text that identifies one without."""
    try:
        return describe(kernel)
    except SettingError:
        return identity(kernel)


def check_columns(solved: Solved, X: Any, names: tuple[str, ...] | None) -> None:
    """Raise InputError unless X has the columns of the training data."""
    fitted = solved.feature_names
    check_table(X)
    if X.shape[1] != len(fitted):
        name = solved.model.name.replace("-", "_")
        raise InputError(
            f"X has {X.shape[1]} features, but {name} is expecting {len(fitted)} "
            f"features as input: {', '.join(fitted)}"
        )
    if names is not None and names_differ(names, fitted):
        seen, wanted = next((a, b) for a, b in zip(names, fitted, strict=True) if a != b)
        raise InputError(
            f"X has feature {seen!r} where the model was fitted with {wanted!r}: "
            f"give the columns {', '.join(fitted)} in this order"
        )


def refuse_other_units(solved: Solved, rows: Rows) -> None:
    """Raise InputError for rows with features in other units than those of the training data."""
    names, wanted = solved.feature_names, solved.feature_units
    numbers = partial(reading.numbers_of, rows.X)
    units = feature_units.with_dates(rows.feature_units, wanted, numbers)
    how = feature_units.conversions(names, units, wanted, "X")
    other = next((j for j, one in enumerate(how) if one is not None), None)
    if other is not None:
        raise InputError(
            f"feature {names[other]!r} of X is in {units[other]!r}, but the model was fitted "
            f"with it in {solved.feature_units[other]!r}: convert it (daskgp convert --like)"
        )


def in_users_units(solved: Solved) -> np.ndarray:
    """Return the inducing or support inputs (m, d) of a fit, in the units of X."""
    Z = solved.theta.inputs
    assert Z is not None
    return solved.columns.places(solved.scaling.places(Z))
