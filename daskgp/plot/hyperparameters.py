"""Maps of hyper-parameters that vary over space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.data import grids
from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.coasts import Coast
from daskgp.plot.fields import maps
from daskgp.plot.places import with_unit
from daskgp.predict.hyperparameter_map import ERROR
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def hyperparameter_map(
    fields: Any,
    *,
    names: tuple[str, ...] | None = None,
    title: str = "",
    coast: Coast = True,
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot hyper-parameters that vary over space, each in a panel.

    Parameters
    ----------
    fields : Dataset
        ``hyperparameter_map_`` of a model, whose knots are drawn as dots, or what its
        ``hyperparameter_map`` gives on a grid of two dimensions.
    names, title, coast, axes, path
        As in `posterior_map`.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, one per hyper-parameter

    Raises
    ------
    InputError
        If they vary over less or more than two features.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(400, 2))
    >>> model = daskgp.VecchiaGP(varying=3).fit(X, np.sin(9 * X[:, 0] ** 2))
    >>> fields = model.hyperparameter_map_[["variance", "noise_variance"]]
    >>> axes = daskgp.plot.hyperparameter_map(fields, axes=Figure().subplots(1, 2))
    >>> [ax.get_title() for ax in axes]
    ['variance (y^2)', 'noise_variance (y^2)']
    """
    shown = {str(k): v for k, v in fields.data_vars.items() if not str(k).endswith(ERROR)}
    titled = {with_unit(name, grids.unit_of(one)): one for name, one in shown.items()}
    if max((one.ndim for one in titled.values()), default=0) > 1:
        return maps(titled, names=names, title=title, coast=coast, axes=axes, path=path)
    features = [str(name) for name in fields.coords if name not in fields.dims]
    if len(features) != 2:
        raise InputError(
            f"the hyper-parameters vary over {', '.join(features) or 'nothing'}: a map needs two "
            "features, give model.hyperparameter_map(grid) of a grid of two dimensions"
        )
    X = np.column_stack([fields[name].values for name in features])
    X, known = places.columns_on_a_map(X, features)
    panels = {name: one.values for name, one in titled.items()}
    return maps(X, panels, names=names or known, title=title, coast=coast, axes=axes, path=path)
