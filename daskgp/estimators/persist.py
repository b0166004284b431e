"""Estimators to model stores and back: settings and arrays, no pickle, no class paths."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp import kernels
from daskgp.errors import DaskgpError, SettingError, StoreError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.cagp import CaGP
from daskgp.estimators.cggp import CGGP
from daskgp.estimators.decoupled import SVGP, DecoupledGP
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.experts import ExpertsGP
from daskgp.estimators.lma import LMA, PIC
from daskgp.estimators.opticom import OptiComGP
from daskgp.estimators.settings import CHOICES
from daskgp.estimators.sgpr import SGPR
from daskgp.estimators.ssgp import SparseSpectrumGP
from daskgp.flow.io import models as stores
from daskgp.flow.io import remove
from daskgp.flow.members import Members, open_rows
from daskgp.flow.nearby import Nearby, open_nearby
from daskgp.flow.solved import Solved
from daskgp.flow.supports import Supports
from daskgp.kernels import Kernel
from daskgp.model import Theta
from daskgp.models import by_name
from daskgp.scaling import Scaling
from daskgp.typing import Device

if TYPE_CHECKING:
    import zarr

ESTIMATORS: dict[str, type[GaussianProcess]] = {
    estimator.model_name: estimator
    for estimator in (
        SGPR,
        LMA,
        PIC,
        ExpertsGP,
        OptiComGP,
        CaGP,
        CGGP,
        DecoupledGP,
        SVGP,
        SparseSpectrumGP,
        ExactGP,
    )
}
SETTING, NEAR = "setting_", "near_"


def save(estimator: GaussianProcess, url: str) -> None:
    """Write a fitted estimator to a new model store."""
    kept = estimator.solved_.kept
    write_rows = None if kept is None else kept.write
    stores.write(str(url), _stored(estimator), _notes(estimator), write_rows)


def save_into(estimator: GaussianProcess, group: zarr.Group, url: str) -> None:
    """Write a fitted estimator into a store reserved before the fit, which keeps its rows."""
    kept, at = estimator.solved_.kept, stores.rows_url(url)
    if kept is not None and not kept.lies_at(at):  # in memory, or those of a prepared store
        remove(at)
        kept.write(at)
    stores.fill(group, _stored(estimator), _notes(estimator))


def load(url: str, device: Device | None = None) -> GaussianProcess:
    """Read a fitted estimator from a model store.

    Parameters
    ----------
    url : str or path
        A local path or any fsspec URL.
    device : {"auto", "cpu", "gpu"}, optional
        Where the estimator computes; default as it was fitted.

    Returns
    -------
    estimator
        Of the class named in the store, looked up in the registry, ready to predict.

    Raises
    ------
    StoreError
        If there is no store, or it is incomplete, damaged or of another version.
    SettingError
        If there is no such device.
    """
    if device not in (None, *CHOICES["device"]):
        raise SettingError(
            f"device={device!r}: choose one of {', '.join(map(repr, CHOICES['device']))}"
        )
    found = stores.read(str(url))
    try:
        return _restored(found, device, str(url))
    except DaskgpError as error:
        raise StoreError(f"model store {url}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"model store {url} is damaged: {error!r}") from error


def _stored(estimator: GaussianProcess) -> stores.Stored:
    solved = estimator.solved_
    arrays: dict[str, np.ndarray] = {
        f"state_{name}": np.asarray(value) for name, value in solved.state._asdict().items()
    }
    arrays |= {f"scaling_{k}": v for k, v in vars(solved.scaling).items()}
    if solved.theta.inputs is not None:
        arrays["inputs"] = solved.theta.inputs
    if solved.kept is not None:
        arrays |= {NEAR + name: values for name, values in solved.kept.arrays().items()}
    settings: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, str | bool | int | float | None):
            settings[name] = value
        elif isinstance(value, Kernel):
            settings[name] = {"kernel": value.to_dict()}
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            settings[name] = list(value)
        else:
            arrays[SETTING + name] = np.asarray(value)
    attributes = {
        "model": estimator.model_name,
        "method": solved.model.name,
        "model_settings": vars(solved.model),
        "settings": settings,
        "kernel": solved.theta.kernel.to_dict(),
        "noise_variance": solved.theta.noise_variance,
        "feature_names": list(solved.feature_names),
        "target_names": list(solved.target_names),
        "vector_target": solved.vector_target,
        "dtype": solved.dtype,
        "objective": estimator.objective_,
        "n_rows": estimator.n_rows_,
    }
    if solved.kept is not None:
        attributes["blocks"] = solved.kept.token
    # what JSON makes of it is what a reader will check
    return stores.stored(arrays, json.loads(json.dumps(attributes)))


def _notes(estimator: GaussianProcess) -> dict[str, Any]:
    return {"history": estimator.history_}


def _restored(found: stores.Stored, device: Device | None, url: str) -> GaussianProcess:
    attributes, arrays = found.attributes, found.arrays
    if attributes["model"] not in ESTIMATORS:
        raise SettingError(
            f"unknown model {attributes['model']!r}: known are {', '.join(ESTIMATORS)}"
        )
    model_type = by_name(attributes.get("method", attributes["model"]))
    settings = dict(attributes["settings"])
    for name, value in settings.items():
        if isinstance(value, dict):
            settings[name] = kernels.from_dict(value["kernel"])
    settings |= _part(arrays, SETTING)
    settings["device"] = device or settings["device"]
    estimator = ESTIMATORS[attributes["model"]](**settings)
    theta = Theta(
        kernels.from_dict(attributes["kernel"]),
        float(attributes["noise_variance"]),
        arrays.get("inputs"),
    )
    state_type, kept = model_type.state_type, None
    if model_type.keeps_rows:
        kept = open_kept(stores.rows_url(url), _part(arrays, NEAR))
        if kept.token != attributes["blocks"]:
            raise StoreError("its rows are not those of the fit: fit again")
    solved = Solved(
        model_type(**attributes["model_settings"]),
        theta,
        state_type(**{name: arrays[f"state_{name}"] for name in state_type._fields}),
        Scaling(**{f.name: arrays[f"scaling_{f.name}"] for f in dataclasses.fields(Scaling)}),
        tuple(attributes["feature_names"]),
        tuple(attributes["target_names"]),
        bool(attributes["vector_target"]),
        str(attributes["dtype"]),
        settings["device"],
        kept,
    )
    estimator._set_solved(solved)
    objective = attributes["objective"]
    estimator.objective_ = None if objective is None else float(objective)
    estimator.n_rows_ = int(attributes["n_rows"])
    estimator.history_ = list(found.notes.get("history", []))
    return estimator


def open_kept(url: str, arrays: dict[str, np.ndarray]) -> Nearby | Members | Supports:
    """Training rows that a model store keeps, as its arrays describe them."""
    if "edges" in arrays:
        return Supports(open_rows(url), arrays["edges"])
    if "starts" in arrays:
        return Members(open_rows(url), arrays["starts"])
    return open_nearby(url, arrays)


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    found = arrays.items()
    return {name.removeprefix(prefix): a for name, a in found if name.startswith(prefix)}
