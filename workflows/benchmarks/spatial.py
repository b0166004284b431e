"""Methods from the command line, as a user would run them, above all on spatial data.

    [DASKGP_DATA=folder] python workflows/benchmarks/spatial.py [--out results.jsonl]
    python workflows/benchmarks/spatial.py --data satellite --repeats 1 --methods lma,pic,gpboost
    DASKGP_DATA=folder python workflows/benchmarks/spatial.py --data kin40k --methods sgpr-table

Fields: ``satellite``, with DASKGP_DATA the land-surface temperatures of Heaton et al. 2019 with
gaps under clouds, 105,569 rows to learn from and 42,740 to predict; ``survey``, 105,000 generated
rows along lines 400 m apart and 83,000 places between them; ``exponential``, a generated field with
gaps like those of the temperatures; ``srtm``, 1.3 million heights of the Andes with voids; and
``kin40k``, split 0 of that table.  Scores are of y with its noise.

Methods run in turn, each run in a process of its own; the table has medians over repeats.  Seconds
of fit and prediction are those of daskgp's commands, with every start of a cluster.

- ``lma-defaults``: ``daskgp convert``, ``fit --model lma`` and ``predict`` with no setting but the
  number of workers; ``lma-kernel`` is told that the kernel is ``matern12()``; ``lma``, ``pic`` and
  ``sgpr`` have more settings, ``sgpr-table`` a lengthscale per column and more iterations.
- ``vecchia-defaults`` and ``vecchia-kernel`` likewise; ``vecchia`` conditions rows on 60 others and
  predictions on 512, ``vecchia-gaps`` predictions alone, and ``vecchia-few`` rows on 20.
- ``gpboost``: its Vecchia approximation, exponential, 20 neighbours to fit and 50 to predict;
  ``gpboost-ard`` the same with a lengthscale per column.
- ``local``: an exact GP per block of about 300 rows, which predicts the places inside its block.
- ``fvgp``: one log-likelihood of fvGP's gp2Scale on 20,000 rows, a time and no prediction.
"""

import tempfile
from pathlib import Path

import datasets
import harness
from peers import fvgp, gpboost, local

DATA = ("satellite", "survey", "exponential", "srtm", "kin40k")
ROUGH = {"kernel": "matern12()"}
TRAINED = {"n_inducing": 1_024, "train_inducing": "true"}
DASKGP: dict[str, tuple[str, dict[str, object]]] = {
    "lma-defaults": ("lma", {}),
    "lma-kernel": ("lma", ROUGH),
    "lma": (
        "lma",
        {
            **ROUGH,
            "n_support": 256,
            "support": "kmeans",
            "markov_order": 3,
            "predict_order": 5,
            "block_rows": 200,
            "train_blocks": 128,
            "max_iter": 20,
        },
    ),
    "pic": (
        "pic",
        {**ROUGH, "n_support": 256, "block_rows": 300, "train_blocks": 64, "max_iter": 20},
    ),
    "vecchia-defaults": ("vecchia", {}),
    "vecchia-kernel": ("vecchia", ROUGH),
    "vecchia": ("vecchia", {"n_neighbours": 60, "predict_neighbours": 512}),
    "vecchia-few": ("vecchia", {"n_neighbours": 20, "predict_neighbours": 512}),
    "vecchia-gaps": ("vecchia", {"predict_neighbours": 512}),
    "sgpr": ("sgpr", {**ROUGH, **TRAINED, "max_iter": 30}),
    "sgpr-table": ("sgpr", {"kernel": "matern32(ard=true)", **TRAINED, "max_iter": 200}),
}
"""Model and settings."""
PEERS = {
    "gpboost": gpboost.exponential,
    "gpboost-ard": gpboost.exponential_ard,
    "local": local.exact_blocks,
    "fvgp": fvgp.log_likelihood,
}
METHODS = (*PEERS, *DASKGP)


def field(key: dict, folder: Path) -> datasets.Split:
    """Return the rows and places of a run."""
    if key["data"] in ("satellite", "srtm", "kin40k"):
        return datasets.table(key["data"], key["rows"])
    drawn = datasets.stored(folder, key["data"], 0, key["rows"] is not None)
    return drawn.thinned(key["rows"])


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.data)
    for repeat in range(options.repeats):
        lists = {"data": present, "method": options.methods, "repeat": [repeat]}
        yield from harness.runs(options, "rows", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    split = field(key, options.folder)
    if key["method"] in PEERS:
        found = PEERS[key["method"]](split, options.threads)
    else:
        model, settings = DASKGP[key["method"]]
        own = harness.lowered(settings, len(split.y) // 2)
        with tempfile.TemporaryDirectory() as folder:
            harness.convert(Path(folder), split, () if key["data"] == "kin40k" else ("lon", "lat"))
            workers = ("--workers", str(options.threads))
            found = harness.by_command_line(Path(folder), model, own, *workers)
    sizes = {"n": len(split.y), "places": len(split.y_test)}
    scores = ("mae", "rmse", "crps", "interval", "coverage", "nlpd")
    return {**sizes, **found.scored(split.y_test, *scores)}


def table(records: list[dict], options: harness.Options) -> str:
    scores = "mae rmse crps interval coverage nlpd"
    numbers = f"{scores} fit_s predict_s seconds largest_mib peak_mib runs"
    return harness.report(harness.medians(records, "data", "method"), "data method", numbers)


harness.command(
    globals(),
    data=harness.Some(DATA, DATA[:2]),
    methods=harness.Some(METHODS, ("gpboost", "lma-defaults")),
    repeats=(3, 1),
    rows=(None, 600),
)
