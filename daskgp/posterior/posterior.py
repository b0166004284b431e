"""A fitted method as one value: all that prediction needs, in the user's units."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import aligned
from daskgp.data import checksum, expected, feature_units, moments, reading
from daskgp.data.categories import Levels, coded, recodings
from daskgp.data.feature_units import Change
from daskgp.data.reading import check_table, unmasked
from daskgp.data.regressor import Known
from daskgp.data.rows import Rows, column_names, names_differ, unnamed
from daskgp.data.stores.remote import Carried
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import averages
from daskgp.kernels.base import Unit
from daskgp.kernels.categories import with_new_level
from daskgp.kernels.registry import describe, identity
from daskgp.kernels.units import in_users_units as kernel_in_users_units
from daskgp.likelihoods import Likelihood, by_name
from daskgp.models.categories import shown
from daskgp.models.columns import Columns
from daskgp.models.fills import Fills, lonely, united, without
from daskgp.models.method import Method
from daskgp.models.scaling import Scaling, usable_rows
from daskgp.models.trend import NONE
from daskgp.models.values import TILE_ROWS, Moments, Theta, Want, leaves, move, variances
from daskgp.posterior.layers import (
    Fade,
    Layer,
    Noise,
    Parts,
    Places,
    RegressorLayer,
    Response,
    Stretch,
    TargetNoise,
    TrendLayer,
    chain,
)
from daskgp.posterior.layers.chain import Chain, Outer
from daskgp.posterior.layers.gaussian import of_f
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.posterior.training_rows import Fitted, NewRows, TrainingRows, cached, in_tiles
from daskgp.runtime import device_memory
from daskgp.runtime.process import warn_in_call
from daskgp.typing import Device, UnseenName

L = TypeVar("L", bound=Layer)

VARIABLE = "target"
"""Name of the column that says what target a row is of, where no feature has it."""

DENSE_ROWS = 20_000
"""Maximum number of rows n of a joint covariance (n, n)."""
FEW = 8
"""Most features whose choice from a data frame a message writes out."""
ROUNDING = 1e-6
"""Share of the prior variance below zero up to which a variance is rounding, and clipped."""


@dataclass(frozen=True)
class Origin:
    """Model store that a fitted method lies in, and the checksum of its content."""

    url: str
    checksum: str
    carried: Carried | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Posterior:
    """A fitted method with all that prediction needs; one node in any graph."""

    method: Method
    theta: Theta
    state: Any
    scaling: Scaling
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    vector_target: bool
    dtype: str = "float64"
    device: Device = "cpu"
    rows: TrainingRows | None = None
    layers: Chain = ()
    target_units: tuple[str, ...] = ()
    origin: Origin | None = None
    geographic: tuple[int, int] | None = None
    feature_units: tuple[str, ...] = ()
    fills: Fills = ()
    ranges: Sequence[Sequence[float] | None] = ()
    finds_fills: bool = True
    """True if fill values in common use, far outside these ranges, are missing in places."""
    categories: Levels = field(default_factory=dict)
    """Levels of features that are categories, by the names of these."""
    unseen: UnseenName = "error"
    """Treatment of other levels: an error, or those of a new one."""
    rows_checksum: int = 0
    """Sum of the hashes of all training rows, with their targets and noise."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the coordinate reference system of the rows, none if it is not known."""
    joint: bool = False
    """True if the method sees each target of a place as a row of its own."""
    each: tuple[Posterior, ...] = ()
    """Posteriors of separate targets that have rows of their own, see ``posterior.separate``."""
    alike: str = ""
    """Token of the posterior that this one differs from by layers alone, in the same call."""

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
        if theta.varying is not None:
            arrays |= {f"varying_{k}": v for k, v in theta.varying.arrays.items()}
        if self.rows is not None:
            arrays |= self.rows.arrays()
        settings: dict[str, Any] = {
            "model": [self.method.name, repr(self.method)],
            "kernel": _identity(theta.kernel),
            "noise_variance": theta.noise_variance,
            "names": [self.feature_names, self.target_names],
            "dtype": self.dtype,
            "device": self.device,
        }
        if self.joint:
            settings["joint"] = True
        if self.rows is not None:
            settings["rows"] = self.rows.token
            if not np.size(getattr(self.state, "weights", 1.0)):  # nothing else tells the targets
                settings["checksum"] = self.rows_checksum
        if self.geographic is not None:
            settings["geographic"] = list(self.geographic)
        more = {"units": list(self.feature_units), "fills": [list(own) for own in self.fills]}
        settings |= {name: said for name, said in more.items() if said}
        if self.categories:
            settings["categories"] = [sorted(self.categories.items()), self.unseen]
        for layer in self.layers:
            described, own = layer.identity
            settings, arrays = settings | described, arrays | own
        return checksum(arrays, settings)

    @property
    def shared_token(self) -> str:
        """Token of what layers do not change, such as warnings of places and what is cached."""
        return self.alike or self.token

    def beside(self, *layers: Layer) -> Posterior:
        """Return the same with other layers, for a part of what a call computes."""
        return replace(self, layers=layers, origin=None, alike=self.shared_token)

    def parts(self, known: Known | None = None) -> Parts:
        """Return what layers are made of, a regressor that is not among them too."""
        products, known = getattr(self.state, "trend", None), known or self.known
        noise, names, varying = self.theta.noise_variance, self.feature_names, self.theta.varying
        return Parts(self.scaling, noise, names, _likelihood(self), products, known, varying)

    def with_layers(self, *layers: Layer) -> Posterior:
        """Return the posterior with more layers, or others of the same kind, which no store has."""
        return replace(self, layers=chain.joined(*self.layers, *layers), origin=None)

    def observed_by(self, response: Response) -> Posterior:
        """Return the posterior of f as that of what a likelihood says is observed."""
        kept = (layer for layer in self.layers if not isinstance(layer, Noise))
        return replace(self, layers=chain.joined(*kept, response))

    def layer(self, kind: type[L]) -> L | None:
        """Return the layer of a kind, if there is one."""
        return next((layer for layer in self.layers if isinstance(layer, kind)), None)

    def inner(self, observed: bool) -> Chain:
        """Return the layers of f, or of what is ``observed``, that keep a Gaussian one."""
        return self._split(observed)[0]

    def outer(self, observed: bool) -> Outer:
        """Return the layers of f, or of what is ``observed``, around a Gaussian; its tails too."""
        inner, outer = self._split(observed)
        return Outer((*(layer for layer in inner if layer.of_tails), *outer))

    def _split(self, observed: bool) -> tuple[Chain, Chain]:
        found = tuple(layer for layer in self.layers if observed or not layer.of_observations)
        edge = next((i for i, layer in enumerate(found) if not layer.gaussian), len(found))
        return found[:edge], found[edge:]

    def labelled(self, data: Any, grid: Any, what: str, include_noise: bool) -> Any:
        """Return the ``what`` ("mean", "std", "variance") in ``data`` as a DataArray on a grid."""
        targets = self.target_names
        description = moments.describe(what, targets, self.target_units, include_noise)
        return grid.wrap(data, targets, self.vector_target, what, description)

    @property
    def n_features(self) -> int:
        """Number of columns that X must have."""
        return len(self.feature_names)

    @property
    def wanted_units(self) -> tuple[str, ...]:
        """Units that columns of X are taken in, "" for unknown ones."""
        units = [*(self.feature_units or ("",) * self.n_features)]
        for j, unit in zip(self.geographic or (), feature_units.DEGREES, strict=False):
            units[j] = units[j] or unit
        return tuple(units)

    @cached_property
    def trained_on(self) -> dict[int, expected.Column]:
        """Known columns of X; not longitudes in a plane of a kernel with a period."""
        own = self.feature_names, self.feature_units, self.ranges, self.geographic or ()
        found = expected.columns_of(*own)
        return {
            j: own
            for j, own in found.items()
            if not (self.is_periodic and own.is_longitude and not own.sphere)
        }

    @property
    def is_periodic(self) -> bool:
        """Tell if the kernel has a period."""
        return any("period" in name for name in self.theta.kernel.parameter_names)

    def matched(
        self,
        own: tuple[str, ...],
        values: Callable[[int], np.ndarray | None],
        what: str,
        levels: Levels = MappingProxyType({}),
    ) -> tuple[tuple[str, ...], tuple[Change | None, ...]]:
        """Return units of columns of X, and what turns these into those of the training data.

        ``levels`` are those of columns that are categories, as far as X says them.
        """
        expected.refuse_radians(self.trained_on, values, what)
        known = self.feature_names, own, self.wanted_units
        units, how = feature_units.matched(*known, values, what, self.trained_on)
        given = levels, self.categories, self.unseen == "new"
        recoded = recodings(self.feature_names, *given) if self.categories else []
        if not any(recoded):
            return units, how
        pairs = zip(how or (None,) * len(recoded), recoded, strict=True)
        return units, tuple(one or other for one, other in pairs)

    @cached_property
    def columns(self) -> Columns:
        """Columns that X must have, and those of the inputs that the method sees."""
        fills = self.fills[: self.n_features]
        ranges = self.ranges if self.finds_fills else ()
        pairs = tuple((float(p[0]), float(p[1])) if p else None for p in ranges)
        levels = tuple(self.categories.get(name, ()) for name in self.feature_names)
        levels = levels if any(levels) else ()
        variable = variable_of(self.feature_names) if self.joint else ""
        own = self.feature_names, self.geographic, fills, pairs, variable
        made = Columns(*own, levels, self.unseen == "new")
        parts = [part for part in averages(self.theta.kernel) if not part.of_points]
        own_columns = [int(j) for part in parts for j in part.footprint_columns()]
        radii = {made.inputs_names[j] for j in own_columns}
        return replace(made, radii=tuple(j for j, name in enumerate(made.names) if name in radii))

    def taking(self, unseen: UnseenName) -> Posterior:
        """Return the same that refuses other levels of categories, or takes them for a new one."""
        return replace(self, unseen=unseen, origin=None)

    def at(self, origin: Origin | None) -> Self:
        """Return the same that lies in a store."""
        return replace(self, origin=origin)

    def on(self, device: Device) -> Posterior:
        """Return the same that computes on another device."""
        return replace(self, device=device)

    def coded(self, X: Any) -> Any:
        """Return a data frame with the numbers of levels for text; all else as it is."""
        if not reading.has_columns(X):
            return X
        names = column_names(X)
        if self.categories and names is not None and sorted(names) == sorted(self.feature_names):
            _check_names(self, names)  # before texts are looked for in columns of numbers
        return coded(X, self.categories, self.feature_names, self.unseen == "new")[0]

    @cached_property
    def theta_of_places(self) -> Theta:
        """Hyper-parameters with those of a new level of categories, where places may have one."""
        if self.unseen == "error" or not self.categories or self.theta.varying is not None:
            return self.theta
        return replace(self.theta, kernel=with_new_level(self.theta.kernel))

    @property
    def users_kernel(self) -> Kernel:
        """Kernel of the columns of X, in their units and those of y; in km on a sphere."""
        own = kernel_in_users_units(self.theta.kernel, len(self.columns), self.size)
        return self.columns.users_kernel(own)

    def size(self, unit: Unit) -> float | None:
        """Return the size of a unit in the user's; None if its columns or targets differ in it."""
        return self.scaling.size(unit, self.scaling.y_scale if self.joint else None)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        """Return the inputs in the model's units at rows X (n, d) in the user's."""
        return np.asarray(self.scaling.inputs(self.columns.inputs(np.asarray(X, np.float64))))

    @property
    def n_targets(self) -> int:
        """Number of columns of the mean."""
        return len(self.target_names)

    def refuse_spread(self, include_noise: bool) -> None:
        """Raise SettingError if the method has no variance of f, or of y with noise."""
        missing = self.method.why_no_variance()
        if missing:
            raise SettingError(missing)
        if not include_noise and self.method.noisy:
            setting = self.method.quiet_setting()
            other = f", or fit with {setting}" if setting else ""
            raise SettingError(
                "this method only has the spread of new observations: ask for "
                f"include_noise=True{other}"
            )

    def refuse_joint(self, include_noise: bool) -> None:
        """Raise SettingError if the method has no joint covariance of f, or of y with noise."""
        missing = self.method.why_no_joint()
        if missing:
            raise SettingError(missing)
        self.refuse_windows("joint covariances and averages")
        if include_noise and self.likelihood is not None:
            raise SettingError(
                f"a joint covariance of new observations of likelihood {self.likelihood.name!r} "
                "is not available: leave include_noise out for the covariance of f"
            )

    def refuse_windows(self, what: str) -> None:
        """Raise SettingError if hyper-parameters differ between the windows of several places."""
        if self.method.varies_by_window and self.theta.varying is not None:
            raise SettingError(
                f"{what} need hyper-parameters that windows have in common, and those of this "
                "model vary from window to window: fit VecchiaGP, whose rows have their own, or "
                "varying=None"
            )

    @property
    def one_by_one(self) -> bool:
        """True if places have no joint prior, because each is conditioned on those before it."""
        return self.method.one_by_one(self.theta, self.state)

    @property
    def likelihood(self) -> Likelihood | None:
        """Likelihood of y given f; None if y is f and Gaussian noise."""
        response = self.layer(Response)
        return None if response is None else response.likelihood

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Numbers of each row that the likelihood takes beside y."""
        return () if self.likelihood is None else self.likelihood.own_columns

    @property
    def by_sites(self) -> bool:
        """True if Gaussian sites stand for the likelihood."""
        response = self.layer(Response)
        return response is not None and not response.of_method

    @property
    def latent_unit(self) -> float:
        """Unit of the latent function of sites, in that of y; y_scale of the one target."""
        return float(self.scaling.y_scale[0])

    @property
    def known(self) -> Known | None:
        """Regressor whose residuals the method models, if there is one."""
        regressor = self.layer(RegressorLayer)
        return None if regressor is None else regressor.known

    @property
    def spread(self) -> float:
        """Factor on standard deviations that layers have learned."""
        return math.prod(layer.spread for layer in self.layers)

    @property
    def unit(self) -> np.ndarray:
        """Standard deviation (p,) of a Gaussian, in y's units, for one of 1 in the model's."""
        found = np.ones(self.n_targets) * self.spread
        for layer in self.inner(False):
            found = found * layer.unit
        return found

    @property
    def noise(self) -> np.ndarray:
        """Noise variance (p,) that predictions of a row of weight 1 have, in y's units squared."""
        return self.noise_of_targets * self.unit**2

    @property
    def noise_of_targets(self) -> Any:
        """Noise variances (p,) of targets in the model's units, or the one of all."""
        own = self.layer(TargetNoise)
        return self.theta.noise_variance if own is None else own.variances

    @property
    def noise_of_y(self) -> Any:
        """Noise variance that y has, in the model's units; 0 where a likelihood says what it is.

        Joint targets have one each (p,).
        """
        return 0.0 if self.by_sites else self.noise_of_targets

    def noise_at(self, X: np.ndarray) -> np.ndarray:
        """Return these noise variances (n, p) at rows X (n, d), where they may vary."""
        return self.relative_noise(X)[:, None] * self.noise

    def relative_noise(self, X: np.ndarray) -> np.ndarray:
        """Return the noise variances (n,) at rows X (n, d), relative to the common one."""
        varying = self.theta.varying
        return np.ones(len(X)) if varying is None else np.exp(varying.at(self.scaled(X))[:, -1])

    @property
    def scaling_of_mean(self) -> Scaling:
        """Scaling whose trend has the posterior mean of its coefficients."""
        trend = self.layer(TrendLayer)
        if trend is None or trend.coefficients is None:
            return self.scaling
        own = trend.coefficients[0] * self.scaling.y_scale
        return replace(self.scaling, trend=trend.trend.given(own))

    def refuse_separate(self, what: str, remedy: str = "ask the model of each") -> None:
        """Raise SettingError if targets have rows of their own, of which there is no ``what``."""
        if self.each:
            raise SettingError(
                f"{what} of separate targets with rows of their own is not available: {remedy}, "
                f"model.parts_[0] for that of {self.target_names[0]!r}"
            )

    def refuse_targets_together(self, what: str) -> None:
        """Raise SettingError if there is no ``what`` of several targets as these were fitted."""
        self.refuse_separate(what)
        if self.joint:
            raise SettingError(
                f"{what} of joint targets is not available: fit each target on its own with "
                "targets='separate', or ask for predict, return_cov or sample_y"
            )

    def refuse_transformed(self, what: str, instead: str) -> None:
        """Raise SettingError if ``what`` would be that of a Gaussian that users do not see."""
        for layer in self.outer(False).layers:
            if not layer.gaussian:
                raise SettingError(
                    f"{what} is not available for targets with {layer.setting}: {instead}"
                )

    def refuse_errors(self, what: str, instead: str) -> None:
        """Raise SettingError if ``what`` would have error variances beside another noise."""
        self.refuse_transformed(what, instead)
        if self.likelihood is not None:
            raise SettingError(
                f"y_variance is given and the likelihood is {self.likelihood.name!r}: only "
                "Gaussian noise has known error variances"
            )

    @property
    def nearby(self) -> Nearby | None:
        """Training rows of which those near places are read back; None for other methods."""
        return self.rows if isinstance(self.rows, Nearby) else None

    def usable(self, X: np.ndarray) -> np.ndarray:
        """Return the mask (n,) of the rows of X (n, d) that can be predicted."""
        return usable_rows(self.scaled(X))

    def grouped(self, X: np.ndarray) -> np.ndarray | None:
        """Return the order (n,) in which rows X (n, d) are best predicted; None for any."""
        if self.rows is None:
            return None
        return self.rows.order(self.columns.inputs(X), self.usable(X))

    def moments(
        self, X: np.ndarray, want: Want, include_noise: bool = False, gaussian: bool = False
    ) -> Moments:
        """Return the posterior at X (n, d) in the user's units; NaN for rows with missing values.

        ``gaussian`` asks for those of the Gaussian that a distribution is given by: of f where the
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
            return self._tile(X, want, include_noise, gaussian)
        mean = np.empty((len(X), self.n_targets))
        variance = np.empty_like(mean) if want == "variance" else None
        step = max(len(X), 1) if self.rows is not None and self.rows.together else TILE_ROWS
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            tile = self._tile(X[rows], want, include_noise, gaussian)
            mean[rows] = tile.mean
            if variance is not None:
                variance[rows] = tile.variance
        return Moments(mean, variance)

    def _tile(self, X: np.ndarray, want: Want, include_noise: bool, gaussian: bool) -> Moments:
        expected.refuse(self.trained_on, self.columns.known(X), "X")
        inner, outer = self._split(include_noise)
        layers = inner if gaussian or want == "covariance" else inner + outer
        if any(layer.needs_variance for layer in layers):
            want = "variance"
        inputs = self.columns.inputs(X)
        scaled = self.scaling.inputs(np.asarray(inputs, np.float64))
        usable = usable_rows(scaled)
        if want == "covariance" and not usable.all():
            raise InputError(
                "X has missing or infinite values, or some that are too large to be squared: "
                "leave these rows out of a joint covariance"
            )
        if not usable.all():
            self._say_fills(X)
        self._say_lonely(X)
        scaled[~usable] = 0.0
        found = self._of_method(NewRows(inputs, scaled, usable), want)
        found = found._replace(noisy=found.noisy or self.method.noisy)
        found = through(layers, found, self._places(X, scaled, usable))
        for values in (found.mean, found.variance):
            if values is not None:
                values[~usable] = np.nan
        return found

    def _of_method(self, new: NewRows, want: Want) -> Moments:
        """Return what the method predicts at new rows, which have all targets at each place."""
        if not self.joint:
            return self._checked(self._scaled_moments(new, want), new.scaled)
        n, p = len(new.X), self.n_targets
        each = NewRows(*(np.repeat(values, p, axis=0) for values in new))
        each.X[:, -1] = each.scaled[:, -1] = np.tile(np.arange(p), n)
        found = self._checked(self._scaled_moments(each, want), each.scaled)
        variance = None if found.variance is None else found.variance.reshape(n, p)
        return found._replace(mean=found.mean.reshape(n, p), variance=variance, far=None)

    def _say_fills(self, X: np.ndarray) -> None:
        """Say which fill values, that the fit did not have, are in features of places."""
        found = self.columns.far(without(X, self.columns.fills))
        for j in map(int, np.flatnonzero(found.any(axis=0))):
            low, high = self.ranges[j] or (np.nan, np.nan)
            warn_in_call(
                f"{X[found[:, j], j][0]:g} in feature {self.feature_names[j]!r} of places to "
                f"predict, far from the rows of the fit ({low:.5g} to {high:.5g}): read as a "
                "missing value, as fill values of files are, so that the prediction is NaN; a fit "
                "with fill_values=None keeps it",
                self.shared_token,
            )

    def _say_lonely(self, X: np.ndarray) -> None:
        """Say which numbers in features of places may be fill values although they are kept."""
        X = self.columns.known(X)
        for j, limits in enumerate(self.columns.ranges):
            found = None if j in (self.geographic or ()) else lonely(X[:, j], limits)
            if found is not None and limits is not None:
                warn_in_call(
                    f"{found:g} in feature {self.feature_names[j]!r} of places to predict is taken "
                    f"for a number, outside the rows of the fit ({limits[0]:.5g} to "
                    f"{limits[1]:.5g}): if it stands for a missing value, make it NaN, or fit with "
                    f"fill_values=[{found:g}] (--fill {found:g}); a fit with fill_values=None does "
                    "not ask",
                    self.shared_token,
                )

    def reading(self, fill_values: Sequence[float] | None) -> Self:
        """Return the same that reads other fill values of places as missing, too.

        None names no others, and looks for none.
        """
        given = (tuple(fill_values or ()),) * (self.n_features + self.n_targets)
        finds = self.finds_fills and fill_values is not None
        return replace(self, fills=united(self.fills, given), finds_fills=finds)

    def of_average(self, predicted: Moments, X: np.ndarray, scaled: np.ndarray) -> Moments:
        """Return a joint posterior of f at averages of places, without what is not linear in X."""
        layers = [layer for layer in self.inner(False) if layer.linear]
        return through(layers, predicted, self._places(X, scaled, np.ones(len(X), bool)))

    def nonlinear_mean(self, X: np.ndarray) -> np.ndarray:
        """Return the mean (n, p) that layers add which is not linear in X."""
        layers = [layer for layer in self.inner(False) if not layer.linear]
        zero, usable = Moments(np.zeros((len(X), self.n_targets))), np.ones(len(X), bool)
        return np.asarray(through(layers, zero, self._places(X, self.scaled(X), usable)).mean)

    def refuse_places(self, X: np.ndarray) -> None:
        """Raise InputError for places X (n, d) that have no joint covariance."""
        for layer in self.inner(False):
            layer.refuse_places(X)

    def of_left_out(
        self, predicted: Moments, X: np.ndarray, scaled: np.ndarray, noise: Any = None
    ) -> Moments:
        """Return the Gaussian of training rows X (n, d) that a method predicts without each.

        ``noise`` (n, 2) is that of their ``Block``, if there is any.
        """
        at = self._places(X, scaled, np.ones(len(X), bool), noise)
        return through(self.inner(True), predicted, at._replace(left_out=True))

    def _places(
        self, X: np.ndarray, scaled: np.ndarray, usable: np.ndarray, noise: Any = None
    ) -> Places:
        def whole() -> np.ndarray:
            common = self.relative_noise(X) * self.theta.noise_variance
            return np.asarray(variances(common, noise))

        return Places(X, scaled, usable, prior=partial(self._priors, scaled), noise=whole)

    def _priors(self, scaled: np.ndarray) -> np.ndarray:
        """Return the prior variances (n,) of f at rows in the model's units, that squared."""
        theta = self.theta_of_places
        if theta.varying is None:
            return np.asarray(theta.kernel.diag(scaled), np.float64)
        from daskgp.models.markov.conditionals import prior_variances

        return np.asarray(prior_variances(theta, scaled), np.float64)

    def shares(
        self, X: np.ndarray, variance: np.ndarray, noise: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return shares (n,) of variances that are those of f, and of these in those of the prior.

        ``variance`` (n,) are those of the first target at training rows X (n, d) without each,
        which miss nothing, and ``noise`` (n, 2) is that of their ``Block``, if there is any.
        """
        scaled, whole = self.scaled(X), variance / self.unit[0] ** 2
        at = self._places(X, scaled, np.ones(len(X), bool), noise)
        quiet, share = of_f(whole, at, noisy=True)
        return quiet / whole, share

    @property
    def stretch(self) -> Posterior | None:
        """Posterior whose variances are the factors of a fading, if there is one."""
        fade = self.layer(Fade)
        if fade is None:
            return None
        trend = (layer for layer in self.layers if isinstance(layer, TrendLayer))
        alone = Stretch(fade.factor, fade.low, fade.high)
        return self.beside(*trend, alone)

    def unpredicted(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return targets y (n, p) of rows X (n, d) without what their scaling does not take off."""
        for layer in reversed(self.layers):
            y = layer.unpredicted(X, y)
        return y

    def _scaled_moments(self, new: NewRows, want: Want) -> Moments:
        device, n = backend.resolve_device(self.device), len(new.X)

        def work(most: int) -> Moments:
            fit = self.fitted(device)
            if self.rows is None:
                return in_tiles(fit, None, new.scaled, want, most)
            return self.rows.moments(fit, new, want, most)

        name, remedy = f"predictions of {self.method.name}", self._room()
        if want == "covariance":
            what = f"a joint covariance of {n} rows"
            return device_memory.whole(lambda: work(max(n, 1)), device, what, remedy)
        return device_memory.shrinking(work, min(TILE_ROWS, max(n, 1)), device, name, remedy)

    def fitted(self, device: str) -> Fitted:
        """Return the method with its hyper-parameters and state on a device, where they stay."""
        theta, state = self.theta_of_places, self.state
        if device != "cpu":
            key: tuple[str, tuple[int, ...]] = (self.token, (-1,))  # no block has this number
            on_device = cached(key, lambda: _There.of(theta, state, device), device)
            theta, state = on_device.theta, on_device.state
        # joint targets are in units of their own before the method sees them
        scaling = self.scaling.of_inputs(1) if self.joint else self.scaling
        return Fitted(self.method, theta, state, scaling, self.shared_token, device)

    def _room(self) -> str:
        """Return advice on how predictions need less of a GPU's memory."""
        less = TrainingRows.fewer if self.rows is None else self.rows.fewer
        return f"fit again with {less}, {device_memory.ANOTHER}"

    def prior(self, X: np.ndarray) -> float:
        """Return the largest prior variance of f at rows X (n, d), in the model's units."""
        return float(np.max(self.theta_of_places.kernel.diag(self.scaled(X)), initial=0.0))

    def _checked(self, found: Moments, scaled: np.ndarray) -> Moments:
        """Return moments at scaled inputs with sound variances."""
        prior = float(np.max(self.theta_of_places.kernel.diag(scaled), initial=0.0))
        if found.covariance is not None:
            covariance, diagonal = (
                np.asarray(found.covariance, np.float64),
                np.diag_indices(len(scaled)),
            )
            covariance[diagonal] = self.sound(covariance[diagonal], prior)
            return found._replace(covariance=covariance)
        if found.variance is None:
            return found
        return found._replace(variance=self.sound(found.variance, prior))

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
                f"{prior:.3g}): fit again with {self.method.steadier()}"
            )
        return np.maximum(variance, 0.0)


