"""Tables of results, as the documentation quotes them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from harness.options import Options

COLUMNS = {
    "n": ("rows", ","),
    "mae": ("MAE", ".3f"),
    "rmse": ("RMSE", ".4f"),
    "nmse": ("nMSE", ".4f"),
    "crps": ("CRPS", ".3f"),
    "nlpd": ("NLPD", ".3f"),
    "interval": ("interval score", ".2f"),
    "coverage": ("coverage of 95 %", ".3f"),
    "density": ("mean log density", ".4f"),
    "truth": ("of the true rate", ".4f"),
    "bound": ("bound per row", ".3f"),
    "objective": ("bound", ",.1f"),
    "trained": ("by rows trained on", ".3f"),
    "value_s": ("seconds of a value and gradient", ".3f"),
    "rate": ("rows/s", ",.0f"),
    "floor_s": ("floor s", ".4f"),
    "over_floor": ("times the floor", ".2f"),
    "over_ours": ("× daskgp", ".2f"),
    "step_s": ("median seconds of a step", ".4f"),
    "mean_s": ("mean", ".4f"),
    "share": ("share of reading", ".1%"),
    "pass_s": ("seconds of a pass", ".1f"),
    "efficiency": ("efficiency", ".2f"),
    "scheduler_ms": ("scheduler ms per task", ".2f"),
    "shortest_task_s": ("shortest task s", ".1f"),
    "moved_gb": ("moved GB", ".1f"),
    "setup_s": ("s before the first", ".1f"),
    "command_mib": ("MiB of a command", ",.0f"),
    "fit_s": ("fit s", ".2f"),
    "predict_s": ("predict s", ".2f"),
    "seconds": ("seconds", ",.1f"),
    "processor_s": ("processor seconds", ",.1f"),
    "wall_s": ("seconds", ",.2f"),
    "cpu_s": ("processor seconds", ",.2f"),
    "more_mib": ("more MiB", ",.0f"),
    "load": ("load", ".0f"),
    "largest_mib": ("largest process MiB", ",.0f"),
    "peak_mib": ("peak MiB", ",.0f"),
    "memory_over_ours": ("× daskgp", ".2f"),
    "gb_per_s": ("GB/s", ".1f"),
    "gemm_share": ("of the product", ".2f"),
    "pairs_per_s": ("pairs/s", ".3g"),
    "ok": ("as asked for", "d"),
    "differs": ("differs by", ".0e"),
    "at_180": ("difference at ±180", ".0e"),
    "at_poles": ("at poles", ".0e"),
}
"""Heading and format of numbers in tables; others have their name, and three decimals."""


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, as the documentation quotes it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def column(name: str) -> tuple[str, str]:
    """Return the heading of a number, and its format if it has one of its own."""
    return COLUMNS.get(name, (name.replace("_", " "), ""))


def cell(record: Mapping | None, name: str, form: str = "") -> str:
    """Return one number of a result; a dash where there is none."""
    value = None if record is None else record.get(name)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, form or ("," if isinstance(value, int) else ",.3f")).replace("-", "−")


def number(record: Mapping | None, name: str, form: str) -> str:
    """Return one number of a result, or why there is none."""
    if record and "ended_after_s" in record:
        return f"> {record['ended_after_s'] / 60:.0f} min" if name == "seconds" else "–"
    return "failed" if record and "failed" in record else cell(record, name, form)


def report(records: Sequence[Mapping], labels: str, numbers: str) -> str:
    """Return a row per run: parts of its key, numbers, and why there are none."""
    why = [r.get("failed") or r.get("absent") or r.get("remark") or "" for r in records]
    columns = [(name, *column(name)) for name in numbers.split()]
    rows = [
        [
            *(str(r["key"].get(label, "")) for label in labels.split()),
            *((cell if "failed" in r else number)(r, name, form) for name, _, form in columns),
            *([reason] if any(why) else []),
        ]
        for r, reason in zip(records, why, strict=True)
    ]
    heads = [*labels.split(), *(head for _, head, _ in columns)]
    return markdown([*heads, *(["remark"] if any(why) else [])], rows)


def reporting(labels: str, numbers: str) -> Callable[[list[dict], Options], str]:
    """Return the table of a script that shows each run as it is."""
    return lambda records, options: report(records, labels, numbers)


def grouped(records: Iterable[Mapping], *names: str) -> dict[tuple, list[Mapping]]:
    """Return the runs by some parts of their keys."""
    found: dict[tuple, list[Mapping]] = {}
    for record in records:
        found.setdefault(tuple(record["key"].get(name) for name in names), []).append(record)
    return found


def medians(records: Iterable[Mapping], *names: str) -> list[dict[str, Any]]:
    """Return one record per group of runs that are alike in parts of their keys: the medians."""
    found = []
    for values, runs in grouped(records, *names).items():
        ran = [r for r in runs if not {"failed", "absent", "ended_after_s"} & set(r)]
        numbers = {n for r in ran[-1:] for n, v in r.items() if isinstance(v, float)}
        middle = {n: median(r[n] for r in ran if r.get(n) is not None) for n in numbers}
        key = dict(zip(names, values, strict=True))
        found.append({**runs[-1], **middle, "key": key, "runs": len(ran)})
    return found


def tables(
    records: Sequence[Mapping], numbers: str, down: Mapping[str, Sequence], **across: Sequence
) -> str:
    """Return a table per score with what is in the keys, in its order, down and across."""
    ((name, order),) = across.items()
    found = {place: runs[-1] for place, runs in grouped(records, *down, name).items()}
    heads = [head for head in order if any(place[-1] == head for place in found)]
    rows = [row for row in product(*down.values()) if any((*row, head) in found for head in heads)]
    parts = []
    for score in numbers.split():
        title, form = column(score)
        lines = (
            [" ".join(map(str, row)), *(number(found.get((*row, h)), score, form) for h in heads)]
            for row in rows
        )
        parts.append(markdown([title, *heads], lines))
    return "\n\n".join(parts)


def slope(records: Sequence[Mapping], size: str, name: str) -> str:
    """Return the slope of the logarithm of a number against that of a size in the keys."""
    ran = [(record["key"][size], record[name]) for record in records if name in record]
    if len({n for n, _ in ran}) < 2:
        return "–"
    return f"{np.polyfit(*np.log(np.transpose(ran)), 1)[0]:.3f}"
