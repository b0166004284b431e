"""Human-readable tables of what stores contain and plans need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from daskgp.cli import profile
from daskgp.data.stores import groups, models, transactions
from daskgp.fit.plan import size_text
from daskgp.models.categories import shown as shown_levels

if TYPE_CHECKING:
    from daskgp.assess.leaderboard import Leaderboard
    from daskgp.estimators import CaGP, GaussianProcess
    from daskgp.fit.plan import Plan
    from daskgp.posterior.posterior import Posterior

NAMES_SHOWN, RUNS_SHOWN, SEEN_SHOWN = 12, 5, 12
WIDE = 140
"""Columns of a terminal that has room for all columns of trials."""


def describe(url: str) -> None:
    """Print the essentials of a dataset, model or prediction store."""
    group = groups.open_group(transactions.place_of(url), "store")
    kind = profile.kind_of(url, group)
    table = _table(f"{kind} {url}")
    if kind == profile.MODEL and (writer := models.written_by(group)):
        table.add_row("written by", writer)
    if kind == profile.DATASET:
        _dataset(table, profile.dataset(url, group), group.attrs.asdict())
    elif kind == profile.PREDICTIONS:
        _predictions(table, profile.predictions(url, group))
    elif (several := profile.composed(url)) is not None:
        _composed(table, several)
    else:
        model = profile.model(url, group)
        if isinstance(model, Mapping):
            _unloaded(table, model)
        else:
            _model(table, model)


def describe_plan(
    method: str,
    plan: Plan,
    limit: int | None,
    remedy: str | None,
    workers: int,
    max_iter: int | None,
    device: str,
    staged: bool = False,
) -> None:
    """Print what a fit will need, and on which device it would compute.

    ``max_iter`` is None where nothing is trained, and that of every stage of ``staged`` training.
    """
    table = _table("plan of a fit")
    table.add_row("method", method)
    share = f"; {workers} workers are busy for {plan.busy(workers):.0%} of a round"
    for name, text in plan.described().items():
        table.add_row(name, text + (share if name == "tasks per round" and workers > 1 else ""))
    table.add_row("a worker may use", "no limit" if limit is None else size_text(limit))
    table.add_row("device", device)
    if plan.seconds is not None:
        what = "the fit" if max_iter is None else "an iteration"
        table.add_row(what, f"about {_duration(plan.seconds)} on {_counted(workers, 'worker')}")
    if plan.most_workers is not None:
        served = _counted(max(1, round(plan.most_workers)), "worker")
        table.add_row("one scheduler keeps busy", f"about {served}")
    if plan.seconds is not None and max_iter is not None:
        each = " per stage" if staged else ""
        most = _duration(max_iter * plan.seconds)
        table.add_row(f"max_iter={max_iter}{each}", f"at most {most}{each}")
    table.add_row("fits", "yes" if remedy is None else f"no: {remedy}")
    _show(table)


def _dataset(table: Table, contents: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    """Show a dataset; ``names`` has those of its columns if they are named."""
    table.add_row("rows", f"{contents['rows']:,}")
    features = f"{len(contents['features'])}: {_listed(names.get('feature_names'))}"
    table.add_row("features", features)
    _add_units(table, contents["units"])
    _add_categories(table, contents["categories"])
    if contents["geographic"]:
        table.add_row("longitude, latitude", _listed(contents["geographic"]))
    targets = f"{len(contents['targets'])}: {_listed(names.get('target_names'))}"
    table.add_row("targets", targets if contents["targets"] else "none: inputs of a prediction")
    if contents["noise"]:
        table.add_row("noise of each row", " and ".join(contents["noise"]))
    if contents["columns"]:
        table.add_row("for a likelihood", " and ".join(contents["columns"]))
    table.add_row("chunks", f"{contents['chunks']:,} of {contents['chunk_rows']:,} rows")
    blocks = contents["blocks"]
    if blocks is not None:
        table.add_row("blocks", f"{blocks['number']:,} of {blocks['rows']:,} rows")
        along = _listed(blocks["along"]) if "along" in blocks else f"seed {blocks['seed']}"
        table.add_row("order", f"{blocks['order']}: {along}")
    table.add_row("type", contents["dtype"])
    table.add_row("size of X", size_text(contents["bytes"]))
    table.add_row("complete", {True: "yes", False: "no"}.get(contents["complete"], "not said"))
    _show(table)


def _predictions(table: Table, contents: Mapping[str, Any]) -> None:
    if "grid" in contents:
        table.add_row("grid", " x ".join(f"{d} {n:,}" for d, n in contents["grid"].items()))
        table.add_row("arrays", ", ".join(contents["arrays"]))
        size = " x ".join(f"{step:,}" for step in contents["chunk_cells"]) + " cells"
    else:
        table.add_row("rows", f"{contents['rows']:,}")
        size = f"{contents['chunk_rows']:,} rows"
    table.add_row("targets", _listed(contents["targets"]))
    table.add_row(
        "chunks done", f"{contents['chunks_done']:,} of {contents['chunks']:,}, of {size}"
    )
    table.add_row("complete", "yes" if contents["complete"] else "no: predict --resume continues")
    for what in ("model", "model_checksum", "input", "input_checksum"):
        table.add_row(what.replace("_", " "), str(contents[what]))
    _add_lock(table, contents)
    _show(table)
    runs = contents["runs"][-RUNS_SHOWN:]
    if runs:
        names = ("started", "exit", "rows", "skipped", "seconds", "error")
        headers = ("found done" if name == "skipped" else name for name in names)
        latest = Table(*headers, title="latest runs")  # the last one at the bottom
        for run in runs:
            latest.add_row(*("" if run.get(name) is None else str(run[name]) for name in names))
        _show(latest)


def _add_lock(table: Table, contents: Mapping[str, Any]) -> None:
    if contents["lock"] is not None:
        table.add_row("lock", f"held by {contents['lock']}")


def _unloaded(table: Table, contents: Mapping[str, Any]) -> None:
    """Show what is known of a model that is not complete, or cannot be loaded by itself."""
    if not contents["complete"]:
        table.add_row("complete", "no: fit --resume continues")
        for what, number in contents["kept"].items():
            table.add_row(f"{what} kept", f"{number:,}")
        _add_lock(table, contents)
    else:
        columns = {name: contents[name] or [] for name in ("features", "targets")}
        texts = {name: f"{len(own)}: {_listed(own)}" for name, own in columns.items()}
        texts |= {"rows": f"{contents['rows']:,}", "complete": "yes"}
        for name, value in contents.items():
            table.add_row(name, texts.get(name, str(value)))
    _show(table)


def _composed(table: Table, contents: Mapping[str, Any]) -> None:
    """Show a model made of several, and then each of these."""
    parts: Mapping[str, GaussianProcess] = contents["parts"]
    texts = {"classes": _listed(contents.get("classes")), "parts": _listed(parts)}
    texts["complete"] = "yes"
    for name, value in contents.items():
        table.add_row(name, texts.get(name, str(value)))
    _show(table)
    for name, estimator in parts.items():
        _model(_table(name), estimator)


def _model(table: Table, estimator: GaussianProcess) -> None:
    posterior = estimator.solved_
    if posterior.each:
        _separate(table, estimator)
        names = (f"target {name}" for name in posterior.target_names)
        for name, part in zip(names, estimator.parts_, strict=True):
            _model(_table(name), part)
        return
    _add_model(table, estimator)
    _show(table)
    _show(_parameters("hyper-parameters", estimator.hyperparameters_))
    if estimator.solved_.scaling.trend is not None:
        _show(_parameters("trend", estimator.trend_))
    if estimator._board is not None:
        _show(_trials_table(estimator._board))
    seen = _seen_table(estimator)
    if seen.row_count:
        _show(seen)


def _separate(table: Table, estimator: GaussianProcess) -> None:
    """Show what the models of separate targets that have rows of their own have in common."""
    posterior = estimator.solved_
    _add_head(table, estimator, "values")
    _add_objective(table, estimator)
    table.add_row("complete", "yes")
    table.add_row("checksum", posterior.token)
    _show(table)
    if estimator._board is not None:
        _show(_trials_table(estimator._board))
    _show(_seen_table(estimator))


def _add_head(table: Table, estimator: GaussianProcess, counted: str) -> None:
    posterior = estimator.solved_
    table.add_row("model", estimator.model_name)
    table.add_row(counted, f"{estimator.n_rows_:,}")
    _add_features(table, posterior)
    table.add_row("targets", f"{posterior.n_targets}: {_listed(posterior.target_names)}")
    if posterior.scaling.transform is not None:
        table.add_row("transform of targets", posterior.scaling.transform.describe())


def _add_model(table: Table, estimator: GaussianProcess) -> None:
    from daskgp.estimators import CaGP, ExpertsGP
    from daskgp.estimators.variational import VariationalGP

    posterior = estimator.solved_
    _add_head(table, estimator, profile.counted(posterior))
    if posterior.theta.inputs is not None:
        table.add_row(estimator._inputs.label, f"{len(posterior.theta.inputs):,}")
    if isinstance(estimator, ExpertsGP):
        table.add_row("combination", f"{estimator.aggregation} of {estimator.expert} experts")
        if posterior.rows is None:
            table.add_row("experts", f"{estimator.n_experts_:,}")
    if isinstance(estimator, CaGP):
        _add_actions(table, estimator)
    elif posterior.rows is not None:
        for name, text in profile.kept_rows(posterior).items():
            table.add_row(name, text)
    if isinstance(estimator, VariationalGP):
        _add_functions(table, posterior.state)
    _add_kernel(table, estimator)
    _add_spread(table, estimator)
    _add_objective(table, estimator)
    table.add_row("dtype", posterior.dtype)
    table.add_row("device", posterior.device)
    table.add_row("complete", "yes")
    table.add_row("checksum", posterior.token)


def _add_spread(table: Table, estimator: GaussianProcess) -> None:
    """Add what was learned about the spread of predictions."""
    posterior = estimator.solved_
    if posterior.spread != 1.0:
        how = {"blocks": "of held-out blocks", "random": "of held-out random rows"}
        source = how.get(str(estimator.calibrate), "of rows left out one by one")
        table.add_row("factor on the spread", f"{posterior.spread:.4g}, {source}")
    wider = posterior.outer(True).wider(0.95)
    if wider != 1.0:
        table.add_row("tails", f"95 % intervals of y are {wider:.3g} times as wide as normal ones")


def _add_features(table: Table, posterior: Posterior) -> None:
    """Add the names of the features, and of those that are constant."""
    table.add_row("features", f"{posterior.n_features}: {_listed(posterior.feature_names)}")
    _add_units(table, profile.units_in(posterior.feature_names, posterior.feature_units))
    _add_categories(table, posterior.categories)
    if posterior.geographic is not None:
        lon, lat = (posterior.feature_names[j] for j in posterior.geographic)
        table.add_row("on the sphere", f"longitude {lon}, latitude {lat}; distances in km")
    uses = zip(posterior.columns.inputs_names, posterior.scaling.uses, strict=True)
    constant = [name for name, used in uses if not used]
    if constant:
        table.add_row("constant, left out", _listed(constant))


def _add_units(table: Table, units: Mapping[str, str]) -> None:
    """Add the units of features that are known."""
    if units:
        table.add_row("units", _listed([f"{name} in {unit}" for name, unit in units.items()]))


def _add_categories(table: Table, categories: Mapping[str, Sequence[str]]) -> None:
    """Add the number of levels of features that are categories, and the first ones."""
    for name, levels in categories.items():
        table.add_row(f"levels of {name}", f"{len(levels):,}: {shown_levels(levels)}")


def _add_functions(table: Table, state: Any) -> None:
    """Add the numbers of functions of a variational GP."""
    table.add_row("functions of the covariance", f"{len(state.root):,}")
    table.add_row("functions of the mean", f"{len(state.weights) + len(state.shared_weights):,}")


def _add_kernel(table: Table, estimator: GaussianProcess) -> None:
    """Add the kernel and the noise, as far as the method has them."""
    method = estimator.solved_.method
    if method.uses_kernel:
        table.add_row("kernel", escape(profile.kernel_text(estimator.solved_.users_kernel)))
    if method.shows_noise:
        _add_noise(table, estimator)


def _add_noise(table: Table, estimator: GaussianProcess) -> None:
    """Add the distribution of y given f: its noise, or another likelihood."""
    posterior, noise = estimator.solved_, estimator.noise_variance_
    if posterior.likelihood is not None:
        table.add_row("likelihood", f"{posterior.likelihood!r}")
        return
    each = ", ".join(f"{one:.6g}" for one in np.atleast_1d(noise))
    table.add_row("noise variance", f"{each} (standardised)")
    stds = np.sqrt(noise) * posterior.scaling.y_scale
    what = "y" if posterior.scaling.transform is None else "transformed y"
    table.add_row(f"noise std, units of {what}", ", ".join(f"{std:.4g}" for std in stds))


def _add_objective(table: Table, estimator: GaussianProcess) -> None:
    if estimator.objective_ is None:
        return
    evidence = profile.evidence(estimator)
    scaled = evidence is not None and evidence != estimator.objective_
    table.add_row("objective", f"{estimator.objective_:.8g}{' (standardised)' * scaled}")
    if evidence is not None:
        table.add_row("log evidence or bound", f"{evidence:.8g}")
    table.add_row("iterations", f"{len(estimator.history_)}")
    last = estimator.history_[-1] if estimator.history_ else {}
    if "predicted_gain" in last:
        gain, recipe = last["predicted_gain"], estimator.recipe()
        said = "has converged"
        if gain > recipe.tol * len(estimator.hyperparameters_):
            cut = len(estimator.history_) >= recipe.max_iter
            said = (
                "has not converged: raise max_iter" if cut else "ended early, or rounding hides it"
            )
        label = "gain of one more step of training"
        table.add_row(label, f"{gain:.2g} nats of the objective; training {said}")
    if "expected_loss" in last:
        label = "expected loss compared with training on all rows, nats"
        table.add_row(label, f"{last['expected_loss']:.2g}")


def _parameters(title: str, parameters: Any) -> Table:
    """Return parameters in the units of the data, "-" for an unknown standard error."""
    names = ("name", "value", "standard error", "unit")
    caption = escape("\n".join(parameters.remarks)) or None
    table = Table(
        *names, title=title, title_justify="left", caption=caption, caption_justify="left"
    )
    for row in parameters.texts():
        table.add_row(*map(escape, row))
    return table


def _trials_table(board: Leaderboard) -> Table:
    """Return the trials of the search that has chosen a model, and its findings about the data.

    On a terminal that is not wide, kernel and note stand below the method, without the columns of
    least use.
    """
    rows = board.to_rows()
    if Console().width < WIDE:
        rows = [_narrowed(row, board.metric) for row in rows]
    caption = "\n".join(board.findings) or None
    title = f"chosen of {len(board)} trials by {board.metric} of held-out rows"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name, value in rows[0].items():
        table.add_column(name, overflow="fold", no_wrap=not isinstance(value, str))
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    return table


def _narrowed(row: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return a row of trials for a narrow terminal."""
    words = [row[name] for name in ("method", "kernel", "note") if row[name]]
    numbers = {name: row[name] for name in ("rows", metric, "error", "seconds")}
    return {"": row["chosen"], "method, kernel": "\n".join(words), **numbers}


