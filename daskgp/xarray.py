"""The accessor ``gp`` of xarray objects, which ``import daskgp.xarray`` registers."""

from __future__ import annotations

from typing import Any, Literal, overload

import xarray as xr

from daskgp.estimators import GaussianProcess
from daskgp.maps.kriging import interpolate


@xr.register_dataset_accessor("gp")
@xr.register_dataarray_accessor("gp")
class Accessor:
    """Gaussian-process maps of a Dataset or DataArray.

    Parameters
    ----------
    values : Dataset or DataArray

    Examples
    --------
    >>> import numpy as np, xarray as xr, daskgp.xarray
    >>> rng = np.random.default_rng(0)
    >>> y = xr.DataArray(np.sin(np.arange(30.0)), {"t": np.arange(30.0)}, name="y")
    >>> float(y.where(y.t != 7).gp.interpolate()["y"].sel(t=7)).__round__(1)
    0.7
    """

    def __init__(self, values: xr.Dataset | xr.DataArray) -> None:
        self._values = values

    @overload
    def interpolate(
        self, like: Any = ..., *, return_model: Literal[False] = ..., **how: Any
    ) -> xr.Dataset: ...
    @overload
    def interpolate(
        self, like: Any = ..., *, return_model: Literal[True], **how: Any
    ) -> tuple[xr.Dataset, GaussianProcess]: ...
    def interpolate(self, like: Any = None, **how: Any) -> Any:
        """Return the map of a target on a grid, by default that of the values themselves.

        Parameters
        ----------
        like : Dataset, DataArray, mapping or str, optional
            Grid of the map.
        **how
            As for `daskgp.interpolate`.

        Examples
        --------
        >>> import numpy as np, xarray as xr, daskgp.xarray
        >>> y = xr.DataArray(np.sin(np.arange(30.0)), {"t": np.arange(30.0)}, name="y")
        >>> y.gp.interpolate({"t": [6.5, 7.5]}).sizes["t"]
        2
        """
        return interpolate(self._values, like, **how)
