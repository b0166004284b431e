"""Base class of the kernels: value, diagonal, and the vector-Jacobian products of both.

Kernels are values: frozen, hashable, comparable, picklable.  Letters: X (n, d) and Z (m, d)
inputs, K = k(X, Z) a tile (n, m), K_bar the derivative of some objective with respect to K.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np

from daskgp.errors import SettingError
from daskgp.kernels.weights import WeightedGradient, Weights, checked_weights
from daskgp.registry import Registry
from daskgp.typing import Array

VARIANCE_BOUNDS = (1e-4, 1e4)
ALPHA_BOUNDS = (1e-2, 1e3)
PERIOD_BOUNDS = (1e-2, 1e1)  # times the range of the input
LENGTHSCALE_BOUNDS = (1e-3, 1e1)  # times the range of the input


REGISTRY: Registry[type[Kernel]] = Registry("kernel", "daskgp.kernels", {})
"""Classes of kernels by name; ``register`` adds to them."""
OPERATORS: dict[str, Callable[[Any, Any], Kernel]] = {}
"""Makers of a sum of two kernels or numbers, and of a product; ``compose`` adds them."""


class KernelGradient(NamedTuple):
    """Gradient of an objective through a kernel tile.

    ``log_parameters`` (k,) is always float64 on the host; ``X`` (n, d) and ``Z`` (m, d) have
    the dtype and device of the inputs.  ``Z`` is None if the kernel had one argument only.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> X, Z = np.array([[0.0]]), np.array([[1.0]])
    >>> gradient = RBF(1.0).vjp(X, Z, np.ones((1, 1)))
    >>> gradient.log_parameters.round(4), gradient.Z.round(4)
    (array([0.6065, 0.6065]), array([[-0.6065]]))
    """

    log_parameters: np.ndarray
    X: Array
    Z: Array | None


class Unit(NamedTuple):
    """Unit of a hyper-parameter: powers of the units of some columns and of the target.

    A lengthscale over columns 0 and 1 is ``Unit((0, 1), 1, 0)``, a variance ``Unit((), 0, 2)``.
    One that is of a level of a category alone has its ``level``: the column, and the code.

    Examples
    --------
    >>> from daskgp.kernels import Periodic, Unit
    >>> Periodic().units(1)[2] == Unit((0,), 1, 0)  # a period has the unit of its column
    True
    """

    columns: tuple[int, ...] = ()
    of_inputs: int = 0
    of_target: int = 0
    level: tuple[int, int] | None = None


class Derived(NamedTuple):
    """Number that follows from hyper-parameters; ``gradient`` (k,) is by their logarithms.

    One that has the name of a hyper-parameter says it in another way, and stands in its place.

    Examples
    --------
    >>> from daskgp.kernels import Coregion
    >>> Coregion(0, variance=(1.0, 1.0), angle=[np.pi / 2]).derived()[0].name
    'correlation[0,1]'
    """

    name: str
    value: float
    gradient: np.ndarray
    unit: str = ""


class Pullback(Protocol):
    """Function from the cotangent K_bar (n, m) to the gradient; may be called more than once.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> X, Z = np.array([[0.0]]), np.array([[1.0]])
    >>> K, pull = RBF(1.0).pullback(X, Z)
    >>> pull(np.ones_like(K)).X.round(4)  # the derivative of the sum of K
    array([[0.6065]])
    """

    def __call__(self, K_bar: Array, overwrite: bool = False) -> KernelGradient:
        """Return the gradient; ``overwrite`` allows K_bar's memory to be used.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> K, pull = RBF(1.0).pullback(np.array([[0.0]]), np.array([[1.0]]))
        >>> pull(2 * np.ones_like(K)).Z.round(4)
        array([[-1.2131]])
        """


_Refusal: TypeAlias = Callable[..., NoReturn]


def _refusing(sign: str, remedy: str) -> Callable[..., NoReturn]:
    """Return an operator of kernels that raises TypeError, as there is none, and says what is."""

    def refuse(self: Kernel, *_: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has no operator {sign}: kernels are added (+) and multiplied "
            f"(*), with one another or with positive numbers; {remedy}"
        )

    return refuse


class Kernel(ABC):
    """Covariance function k(x, z) of two rows of inputs.

    Examples
    --------
    >>> from daskgp.kernels import RBF, Kernel, Linear
    >>> kernel = 0.5 * RBF(2.0) + Linear()
    >>> isinstance(kernel, Kernel), kernel(np.zeros((3, 1))).shape
    (True, (3, 3))
    """

    name: ClassVar[str]
    """Name in text and stores."""
    _known: ClassVar[dict[str, type[Kernel]]] = REGISTRY

    @abstractmethod
    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        """Return the tile K(X, Z).

        Parameters
        ----------
        X : (n, d) array
        Z : (m, d) array, optional
            K(X, X) without it, exactly symmetric and with the diagonal of ``diag``.
        out : (n, m) array, optional
            Memory for K, of the inputs' dtype.

        Returns
        -------
        (n, m) array
            Of the inputs' dtype (float32 or float64) on the inputs' device.

        Raises
        ------
        InputError
            If shapes do not agree with each other or with the kernel.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0)(np.array([[0.0], [1.0]]), np.array([[0.0]])).round(4)
        array([[1.    ],
               [0.6065]])
        """

    @abstractmethod
    def diag(self, X: Array) -> np.ndarray:
        """Return the diagonal k(x, x) of K(X, X), shape (n,).

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0, variance=2.0).diag(np.array([[0.0], [1.0]]))
        array([2., 2.])
        """

    @abstractmethod
    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        """Return the tile K(X, Z) and the function from K_bar to the gradient.

        Both share one evaluation.  The function keeps K, so K is returned read-only: copy it
        to change it.  Without Z the gradients of both arguments are added up in ``.X``.

        Parameters
        ----------
        X : (n, d) array
        Z : (m, d) array, optional
        work : (tiles, n, m) array, optional
            Memory to work in, of the inputs' dtype; K is part of it and valid until it is used
            again.  Allocating anew can cost a loop over tiles as much time as the kernel.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> X = np.array([[0.0], [1.0]])
        >>> K, pull = RBF(1.0).pullback(X)
        >>> pull(np.ones_like(K)).log_parameters.round(4)  # by variance and lengthscale
        array([3.2131, 1.2131])
        """

    @property
    @abstractmethod
    def tiles(self) -> int:
        """Number of tiles of memory that a pullback takes, K included.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0).tiles >= 1
        True
        """

    def vjp(self, X: Array, Z: Array | None, K_bar: Array) -> KernelGradient:
        """Return the gradient of sum(K_bar * K(X, Z)) with K_bar held fixed and not modified.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> X, Z = np.array([[0.0]]), np.array([[1.0]])
        >>> RBF(1.0).vjp(X, Z, np.ones((1, 1))).X.round(4)
        array([[0.6065]])
        """
        _, pull = self.pullback(X, Z)
        return pull(K_bar)

    @abstractmethod
    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        """Return the gradient of sum(diag_bar * diag(X)) with diag_bar (n,) held fixed.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> X = np.array([[0.0], [1.0]])
        >>> RBF(1.0, variance=2.0).diag_vjp(X, np.ones(2)).log_parameters
        array([4., 0.])
        """

    def weighted(
        self, Z: Array, weights: Weights, X: Array, out: Array | None = None
    ) -> np.ndarray:
        """Return values S' K(Z, X) (t, n) of functions at rows X (n, d), without keeping the tile.

        Parameters
        ----------
        Z : (a, d) array
        weights : Weights
            S, over the points Z.
        X : (n, d) array
        out : (t, n) array, optional
            Array to add the values to, of the inputs' dtype or float64.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Z, X = np.array([[0.0], [1.0]]), np.array([[0.0]])
        >>> RBF(1.0).weighted(Z, Weights.dense(np.ones((2, 1))), X).round(4)  # 1 + exp(-1/2)
        array([[1.6065]])
        """
        inputs, weights = checked_weights(Z, weights, X)
        F = weights.functions(inputs.shape[1], out)
        for points, rows, columns, S in weights.patches(inputs.shape[1]):
            F[columns, rows] += S @ self(Z[points], X[rows])
        return F

    def weighted_vjp(
        self, Z: Array, weights: Weights, X: Array, F_bar: Array, by_inputs: bool = True
    ) -> WeightedGradient:
        """Return the gradient of sum(F_bar * weighted(Z, weights, X)) with F_bar (t, n) held fixed.

        Without ``by_inputs``, the gradients with respect to Z and X are left out and None.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> Z, X = np.array([[0.0], [1.0]]), np.array([[0.0]])
        >>> weights = Weights.dense(np.ones((2, 1)))
        >>> RBF(1.0).weighted_vjp(Z, weights, X, np.ones((1, 1))).weights.round(4)
        array([[1.    ],
               [0.6065]])
        """
        inputs, weights = checked_weights(Z, weights, X)
        by_log = np.zeros(len(self.parameter_names))
        by_weights = inputs.xp.zeros_like(weights.values)
        by_points, by_rows = (inputs.xp.zeros_like(A) for A in (inputs.X, inputs.Z))
        for patch in weights.patches(inputs.shape[1]):
            points, rows, columns, S = patch
            K, pull = self.pullback(Z[points], X[rows])
            f_bar = F_bar[columns, rows].astype(inputs.dtype, copy=False)
            weights.collect(patch, f_bar @ K.T, by_weights)
            gradient = pull(S.T @ f_bar, overwrite=True)
            by_log += gradient.log_parameters
            by_points[points] += gradient.X
            by_rows[rows] += gradient.Z
        if not by_inputs:
            return WeightedGradient(by_log, by_weights, None, None)
        return WeightedGradient(by_log, by_weights, by_points, by_rows)

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the positive hyper-parameters, in the order of ``log_parameters``.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0).parameter_names
        ('variance', 'lengthscale')
        """

    @property
    @abstractmethod
    def log_parameters(self) -> np.ndarray:
        """Natural logarithms of the hyper-parameters, (k,) float64; what is None counts as 1.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0, variance=np.e).log_parameters
        array([0., 1.])
        """

    @abstractmethod
    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Kernel:
        """Return the same kernel with other hyper-parameters; ``values`` has shape (k,).

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0).with_log_parameters(np.log([2.0, 3.0]))
        RBF(lengthscale=3.0..., variance=2.0, ard=False, active_dims=None)
        """

    @abstractmethod
    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        """Return bounds (k, 2) of ``log_parameters`` for inputs with column ranges ``spread``.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> np.exp(RBF(1.0).log_bounds(np.array([5.0])))[1]  # of the lengthscale
        array([5.e-03, 5.e+01])
        """

    @abstractmethod
    def resolve(self, median: np.ndarray, distance: float) -> Kernel:
        """Fill in numbers left None, and expand ARD lengthscales to one per dimension.

        Variances become 1, that of standardised targets.

        Parameters
        ----------
        median : (d,) array
            Median distance between rows along each dimension, for ARD lengthscales.
        distance : float
            Median Euclidean distance between rows, for isotropic lengthscales; scaled in
            proportion if the kernel acts on some dimensions only.

        Raises
        ------
        InputError
            If the kernel's dimensions do not fit d.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF().resolve(np.array([1.0, 3.0]), 2.5).lengthscale
        2.5
        >>> RBF(ard=True).resolve(np.array([1.0, 3.0]), 2.5).lengthscale
        (1.0, 3.0)
        """

    def units(self, n_features: int) -> tuple[Unit, ...]:
        """Return the unit of each hyper-parameter; without units, the default, powers are 0.

        Examples
        --------
        >>> from daskgp.kernels import RBF, Unit
        >>> RBF().units(2) == (Unit((), 0, 2), Unit((0, 1), 1, 0))  # variance and lengthscale
        True
        """
        return tuple(Unit() for _ in self.parameter_names)

    def coordinates(self, varies: np.ndarray | None = None) -> np.ndarray:
        """Return T (k, k), the identity by default: training takes its steps in T log_parameters.

        A combination of hyper-parameters that the data determine better than each alone should be
        one of these coordinates.  Those that do not vary, by a mask (k,), are coordinates of their
        own and part of no other.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0).coordinates().shape
        (2, 2)
        """
        return np.eye(len(self.parameter_names))

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        """Return groups of the d columns that have to keep their proportions.

        Columns are tied where one hyper-parameter, such as a lengthscale, serves them all: inputs
        are then standardised by one scale for the group, so that the kernel of the scaled inputs
        is one of the distances in the user's units.  A column in no group has a scale of its own.
        Kernels that do not override this tie none.

        Returns
        -------
        tuple of tuples of int
            Disjoint groups of two or more columns, each in increasing order.

        Raises
        ------
        InputError
            If the kernel's dimensions do not fit d.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF().tied_columns(3), RBF(ard=True).tied_columns(3)
        (((0, 1, 2),), ())
        """
        return ()

    def categories(self, d: int) -> tuple[int, ...]:
        """Return the columns, of d, that hold codes of categories: they are not standardised.

        Raises
        ------
        InputError
            If the kernel's columns do not fit d.

        Examples
        --------
        >>> from daskgp.kernels import RBF, Coregion
        >>> (RBF(active_dims=0) * Coregion(1)).categories(2)
        (1,)
        """
        return ()

    def extents(self, d: int) -> dict[int, tuple[int, ...]]:
        """Return the columns, of d, that are lengths around a row's place, and of which others.

        They say how large what was measured is, not where: they are not centred, and scaled as the
        coordinates that are given with each of them.

        Raises
        ------
        InputError
            If the kernel's columns do not fit d.

        Examples
        --------
        >>> from daskgp.kernels import Averaged
        >>> Averaged(footprint=2).extents(3)
        {2: (0, 1)}
        """
        return {}

    def derived(self) -> tuple[Derived, ...]:
        """Return numbers that follow from the hyper-parameters; a fit gives their errors too.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(1.0).derived()
        ()
        """
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable description, which ``from_dict`` reads.

        Raises
        ------
        SettingError
            If the class is not registered: another kernel would be loaded.

        Examples
        --------
        >>> from daskgp.kernels import RBF
        >>> RBF(2.0).to_dict()["lengthscale"]
        2.0
        """
        self._check_registered()
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # kernels are dataclasses
        values = ((field.name, getattr(self, field.name)) for field in fields if field.init)
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in values}
        return {"kernel": self.name, **plain}

    def _check_registered(self) -> None:
        kind = type(self)
        if self._known.get(getattr(kind, "name", "")) is not kind:
            raise SettingError(
                f"{kind.__name__} is not registered, so another kernel would be loaded: call "
                f"daskgp.kernels.register({kind.__name__})"
            )

    def __add__(self, other: Kernel | float) -> Kernel:
        return OPERATORS["+"](self, other)

    def __radd__(self, other: float) -> Kernel:
        return OPERATORS["+"](other, self)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return OPERATORS["*"](self, other)

    def __rmul__(self, other: float) -> Kernel:
        return OPERATORS["*"](other, self)

    __pow__: ClassVar[_Refusal] = _refusing("**", "for a square write kernel * kernel")
    __truediv__: ClassVar[_Refusal] = _refusing("/", "for a half of one write 0.5 * kernel")
    __sub__: ClassVar[_Refusal] = _refusing("-", "leave out what is to be subtracted")
    __rpow__: ClassVar[_Refusal] = __pow__
    __rtruediv__: ClassVar[_Refusal] = __truediv__
    __rsub__: ClassVar[_Refusal] = __sub__
    __neg__: ClassVar[_Refusal] = __sub__