def variable_of(names: Sequence[str]) -> str:
    """Return the name of the column that says what target a row is of, beside features."""
    name = VARIABLE
    while name in names:
        name += "_"
    return name


def through(layers: Iterable[Layer], moments: Moments, at: Places) -> Moments:
    """Return what layers make of moments, one after another."""
    for layer in layers:
        moments = layer.moments(moments, at)
    return moments


def _likelihood(posterior: Posterior) -> Likelihood | None:
    name = posterior.method.likelihood_name
    return None if name == "gaussian" else by_name(name, posterior.state.likelihood)


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


def check_columns(
    posterior: Posterior, X: Any, names: tuple[str, ...] | None, framed: bool = False
) -> None:
    """Raise InputError unless X has the columns of the training data.

    ``framed`` says that X was a data frame, whose columns are chosen by name.
    """
    fitted = posterior.feature_names
    check_table(X)
    if X.shape[1] != len(fitted):
        name = posterior.method.name.replace("-", "_")
        raise InputError(
            f"X has {X.shape[1]} features, but {name} is expecting {len(fitted)} "
            f"features as input: {', '.join(fitted)}{_of_others(names or (), fitted, framed)}"
        )
    if names is not None and len(names) != len(fitted):
        raise InputError(
            f"{len(names)} feature names for {len(fitted)} columns of X: {', '.join(names)}: give "
            "each column its name"
        )
    if names is not None:
        _check_names(posterior, names)


