"""Write golden stores: fitted models with what they predict, which every later version must give.

    python -m tests.golden.write NAME [NAME ...]     names of MODELS that have no store yet

A new method or layer adds a line to MODELS and is written once, by the version that brings it.  A
store is never written again: it says what that version's models predict.  Where a version computes
an answer differently on purpose, ``--again QUESTION`` writes that answer of the stored models.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import kernels
from daskgp.posterior.layers import Tails
from tests.contract import cases
from tests.golden.answers import answered, answers

HERE = Path(__file__).parent
N = 60
KERNEL = kernels.Matern32((0.8, 0.8), variance=1.2)
FEW = {"n_support": 6, "block_rows": 12}
FOUND = {"kernel": KERNEL, "optimizer": None, "noise_variance": 0.1}


def rows(kind):
    """Rows of a golden model: X, y and what else a fit is given."""
    X, y = cases.rows(N)
    rng, low = np.random.default_rng(7), np.maximum(y, -0.3)
    return {
        "plain": (X, y, {}),
        "two": (X, np.column_stack([y, 3 - 2 * y + 0.3 * X[:, 0]]), {}),
        "two-positive": (X, np.column_stack([np.exp(y), 9 + y]), {}),
        "trend": (X, y + 2 * X[:, 0] - X[:, 1] + 5, {}),
        "positive": (X, np.exp(y), {}),
        "errors": (X, y, {"y_variance": rng.uniform(0.01, 0.5, N)}),
        "weights": (X, y, {"sample_weight": rng.uniform(0.5, 2.0, N)}),
        "globe": (X * [60, 25] + [90, -30], y, {}),
        "classes": (X, np.where(y > 0, 1.0, 0.0), {}),
        "counts": (X, np.round(np.exp(y + 0.5)), {}),
        "areas": (np.column_stack([X, np.where(np.arange(N) % 3, 0.3 * X[:, 1], 0.0)]), y, {}),
        "coarse": (1_000 * X, 100 + 40 * y, {}),
        "levels": (np.column_stack([X, np.arange(N) % 3]), y + np.arange(N) % 3, {}),
        "shares": (X, 1 / (1 + np.exp(-y)), {}),
        "ranks": (X, np.digitize(y, (-0.4, 0.4)), {}),
        "trials": (X, np.round(6 / (1 + np.exp(-y))), {"trials": np.full(N, 6.0)}),
        "exposed": (X, np.round(np.exp(y + 0.5)), {"exposure": rng.uniform(0.5, 2.0, N)}),
        "limits": (X, low, {"lower": np.where(y < -0.3, -np.inf, y), "upper": low}),
        "rain": (X, np.where(y < 0, 0.0, y), {}),
    }[kind]


def sgpr(**more):
    return daskgp.SGPR(n_inducing=8, progress=False, **FOUND | more)


def lma(**more):
    return daskgp.LMA(progress=False, **FOUND | FEW | more)


def svgp(likelihood):
    return daskgp.SVGP(
        KERNEL, likelihood=likelihood, n_inducing=8, batch_rows=24, max_iter=6, progress=False
    )


def exact(**more):
    return daskgp.ExactGP(progress=False, **FOUND | more)


def by_sites(make, likelihood):
    """Make a model whose likelihood is that of Gaussian sites, with hyper-parameters trained."""
    settings = {"kernel": "matern32()", "optimizer": "auto", "noise_variance": 0.1}
    return make(likelihood=likelihood, max_iter=5, **settings)


def vecchia(**more):
    return daskgp.VecchiaGP(n_neighbours=12, block_rows=12, progress=False, **FOUND | more)


BEAM = {
    "type": "Polygon",
    "coordinates": [[[1.51, 0.0], [1.57, 0.0], [1.57, 2.0], [1.51, 2.0], [1.51, 0.0]]],
}
"""Land between the rows of "plain", as GeoJSON."""


def behind_land(X, y):
    """Fit rows that see one another past land alone."""
    return vecchia(barriers=BEAM).fit(pd.DataFrame(X, columns=["x", "y"]), y)


def classifier(X, y):
    """Fit a classifier of three classes."""
    base = by_sites(vecchia, "gaussian")
    return daskgp.GPClassifier(base).fit(X, np.digitize(y, (-0.4, 0.4)))


def hurdle(X, y):
    """Fit amounts of which many are zero."""
    parts = (by_sites(exact, name) for name in ("bernoulli-logit", "gamma"))
    return daskgp.HurdleGP(*parts).fit(X, y)


def chosen(X, y):
    """Fit what AutoGP chooses: of the few rows, an exact GP."""
    return daskgp.AutoGP(time_budget=20, random_state=0, progress=False).fit(X, y)


def joint(make):
    """Fit targets together, trained, the second of which is missing in some rows."""

    def fit(X, y):
        y[::3, 1] = np.nan
        kernel = kernels.Matern32()
        return make(targets="joint", kernel=kernel, optimizer="auto", max_iter=5).fit(X, y)

    return fit


def with_gaps(model):
    """Fit targets of which each is missing in some rows."""

    def fit(X, y):
        y[::3, 1], y[1::7, 0] = np.nan, np.nan
        return model.fit(X, y)

    return fit


def slope():
    """A fitted regressor, as users bring one."""
    X, y, _ = rows("trend")
    return LinearRegression().fit(X, y)


def updated(model):
    """Fit a model to two thirds of the rows, and add the others."""

    def fit(X, y):
        return model.fit(X[:40], y[:40]).update(X[40:], y[40:])

    return fit


def tailed(model):
    """Fit a model, and give intervals of y heavy tails."""

    def fit(X, y):
        model.fit(X, y)
        tails = Tails((0.5, 0.9, 0.99), (0.5, 1.6, 3.4))
        model.solved_ = model.solved_.with_layers(tails)
        return model

    return fit


def fields():
    """Hyper-parameters that vary over space, as users give them."""
    low, high = np.meshgrid([0.0, 1.5, 3.0], [0.0, 3.0])
    at = {name: ("knot", one.ravel()) for name, one in (("x0", low), ("x1", high))}
    variance, noise = (("knot", np.exp(sign * low.ravel() - 1)) for sign in (0.5, -0.5))
    return xr.Dataset({"variance": variance, "noise_variance": noise}, at)


MODELS = {
    **{f"method-{name}": (cases.fixed(name), "plain") for name in cases.SETTINGS},
    "trained-sgpr": (cases.make("sgpr", n_inducing=6), "coarse"),
    "trained-lma": (cases.make("lma"), "coarse"),
    "trained-experts": (cases.make("experts"), "coarse"),
    "lma-order": (lma(neighbours="order", markov_order=2, prediction="paper"), "plain"),
    "lma-blocks": (lma(predict_rows=None), "plain"),
    **{
        f"experts-{rule}": (
            daskgp.ExpertsGP(
                expert="exact", n_experts=3, aggregation=rule, progress=False, **FOUND
            ),
            "plain",
        )
        for rule in ("poe", "gpoe", "bcm", "rbcm", "grbcm", "npae", "optimal")
    },
    "two-targets-sgpr": (sgpr(), "two"),
    "two-targets-lma": (lma(), "two"),
    "two-targets-exact": (exact(), "two"),
    "joint-targets-vecchia": (joint(vecchia), "two"),
    "joint-targets-exact": (joint(exact), "two"),
    "joint-targets-sgpr": (joint(sgpr), "two"),
    "joint-targets-lma": (joint(lma), "two"),
    "separate-targets-vecchia": (with_gaps(vecchia()), "two"),
    "separate-targets-exact": (with_gaps(exact(target_transform="boxcox")), "two-positive"),
    "trend-sgpr": (sgpr(mean="linear"), "trend"),
    "trend-lma": (lma(mean="linear"), "trend"),
    "trend-exact": (exact(mean="linear"), "trend"),
    "constant-sgpr": (sgpr(mean="constant"), "trend"),
    "regressor-sgpr": (sgpr(mean=slope()), "trend"),
    "log-sgpr": (sgpr(target_transform="log"), "positive"),
    "boxcox-lma": (lma(target_transform="boxcox"), "positive"),
    "errors-sgpr": (sgpr(), "errors"),
    "errors-lma": (lma(), "errors"),
    "weights-exact": (exact(), "weights"),
    "geographic-sgpr": (
        sgpr(kernel=kernels.Matern12(0.4), geographic=(0, 1)),
        "globe",
    ),
    "geographic-lma": (lma(kernel=kernels.Matern12(0.4), geographic=(0, 1)), "globe"),
    **{
        f"likelihood-{name}": (svgp(name), kind)
        for name, kind in {
            "student-t": "plain",
            "bernoulli": "classes",
            "bernoulli-logit": "classes",
            "poisson": "counts",
        }.items()
    },
    "sites-poisson-vecchia": (by_sites(vecchia, "poisson"), "counts"),
    "sites-bernoulli-logit-lma": (by_sites(lma, "bernoulli-logit"), "classes"),
    "sites-student-t-sgpr": (by_sites(sgpr, "student-t"), "plain"),
    **{
        f"sites-{name}-exact": (by_sites(exact, name), kind)
        for name, kind in {
            "negative-binomial": "counts",
            "binomial": "trials",
            "gamma": "positive",
            "lognormal": "positive",
            "beta": "shares",
            "ordinal": "ranks",
            "censored": "limits",
        }.items()
    },
    "exposed-poisson-exact": (by_sites(exact, "poisson"), "exposed"),
    "classifier-vecchia": (classifier, "plain"),
    "hurdle-exact": (hurdle, "rain"),
    "chosen": (chosen, "plain"),
    "calibrated-sgpr": (sgpr(calibrate="loo"), "plain"),
    "calibrated-lma": (lma(calibrate="random"), "plain"),
    "tails-lma": (tailed(lma()), "plain"),
    "tails-log-sgpr": (tailed(sgpr(target_transform="log")), "positive"),
    "float32-sgpr": (sgpr(dtype="float32"), "plain"),
    "unscaled-sgpr": (sgpr(standardize=False), "coarse"),
    "sum-sgpr": (sgpr(kernel=kernels.RBF(0.7) + kernels.Linear() * 0.1), "plain"),
    "periodic-exact": (
        exact(kernel=kernels.Periodic(period=0.9, active_dims=0) * kernels.Matern52(1.5)),
        "plain",
    ),
    "averaged-exact": (exact(footprint=2), "areas"),
    "averaged-vecchia": (
        vecchia(kernel=kernels.Averaged(KERNEL, 2, shape="box", order=2) + 0.1 * kernels.Linear()),
        "areas",
    ),
    "rotated-exact": (exact(kernel=kernels.Rotated(kernels.RBF((1.5, 0.5)), angle=30.0)), "plain"),
    "rotated-vecchia": (vecchia(kernel=kernels.Rotated(KERNEL, angle=30.0)), "plain"),
    "support-vecchia": (vecchia(n_support=6), "plain"),
    "barriers-vecchia": (behind_land, "plain"),
    "footprint-vecchia": (vecchia(footprint=2), "areas"),
    "updated-vecchia": (updated(vecchia()), "plain"),
    "coregion-exact": (
        exact(kernel=KERNEL * kernels.Coregion(2, variance=(1.0, 2.0, 0.5), angle=(1.0, 1.2, 0.9))),
        "levels",
    ),
    "categorical-vecchia": (
        vecchia(kernel=KERNEL * kernels.Categorical(2, correlation=0.6, variance=1.0, levels=3)),
        "levels",
    ),
    "updated-sgpr": (updated(sgpr()), "plain"),
    "updated-lma": (updated(lma()), "plain"),
    "varying-vecchia": (
        vecchia(varying=fields()),
        "errors",
    ),
}


def load(name, folder):
    """Load the model of that name from an unpacked store."""
    with_mean = {"mean": slope()} if name.startswith("regressor") else {}
    return daskgp.load(f"{folder}/model.zarr", **with_mean)


def write(name):
    """Fit the model of that name, and keep it with what it predicts as one zip file."""
    estimator, kind = MODELS[name]
    X, y, more = rows(kind)
    model = estimator(X, y) if callable(estimator) else estimator.fit(X, y, **more)
    some = {"X": X[:6], "y": y[:6]} | {key: value[:6] for key, value in more.items()}
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/{name}"
        model.save(f"{url}/model.zarr")
        loaded = load(name, url)
        np.savez(f"{url}/answers.npz", **answered(loaded, some))
        np.savez(f"{url}/rows.npz", **some)
        shutil.make_archive(str(HERE / name), "zip", url)


def answer_again(name, question):
    """Keep what the stored model answers to a question now, where that changed on purpose."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(HERE / f"{name}.zip", folder)
        with np.load(f"{folder}/answers.npz") as kept, np.load(f"{folder}/rows.npz") as some:
            known, some = dict(kept), dict(some)
        if not any(key.split("/")[0] == question for key in known):
            return
        found = answers(load(name, folder), question, some)
        np.savez(f"{folder}/answers.npz", **known | found)
        shutil.make_archive(str(HERE / name), "zip", folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; default: those without")
    parser.add_argument("--again", metavar="QUESTION", help="answer this one again, such as paths")
    options = parser.parse_args()
    for wanted in options.names or MODELS:
        if options.again:
            answer_again(wanted, options.again)
        elif not (HERE / f"{wanted}.zip").exists():
            write(wanted)
