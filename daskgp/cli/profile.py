"""Contents of stores as values for JSON: the result of ``info --json``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp import data, kernels
from daskgp.data import prediction_store
from daskgp.data.blocks.layout import read_layout
from daskgp.data.rows import GEOGRAPHIC, GIVEN
from daskgp.data.stores import groups, locks, models, remote, run_records, transactions
from daskgp.errors import SettingError, StoreError
from daskgp.kernels.registry import unknown
from daskgp.kernels.units import in_users_units
from daskgp.models.scaling import Scaling

if TYPE_CHECKING:
    from daskgp.estimators import GaussianProcess
    from daskgp.posterior.posterior import Posterior

logger: logging.Logger = logging.getLogger("daskgp")

DATASET, MODEL, PREDICTIONS = "dataset", "model", "predictions"


def kind_of(url: str, group: Any) -> str:
    """Return the kind of a store.

    Raises
    ------
    StoreError
        If it is none of daskgp's.
    """
    stored = group.attrs.get("format")
    if stored == models.FORMAT:
        return MODEL
    if stored == prediction_store.FORMAT:
        return PREDICTIONS
    if groups.holds_rows(group):
        return DATASET
    names = ", ".join(sorted(groups.names_in(transactions.place_of(url)))) or "nothing"
    raise StoreError(
        f"{url} is not a dataset, model or prediction store, it holds {names}: check the path"
    )


def of_store(url: str) -> dict[str, Any]:
    """Return what a dataset, model or prediction store contains; None for what is not known."""
    group = groups.open_group(transactions.place_of(url), "store")
    kind = kind_of(url, group)
    if kind == MODEL and (several := composed(url)) is not None:
        parts = {name: plain(_fitted(one)) for name, one in several["parts"].items()}
        return {"store": url, "kind": kind, **plain({**several, "parts": parts}), **_writer(group)}
    contents = {DATASET: dataset, MODEL: model, PREDICTIONS: predictions}[kind](url, group)
    known = contents if isinstance(contents, dict) else _fitted(contents)
    return {"store": url, "kind": kind, **plain(known), **(_writer(group) if kind == MODEL else {})}


def _writer(group: Any) -> dict[str, str | None]:
    return {models.WRITER: models.written_by(group)}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers of Python, None for those that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def dataset(url: str, group: Any) -> dict[str, Any]:
    """Return what a dataset store contains."""
    X, attributes = data.open_inputs(url), group.attrs.asdict()
    features = list(attributes.get("feature_names") or [f"x{j}" for j in range(X.shape[1])])
    targets: list[str] = []
    beside: list[str] = []
    if "y" in groups.names_in(url):
        _, y = data.open_dataset(url)
        columns = 1 if y.ndim == 1 else y.shape[1]
        targets = list(attributes.get("target_names") or [f"y{j}" for j in range(columns)])
        beside = list(data.beside_in_store(y))
    layout, blocks = read_layout(X), None
    if layout is not None:
        order = layout.order
        blocks = {"number": layout.n_blocks, "rows": layout.block_rows, "order": order.kind}
        blocks |= {"along": list(order.leading)} if order.leading else {"seed": order.seed}
    return {
        "rows": len(X),
        "features": features,
        "units": units_in(features, data.units_of(X, [""] * X.shape[1])),
        "categories": data.levels_of(X, features),
        "geographic": list(attributes.get(GEOGRAPHIC) or []),
        "targets": targets,
        "noise": [name for name in beside if name in GIVEN],
        "columns": [name for name in beside if name not in GIVEN],
        "chunks": X.numblocks[0],
        "chunk_rows": X.chunksize[0],
        "blocks": blocks,
        "dtype": str(X.dtype),
        "bytes": X.nbytes,
        "complete": attributes.get("complete"),
    }


def units_in(names: Sequence[str], units: Sequence[str]) -> dict[str, str]:
    """Return the units of features that are known."""
    return {name: unit for name, unit in zip(names, units, strict=False) if unit}


def predictions(url: str, group: Any) -> dict[str, Any]:
    """Return what a store of predictions contains; StoreError if it lacks an array."""
    place = transactions.place_of(url)
    attributes, present = group.attrs.asdict(), groups.names_in(place)
    labelled = prediction_store.CHUNKS in present
    for name in ("mean",) if labelled else ("mean", "variance", "done"):
        if name not in present:
            raise StoreError(
                f"predictions {url} are incomplete: {name!r} is missing: predict again"
            )
    if labelled:
        target = prediction_store.opened(place)
        done = target.done()
        sizes: dict[str, Any] = {"grid": dict(zip(target.dims, target.shape, strict=True))}
        sizes |= {"arrays": sorted(target.names), "chunk_cells": list(target.steps)}
    else:
        mean = groups.array_of(group, "mean")
        done = groups.values_of(groups.array_of(group, "done"))
        sizes = {"rows": mean.shape[0], "chunk_rows": groups.row_step(mean)}
    names = ("model", "model_checksum", "input", "input_checksum")
    return {
        **sizes,
        "targets": attributes.get("target_names"),
        "chunks": done.size,
        "chunks_done": int(done.sum()),
        "complete": attributes.get("complete") is True,
        **{name: attributes.get(name) for name in names},
        "lock": locks.holder_of(remote.whole(url)),
        "runs": run_records.history(attributes),
    }


def kernel_text(kernel: kernels.Kernel) -> str:
    """Return the hyper-parameters by name; lengthscales per feature are in a table of their own."""
    values = np.exp(kernel.log_parameters)
    pairs = zip(kernel.parameter_names, values, strict=True)
    shown = [f"{name}={value:.4g}" for name, value in pairs if "lengthscale[" not in name]
    names = " ".join(dict.fromkeys(leaf.name for leaf in _leaves(kernel)))
    return f"{names}: {', '.join(shown)}"


def _leaves(kernel: Any) -> list[Any]:
    parts = getattr(kernel, "parts", None)
    return [kernel] if parts is None else [leaf for part in parts for leaf in _leaves(part)]


def composed(url: str) -> dict[str, Any] | None:
    """Return what a store of several models says, with these by name; None of one model."""
    from daskgp.estimators import load_one

    described = models.read_parts(url)
    if described is None:
        return None
    parts = {name: load_one(place) for name, place in described["parts"].items()}
    classes = {"classes": described["classes"]} if "classes" in described else {}
    settings = described.get("settings", {})
    return {"model": described["kind"], **settings, **classes, "parts": parts, "complete": True}


def model(url: str, group: Any) -> GaussianProcess | dict[str, Any]:
    """Return a model; of one that is not complete, or cannot be loaded by itself, what is known."""
    from daskgp.estimators import load_one
    from daskgp.estimators.loading import regressor_of, unregistered

    if group.attrs.get("complete") is False:
        kept = models.kept_of(group)
        kept_as = {} if kept is None else {kept[0]: kept[1]}
        return {"complete": False, "kept": kept_as, "lock": locks.holder_of(url)}
    stored = models.read(url)
    attributes, regressor = stored.attributes, regressor_of(stored)
    strange = unregistered(attributes)
    if not strange and regressor is None:
        return load_one(url)
    if strange:
        logger.warning(
            "model store %s has the %s, which no module has registered: import the module, as in "
            "daskgp info %s --plugin MODULE",
            url,
            " and the ".join(strange),
            url,
        )
    if regressor is not None:
        logger.warning(
            "model store %s was fitted to the residuals of a %s, which stores do not hold: "
            "load it in Python to see more, daskgp.load(%r, mean=regressor)",
            url,
            regressor,
            url,
        )
    return {
        "model": attributes.get("model"),
        "rows": attributes.get("n_rows"),
        "features": attributes.get("feature_names"),
        "targets": attributes.get("target_names"),
        "kernel": _kernel_alone(stored),
        "objective": attributes.get("objective"),
        "iterations": len(stored.notes.get("history", [])),
        "dtype": attributes.get("dtype"),
        "complete": True,
        "checksum": stored.checksum,
    }


def _kernel_alone(stored: models.Stored) -> str:
    """Return the kernel of a model that cannot be loaded by itself, in words."""
    from daskgp.predict.stored import part

    if strange := unknown(stored.attributes["kernel"]):
        return f"unknown: {', '.join(map(repr, strange))}"
    arrays: Any = part(stored.arrays, "scaling_")
    scale = Scaling(**arrays)
    kernel = kernels.from_dict(stored.attributes["kernel"])
    return kernel_text(in_users_units(kernel, len(scale.x_scale), scale.size))


def counted(posterior: Posterior) -> str:
    """Return what a model has a number of: rows, or values of targets that each have their own."""
    return "values" if posterior.joint or posterior.each else "rows"


def evidence(estimator: GaussianProcess) -> float | None:
    """Return the log evidence or its bound, None for a model that has none in units of y."""
    try:
        return estimator.log_marginal_likelihood()
    except (SettingError, StoreError):
        return None


def _fitted(estimator: GaussianProcess) -> dict[str, Any]:
    from daskgp.posterior.layers import Tails

    posterior, inputs = estimator.solved_, estimator.solved_.theta.inputs
    lon_lat, transform, tails = (
        posterior.geographic or (),
        posterior.scaling.transform,
        posterior.layer(Tails),
    )
    method = posterior.method
    first = posterior.each[0] if posterior.each else posterior
    has_noise = posterior.likelihood is None and method.shows_noise
    return {
        "model": estimator.model_name,
        counted(posterior): estimator.n_rows_,
        "features": posterior.feature_names,
        "units": units_in(posterior.feature_names, posterior.feature_units),
        "categories": dict(posterior.categories),
        "geographic": [posterior.feature_names[j] for j in lon_lat],
        "targets": posterior.target_names,
        "transform": None if transform is None else transform.describe(),
        "inducing_inputs": None if inputs is None else len(inputs),
        "kept": None if posterior.rows is None else kept_rows(posterior),
        "kernel": _kernels_text(estimator) if method.uses_kernel else None,
        "likelihood": "gaussian" if posterior.likelihood is None else repr(posterior.likelihood),
        "noise_variance": estimator.noise_variance_ if has_noise else None,
        "spread": posterior.spread,
        "tails": None if tails is None else tails.described,
        "objective": estimator.objective_,
        "log_evidence_or_bound": evidence(estimator),
        "iterations": len(estimator.history_),
        "hyperparameters": [row._asdict() for row in estimator.hyperparameters_],
        "varying": varying_of(estimator),
        "trend": [row._asdict() for row in estimator.trend_] if first.scaling.trend else [],
        "trials": _trials(estimator._board),
        "seen": estimator._fitted.seen,
        "dtype": posterior.dtype,
        "device": posterior.device,
        "complete": True,
        "checksum": posterior.token,
    }


def _kernels_text(estimator: GaussianProcess) -> str:
    """Return the kernel in words; those of separate targets with rows of their own by name."""
    kernel, names = estimator.kernel_, estimator.solved_.target_names
    if not isinstance(kernel, tuple):
        return kernel_text(kernel)
    pairs = zip(names, kernel, strict=True)
    return "; ".join(f"{name}: {kernel_text(one)}" for name, one in pairs)


def varying_of(estimator: GaussianProcess) -> dict[str, Any] | None:
    """Return what is known of hyper-parameters that vary; None where nobody asked for them.

    The gains, in nats per row, are those of ``varying="auto"`` on rows held out.
    """
    from daskgp.fit.varying import GAIN, IN_GAPS

    field = estimator.solved_.theta.varying
    last = estimator.history_[-1] if estimator.history_ else {}
    if field is None and GAIN not in last:
        return None
    gains = {"gain": last.get(GAIN), "gain_in_gaps": last.get(IN_GAPS)}
    return {"taken": field is not None, "knots": 0 if field is None else len(field.knots), **gains}


def kept_rows(posterior: Posterior) -> dict[str, str]:
    """Return what a model that reads training rows back says of them, as text."""
    assert posterior.rows is not None
    told, own = posterior.rows.describe(posterior.state), posterior.method.conditioned_on()
    return told | {"conditioned on": own} if own else told


def _trials(board: Any) -> list[dict[str, Any]]:
    """Return the trials of the search that chose a model, none without a search."""
    if board is None:
        return []
    return [
        {"chosen": number == board.chosen, "metric": board.metric, **trial.to_dict()}
        for number, trial in enumerate(board)
    ]
