"""The public names: that they are there, documented, and cheap to import."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import daskgp
from daskgp import errors, kernels, likelihoods, metrics, testing
from daskgp.cli.methods import MODELS
from daskgp.estimators import ESTIMATORS

ROOT = Path(__file__).parents[1]
HIDDEN = ("cupy", "matplotlib")
KERNELS, METHODS = set(kernels.REGISTRY.values()), set(ESTIMATORS.values())
"""Classes of the package, before tests add theirs."""
COMMON = {
    *("kernel", "noise_variance", "mean", "standardize", "optimizer", "max_iter", "tol"),
    *("block_rows", "dtype", "device", "store", "random_state", "progress"),
}


def lacking(estimator):
    """The common settings that an estimator lacks, which is not trained or for so many steps."""
    if hasattr(estimator()._model(), "evaluate"):
        return set()
    return {"tol"} if hasattr(estimator, "partial_fit") else {"optimizer", "tol"}


def public(module):
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return {name: getattr(module, name) for name in names}


def members():
    for module in (daskgp, kernels, likelihoods, metrics, errors, testing):
        for name, value in public(module).items():
            if not callable(value):
                continue
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for own, member in vars(value).items():
                    if not own.startswith("_") and (
                        inspect.isfunction(member) or isinstance(member, property)
                    ):
                        yield f"{module.__name__}.{name}.{own}", getattr(value, own)


def test_the_exports_are_those_of_the_interface():
    assert set(daskgp.__all__) == {estimator.__name__ for estimator in METHODS} | {
        "AutoGP",
        "GPClassifier",
        "HurdleGP",
        "open_dataset",
        "convert",
        "prepare",
        "priors",
        "storage_options",
        "to_geotiff",
        "variogram",
        "load",
        "metrics",
        "plan",
        "plot",
        "check",
        "connect",
        "cross_validate",
        "interpolate",
        "kernels",
        "errors",
        "DaskgpError",
        "InputError",
    }
    for name in daskgp.__all__:
        assert getattr(daskgp, name) is not None
        assert name in dir(daskgp)
    with pytest.raises(AttributeError, match="no attribute 'SPGR'"):
        daskgp.SPGR  # noqa: B018


def test_the_help_of_the_command_names_every_method():
    assert set(MODELS) == {estimator.model_name for estimator in METHODS}


def test_the_module_docstring_is_the_table_of_contents():
    for name in daskgp.__all__:
        if name != "errors":
            assert name in daskgp.__doc__, name


def test_the_parts_of_the_interface_are_there():
    assert {kernel.__name__ for kernel in KERNELS} <= set(kernels.__all__)
    for name in ("rmse", "mae", "nmse", "nlpd", "crps", "coverage", "interval_score"):
        assert callable(getattr(metrics, name))
    for estimator in METHODS:
        for name in ("fit", "predict", "sample_y", "score", "log_marginal_likelihood", "save"):
            assert callable(getattr(estimator, name))
        predict = list(inspect.signature(estimator.predict).parameters)
        assert predict[:5] == ["self", "X", "return_std", "return_cov", "include_noise"]
        more = ["return_computational"] if estimator is daskgp.CaGP else []
        columns = ["trials", "exposure", "offset"]
        assert predict[5:] == [*more, "y_variance", "quantiles", *columns]
        assert {*inspect.signature(estimator).parameters} >= COMMON - lacking(estimator)
    assert {*inspect.signature(daskgp.SGPR).parameters} >= COMMON | {"n_inducing", "inducing"}
    for estimator in (one for one in METHODS if hasattr(one, "partial_fit")):
        assert callable(estimator.predict_proba)
        shared = {*inspect.signature(daskgp.SVGP).parameters} - {"n_inducing"}
        assert {*inspect.signature(estimator).parameters} >= shared


@pytest.mark.parametrize(
    ("name", "value"), list(members()), ids=lambda v: v if type(v) is str else ""
)
def test_every_public_name_has_a_docstring_of_its_own(name, value):
    text = inspect.getdoc(value)  # a method may have that of the base class
    assert text, name
    assert text.splitlines()[0].endswith((".", ":")), name
    if inspect.isclass(value):
        assert value.__doc__, name


def test_every_module_imports_and_says_what_it_is_for():
    for found in pkgutil.walk_packages(daskgp.__path__, "daskgp."):
        if found.name.endswith("__main__"):
            continue
        assert importlib.import_module(found.name).__doc__, found.name


def imported(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_importing_does_not_load_what_may_be_missing_or_is_not_needed():
    assert not imported("import daskgp") & {*HIDDEN, "dask", "zarr", "xarray", "sklearn"}
    loaded = imported("import daskgp\nfor name in daskgp.__all__: getattr(daskgp, name)")
    assert not loaded & {*HIDDEN, "sklearn.metrics", "sklearn.cluster"}
    assert "daskgp.estimators.sgpr" in loaded


def test_a_fit_on_the_cpu_does_not_load_cupy_or_matplotlib():
    loaded = imported(
        "import numpy as np, daskgp\n"
        "X = np.linspace(0, 1, 30)[:, None]\n"
        "daskgp.SGPR(n_inducing=5, optimizer=None, device='cpu').fit(X, X[:, 0]).predict(X)"
    )
    assert not loaded & set(HIDDEN)


def test_errors_can_be_caught_by_kind():
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.RunError, RuntimeError)
    for error in public(errors).values():
        assert issubclass(error, daskgp.DaskgpError)


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert daskgp.__version__ == version("daskgp")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"\A(?:(?!^## ).*\n)+## (\S+) \(\d{4}-\d\d-\d\d\)$"),
        ("docs/guides/deployment.md", r"daskgp:(\d[\d.]*)"),
        ("examples/schedule/cronjob.yaml", r"daskgp:(\d[\d.]*)"),
    ],
)
def test_files_that_name_the_version_name_that_of_the_package(file, named):
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(named, (ROOT / file).read_text(), re.MULTILINE) == [said]
