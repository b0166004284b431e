"""Write the tables of the page "Which method" from results of ``auto.py`` and ``defaults.py``.

    python workflows/benchmarks/which.py

Results are lines of JSON in ``docs/benchmarks/results``, as these scripts keep them with ``--out``;
where several have the same key the last one counts.  The page is changed between its two marks.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median

from harness import markdown

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = DOCS / "benchmarks" / "results", DOCS / "guides" / "which.md"
MARKS = "<!-- from results -->\n\n", "\n\n<!-- end of results -->"
SETS = {
    "bike": "bike",
    "pol": "pol",
    "elevators": "elevators",
    "protein": "protein",
    "kin40k": "kin40k",
    "keggdirected": "keggdirected",
    "friedman": "Friedman's function",
    "heteroscedastic": "noise that varies",
    "satellite": "satellite temperatures, gaps",
    "air": "air temperatures, gaps in space and time",
    "stations": "station temperatures, months left out",
    "terrain": "terrain",
    "exponential": "drawn exponential field, gaps",
    "survey": "drawn survey along lines",
}
METHODS = {
    "lma": "`LMA`",
    "vecchia": "`VecchiaGP`",
    "sgpr": "`SGPR`",
    "svgp": "`SVGP`",
    "experts": "`ExpertsGP`",
    "exact": "`ExactGP`, 5,000 rows",
    "gpboost": "GPBoost Vecchia",
    "gpytorch": "GPyTorch SVGP",
}
BUDGET = 600.0
NEAR = 0.03
"""Nats within which scores are as good."""
Results = dict[tuple[str, str], dict]


def results() -> Results:
    """Return the last record of each set and method; ``auto`` with ten minutes."""
    found: Results = {}
    for name in ("defaults", "auto"):
        for line in (RESULTS / f"{name}.jsonl").read_text().splitlines():
            record = json.loads(line)
            key = record["key"]["set"], record["key"].get("method", "auto")
            budget = record["key"].get("budget", BUDGET)
            if budget == BUDGET:
                found[key] = record
    return found


def number(record: Mapping | None, name: str, best: float | None = None) -> str:
    """Return a score, in bold if it is the best; a dash where there is none."""
    value = None if record is None else record.get(name)
    if value is None:
        return "–"
    text = f"{value:.4f}" if name == "rmse" else f"{value:.3f}"
    text = text.replace("-", "−")
    return f"**{text}**" if value == best else text


def chosen(remark: str) -> str:
    """Return method and kernel of a remark of ``auto.py`` as the page writes them."""
    method, _, kernel = remark.partition(", ")
    kernel = re.sub(r", \d+ trials$", "", kernel).replace(" (ard)", "")
    kernel = re.sub(r"matern(\d)(\d)", r"Matérn-\1/\2", kernel).replace("rbf", "RBF")
    own = {word.strip("`").lower(): word for word in METHODS.values()}
    return f"{own.get(method, method)}, {kernel}"


def on_real_tables(found: Results) -> str:
    """Return a row per set: what AutoGP chose, and the best of the others."""
    rows = []
    for name, words in SETS.items():
        auto = found.get((name, "auto"))
        if auto is None:
            continue
        own = {m: found[name, m]["nlpd"] for m in METHODS if "nlpd" in found.get((name, m), {})}
        single = min((m for m in own if m[:2] != "gp"), key=own.__getitem__, default=None)
        peer = found.get((name, "gpboost"))
        best = min([auto["nlpd"], *own.values()])
        rows.append(
            [
                words,
                f"{auto['n']:,} × {auto['d']}",
                str(auto["threads"]),
                chosen(auto["remark"]),
                number(auto, "rmse"),
                number(auto, "nlpd", best if own else None),
                number(auto, "coverage"),
                "–"
                if single is None
                else f"{METHODS[single]}, {number(found[name, single], 'nlpd', best)}",
                number(peer, "nlpd", best),
            ]
        )
    heads = ["Rows", "Size", "Cores", "`AutoGP` chose", "RMSE", "NLPD", "Coverage of 95 %"]
    return markdown([*heads, "Best single default, NLPD", "GPBoost, NLPD"], rows)


def of_methods(found: Results) -> str:
    """Return a row per method: its distance from the best of all, over the sets it has."""
    every = {"auto": "`AutoGP`, 10 minutes", **METHODS}
    scored = {k: r["nlpd"] for k, r in found.items() if "nlpd" in r and k[1] in every}
    compared = [name for name in SETS if sum(k[0] == name for k in scored) > 1]
    best = {name: min(v for k, v in scored.items() if k[0] == name) for name in compared}
    rows = []
    for method, words in every.items():
        sets = [name for name in compared if (name, method) in scored]
        if sets:
            gaps = [scored[name, method] - best[name] for name in sets]
            seconds = [found[name, method]["processor_s"] for name in sets]
            near = sum(gap <= NEAR for gap in gaps)
            cells = f"{mean(gaps):.2f}", f"{median(gaps):.3f}", f"{max(gaps):.2f}"
            rows.append([words, f"{near} of {len(sets)}", *cells, f"{median(seconds):,.0f}"])
    heads = ["Method", f"Within {NEAR} of the best", "Mean gap, nats", "Median", "Largest"]
    return markdown([*heads, "Processor seconds, median"], rows)


def written(text: str) -> str:
    """Return the page with its tables made anew."""
    found, (begin, end) = results(), MARKS
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{PAGE} lacks the marks {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{on_real_tables(found)}\n\n{of_methods(found)}{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
