"""What users write is found by the command: in a folder, by a variable, in an installed package."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from commands import one_line, refused
from docs_text import ROOT, code_blocks

import daskgp
from daskgp import registry
from daskgp.errors import SettingError, StoreError
from daskgp.estimators import ESTIMATORS
from daskgp.models import REGISTRY
from daskgp.models.sparse.sgpr import SGPR
from daskgp.registry import Registry

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text()
(MODULE,) = (code for code in code_blocks(PAGE, "python") if "class LinearModel" in code)
(ENTRIES,) = (text for text in code_blocks(PAGE, "toml") if "daskgp.estimators" in text)
ROWS = np.random.default_rng(0).standard_normal((120, 3))


def run(folder, *arguments, **environment):
    """Run the command in a folder that is not among those of modules, as an installed one is."""
    path = os.pathsep.join([str(ROOT), environment.pop("path", "")])
    return subprocess.run(
        [sys.executable, "-P", "-m", "daskgp", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with the module of the page, and a model that the command has fitted with it."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "bayesian.py").write_text(MODULE)
    table = np.column_stack([ROWS, ROWS @ [1.0, -2.0, 0.5]])
    np.savetxt(folder / "rows.csv", table, delimiter=",", header="a,b,c,y", comments="")
    what = ("fit", "rows.csv", "model.zarr", "--target", "y", "--workers", 1)
    done = run(folder, *what, "--model", "bayesian-linear", "--plugin", "bayesian")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_model_is_predicted_with_where_its_module_is_named(stored):
    what = ("predict", "model.zarr", "rows.csv")
    for i, more in enumerate([{"DASKGP_PLUGINS": "bayesian"}, {}]):
        given = [] if more else ["--plugin", "bayesian"]
        done = run(stored, *given, *what, f"{i}.csv", "--workers", 1, **more)
        assert done.returncode == 0, done.stderr
        found = np.loadtxt(stored / f"{i}.csv", delimiter=",", skiprows=1)
        np.testing.assert_allclose(found[:, 4], found[:, 3], atol=0.1)


def test_a_package_that_names_its_model_is_imported_when_it_is_asked_for(stored, tmp_path):
    group, _, line = ENTRIES.partition("\n")
    package = tmp_path / "bayesian-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: bayesian\nVersion: 1.0\n")
    name, _, value = line.strip().partition(" = ")
    name_of_group = group.split('"')[1]
    entries = f"[{name_of_group}]\n{name} = {value.strip(chr(34))}\n"
    (package / "entry_points.txt").write_text(entries)
    (tmp_path / "bayesian.py").write_text(MODULE)
    done = run(stored, "predict", "model.zarr", "rows.csv", "entry.csv", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    done = run(stored, "plan", "rows.csv", "--model", "sgpr", path=str(tmp_path))
    assert "bayesian" not in done.stderr


def test_without_its_module_a_model_is_refused_with_what_to_do(stored):
    model, rows = stored / "model.zarr", stored / "rows.csv"
    line = refused("predict", model, rows, stored / "no.csv")
    assert "unknown model 'bayesian-linear'" in line
    assert "--plugin MODULE" in line
    done = run(stored, "info", "model.zarr")
    assert done.returncode == 0
    assert "bayesian-linear" in done.stdout
    assert "has the model 'bayesian-linear', which no module has registered" in done.stderr
    with pytest.raises(StoreError, match="import the module that registers it"):
        daskgp.load(model)
    line = refused("fit", rows, stored / "no.zarr", "--target", "y", "--model", "bayesian-linear")
    assert "--plugin MODULE" in line


def test_a_cluster_without_the_module_is_refused_before_any_work(tmp_path, scheduler, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "only_here.py").write_text("")
    np.savetxt(tmp_path / "rows.csv", ROWS, delimiter=",", header="a,b,y", comments="")
    what = ("fit", "rows.csv", "m.zarr", "--target", "y", "--model", "sgpr")
    line = refused(*what, "--plugin", "only_here", "--scheduler", scheduler, "--quiet")
    assert "worker tcp://" in line
    assert "cannot import 'only_here'" in line
    assert "PYTHONPATH" in line
    assert not (tmp_path / "m.zarr").exists()


@pytest.mark.parametrize(
    ("module", "says"),
    [("bayesian.py", "without .py"), ("no_such", "No module named 'no_such'"), ("broken", "1/0")],
)
def test_a_module_that_cannot_be_imported_is_named_in_one_line(module, says, tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('1/0')\n")
    done = run(tmp_path, "info", "model.zarr", "--plugin", module)
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert f"cannot import {module!r}" in line
    assert says in line


# -- registries --------------------------------------------------------------------------------


@pytest.fixture
def kept():
    """The registries as they are, and before again."""
    before = [(known, dict(known)) for known in (ESTIMATORS, REGISTRY)]
    yield
    for known, were in before:
        known.clear()
        known.update(were)


def test_an_estimator_is_registered_with_its_method(kept):
    class Own(SGPR):
        name = "own"

    @daskgp.estimators.register
    class OwnGP(daskgp.SGPR):
        model_name = "own"

        def _model(self):
            return Own()

    assert ESTIMATORS["own"] is OwnGP
    assert REGISTRY["own"] is Own
    assert daskgp.estimators.register(OwnGP) is OwnGP  # again, as in a notebook
    for kind in (type("Other", (OwnGP,), {}), type("Nameless", (OwnGP,), {"model_name": None})):
        with pytest.raises(SettingError, match=f"give {kind.__name__} its|{kind.__name__}.model_n"):
            daskgp.estimators.register(kind)
    clash = type("Clash", (SGPR,), {"name": "lma"})
    taken = type("Taken", (OwnGP,), {"model_name": "taken", "_model": lambda self: clash()})
    with pytest.raises(SettingError, match="'lma' is that of the method LMA: give Clash its own"):
        daskgp.estimators.register(taken)
    assert "taken" not in ESTIMATORS


def test_an_unregistered_method_is_not_saved(tmp_path):
    class Stray(SGPR):
        name = "stray"

    class StrayGP(daskgp.SGPR):
        def _model(self):
            return Stray()

    model = StrayGP("rbf", n_inducing=5, optimizer=None).fit(ROWS, ROWS[:, 0])
    with pytest.raises(SettingError, match=r"decorate the class with daskgp\.estimators\.register"):
        model.save(tmp_path / "m.zarr")


def test_a_package_that_does_not_have_what_it_says_is_named(monkeypatch):
    known = Registry("kernel", "daskgp.kernels", {"rbf": daskgp.kernels.RBF})
    points = [
        EntryPoint("lost", "no_such_module:Kernel", "daskgp.kernels"),
        EntryPoint("none", "math:pi", "daskgp.kernels"),
    ]
    monkeypatch.setattr(
        registry, "entry_points", lambda group, name: [p for p in points if p.name == name]
    )
    assert known.knows("rbf")
    assert not known.knows("other")
    with pytest.raises(SettingError, match="no_such_module:Kernel as the kernel 'lost', which can"):
        known.find("lost")
    with pytest.raises(SettingError, match="math:pi as the kernel 'none', which does not register"):
        known.find("none")
    for name in ("other", None, ["rbf"]):
        with pytest.raises(SettingError, match=r"unknown kernel .*: choose one of rbf, or import"):
            known.find(name)