def _of_others(names: tuple[str, ...], fitted: tuple[str, ...], framed: bool) -> str:
    """Return which columns X lacks or has beside those of a fit, and the remedy; "" if unnamed."""
    if not names or unnamed(len(fitted)) == fitted or unnamed(len(names)) == names:
        return ""
    lacks = [repr(name) for name in fitted if name not in names]
    others = [repr(name) for name in names if name not in fitted]
    told = f"; X lacks {shown(lacks)}" * bool(lacks)
    told += f"; the model has no feature {shown(others)}" * bool(others)
    if lacks:
        return f"{told}: give all features of the fit"
    few = framed and len(fitted) <= FEW
    remedy = f"give X[{json.dumps(fitted)}]" if few else "leave such columns out"
    return f"{told}: {remedy}" if others else ""


def _check_names(posterior: Posterior, names: tuple[str, ...]) -> None:
    """Raise InputError unless as many columns have the names of the training data."""
    fitted = posterior.feature_names
    if names_differ(names, fitted):
        seen, wanted = next((a, b) for a, b in zip(names, fitted, strict=True) if a != b)
        raise InputError(
            f"X has feature {seen!r} where the model was fitted with {wanted!r}: "
            f"give the columns {', '.join(fitted)} in this order"
        )


def refuse_other_units(posterior: Posterior, rows: Rows) -> None:
    """Raise InputError for rows with features in other units than those of the training data."""
    names = posterior.feature_names
    numbers = partial(reading.numbers_of, rows.X)
    units, how = posterior.matched(rows.feature_units, numbers, "X", rows.categories)
    for j, column in posterior.trained_on.items():
        own = numbers(j)
        own = None if own is None else own[np.isfinite(own)]
        if own is not None and len(own) and not column.sphere:
            ends, before = (own.min(), own.max()), (column.low, column.high)
            told = names[j], ends, before, "X", "the rows of the fit", column.unit
            feature_units.warn_of_other(*told)
    changed = (j for j, one in enumerate(how) if one is not None)
    other = next((j for j in changed if not _begins_alike(posterior, rows, names[j])), None)
    if other is not None and names[other] in rows.categories:
        known = rows.categories, posterior.categories
        mine, wanted = (shown(one[names[other]]) for one in known)
        raise InputError(
            f"feature {names[other]!r} of X has the levels {mine}, but the model was fitted with "
            f"{wanted}: convert it for the model (daskgp convert --like MODEL), or fit again"
        )
    if other is not None:
        raise InputError(
            f"feature {names[other]!r} of X is in {units[other]!r}, but the model was fitted "
            f"with it in {posterior.feature_units[other]!r}: convert it (daskgp convert --like "
            "MODEL)"
        )


def _begins_alike(posterior: Posterior, rows: Rows, name: str) -> bool:
    """Return whether the first levels of a feature are those of a model, with the same codes.

    Others are refused where rows have them.
    """
    own, known = rows.categories.get(name, ()), posterior.categories.get(name, ())
    return bool(known) and own[: len(known)] == known


def in_users_units(posterior: Posterior) -> np.ndarray:
    """Return the inducing or support inputs (m, d) of a fit, in the units of X."""
    Z = posterior.theta.inputs
    assert Z is not None
    return posterior.columns.places(posterior.scaling.places(Z))


def checksum_of(seen: Sequence[Mapping[str, Any]]) -> int:
    """Return the sum of the hashes of the rows that are left of those that a model has seen."""
    total = 0
    for one in seen:
        own = int(one.get("checksum", "0"), 16)
        total += -own if one["what"] == "forget" else own
    return total % 2**64