def _seen_table(estimator: GaussianProcess) -> Table:
    """Return the rows that a model has seen, the latest at the bottom."""
    table = Table(title="rows seen")
    table.add_column("when", overflow="fold")
    for name in ("what", "rows", "from", "to"):
        table.add_column(name)
    table.add_column("dataset", overflow="fold")
    for note in estimator._fitted.seen[-SEEN_SHOWN:]:
        first, last = note.get("span", ("", ""))
        where = str(note.get("store") or "given in Python")
        number = f"{note.get('rows'):,}{' values' * ('values' in note)}"
        cells = (note.get("when"), note.get("what"), number, first, last, where)
        table.add_row(*map(str, cells))
    return table


def _table(title: str) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _add_actions(table: Table, estimator: CaGP) -> None:
    """Add the actions, the points that they are made of, and what was maximised."""
    kept = estimator._supports()
    kind = estimator.actions if isinstance(estimator.actions, str) else "given"
    text = f"{estimator.n_actions_:,} {kind}"
    dropped = kept.count - estimator.n_actions_
    table.add_row("actions", f"{text}, {dropped:,} dropped" if dropped else text)
    points = int(estimator.solved_.state.points)
    table.add_row("points", f"{points:,} of {estimator.n_rows_:,} rows")
    if len(kept.edges):
        sizes = np.diff(kept.edges)
        smallest, largest = sizes.min(), sizes.max()
        between = f"{largest:,}" if smallest == largest else f"{smallest:,} or {largest:,}"
        table.add_row("support of an action", f"{between} rows")
    else:
        table.add_row("support of an action", "all points")
    table.add_row("loss", estimator.loss)


def _show(table: Table) -> None:
    Console().print(table)


def _listed(names: Any) -> str:
    names = [str(name) for name in names] if names else ["not named"]
    more = f", ... ({len(names)} in all)" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _duration(seconds: float) -> str:
    """Return two digits in a suitable unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{float(f'{seconds / length:.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"
