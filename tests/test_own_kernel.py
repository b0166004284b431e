"""Kernels that users write: found right or wrong, registered, stored and read by others."""

import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from commands import invoke
from docs_text import ROOT, code_blocks

import daskgp
from daskgp import kernels, testing
from daskgp.errors import SettingError, StoreError
from daskgp.kernels import RBF, Constant, Kernel
from daskgp.kernels.registry import describe, identity

PAGE = (ROOT / "docs" / "guides" / "own-kernel.md").read_text()


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A folder with the module of the page, the model that the page saves, and its period."""
    folder = tmp_path_factory.mktemp("page")
    module, check, use = code_blocks(PAGE, "python")
    (folder / "cosine.py").write_text(module)
    period = "print(daskgp.load('waves.zarr').kernel_.parts[0].period)"
    status, out, error = run(folder, "-c", "\n".join([check, use, period]))
    assert status == 0, error
    kernel, found = out.splitlines()
    assert kernel.startswith("Sum(parts=(Cosine(period=")
    return folder, float(found)


@pytest.fixture
def registry(monkeypatch):
    """A registry that is as it was after the test."""
    before = dict(kernels.REGISTRY)
    yield kernels.REGISTRY
    kernels.REGISTRY.clear()
    kernels.REGISTRY.update(before)


@dataclass(frozen=True)
class Halved(RBF):
    """Half of what it is derived from, under its name."""

    def __call__(self, X, Z=None, out=None):
        K = super().__call__(X, Z, out)
        K *= 0.5
        return K


@dataclass(frozen=True)
class Named(RBF):
    """A class derived from another, with a name of its own."""

    name = "named"


def test_the_page_runs_and_finds_the_period(page):
    assert page[1] == pytest.approx(3, rel=0.01)


def test_a_process_that_did_not_import_the_module_says_so(page):
    with pytest.raises(StoreError, match="unknown kernel 'cosine'") as caught:
        daskgp.load(page[0] / "waves.zarr")
    assert "import the module that registers it" in str(caught.value)


def test_info_without_the_module_shows_the_rest_and_the_command_of_the_page(page):
    folder, _ = page
    result = invoke("info", folder / "waves.zarr")
    assert result.exit_code == 0, result.stderr
    text = re.sub(r"[\s│]+", " ", result.stdout)
    for part in ("model sgpr", "rows 300", "features 1: x0", "kernel unknown: 'cosine'"):
        assert part in text
    (line,) = result.stderr.splitlines()
    assert "has the kernel 'cosine', which no module has registered: import the module" in line
    arguments = line.partition("as in daskgp ")[2].replace("MODULE", "cosine").split()
    status, out, error = run(folder, "-m", "daskgp", *arguments)
    assert status == 0, error
    assert "cosine matern32" in out


@pytest.mark.slow
def test_workers_get_the_class_by_its_module(page):
    code = (
        "import cosine, daskgp, numpy as np\n"
        "if __name__ == '__main__':\n"
        "    x = np.linspace(0, 1, 60)[:, None]\n"
        "    kernel = cosine.Cosine(0.5)\n"
        "    settings = dict(n_inducing=9, optimizer=None, device='cpu')\n"
        "    here = daskgp.SGPR(kernel, **settings).fit(x, x[:, 0]).predict(x)\n"
        "    with daskgp.connect(n_workers=1):\n"
        "        there = daskgp.SGPR(kernel, **settings).fit(x, x[:, 0]).predict(x)\n"
        "    np.testing.assert_array_equal(here, there)\n"
    )
    (page[0] / "script.py").write_text(code)
    status, _, error = run(page[0], "script.py")
    assert status == 0, error


@pytest.mark.parametrize("kernel", [Halved(0.7), Halved(0.7) + RBF(1.0), 2.0 * Halved(0.7)])
def test_a_derived_class_under_the_name_of_another_is_not_stored(kernel, tmp_path):
    X = np.linspace(0, 1, 30)[:, None]
    model = daskgp.ExactGP(kernel, optimizer=None, device="cpu").fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    says = "Halved is not registered, so another kernel would be loaded"
    with pytest.raises(SettingError, match=says) as caught:
        model.save(tmp_path / "m.zarr")
    assert "\n" not in str(caught.value)
    assert "call daskgp.kernels.register(Halved)" in str(caught.value)
    assert not (tmp_path / "m.zarr").exists()
    with pytest.raises(SettingError, match=says):
        kernel.to_dict()


def test_a_kernel_that_describes_another_is_not_stored():
    class Liar(RBF):
        def to_dict(self):
            return RBF(2.0).to_dict()

    with pytest.raises(SettingError, match="class Liar cannot be stored: its to_dict"):
        describe(Liar(2.0))


def test_a_registered_class_comes_back(registry, tmp_path):
    assert kernels.register(Named) is Named
    assert kernels.register(Named) is Named  # again, as in a notebook
    assert kernels.parse("named(2) + 1") == Named(2.0) + 1
    X = np.linspace(0, 1, 30)[:, None]
    model = daskgp.ExactGP("named(0.4)", max_iter=2, device="cpu").fit(X, X[:, 0])
    model.save(tmp_path / "m.zarr")
    again = daskgp.load(tmp_path / "m.zarr")
    assert again.kernel_ == model.kernel_
    assert again.get_params()["kernel"] == model.get_params()["kernel"]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_classes_that_cannot_be_registered(registry):
    @dataclass(frozen=True)
    class Forgetful(RBF):
        name = "forgetful"

        def with_log_parameters(self, values):
            return RBF().with_log_parameters(values)

    @dataclass(frozen=True)
    class Secretive(RBF):
        name = "secretive"

        def to_dict(self):
            return {"kernel": "secretive", "variance": 1.0}

    @dataclass(frozen=True)
    class Needy(RBF):
        name = "needy"

        def __init__(self, lengthscale):
            super().__init__(lengthscale)

    named = type("Spaced", (RBF,), {"name": "two words"})
    cases = {
        Halved: "the name 'rbf' is that of the kernel RBF: give Halved its own name",
        type("Total", (RBF,), {"name": "sum"}): "the name 'sum' is that of the kernel Sum",
        named: "Spaced.name is 'two words': a lower-case word is needed",
        type("None_", (RBF,), {"name": "none"}): "which text reads as a value",
        Forgetful: "Forgetful becomes a RBF with other hyper-parameters",
        Secretive: "class Secretive cannot be stored: its to_dict",
        Needy: "Needy must be a frozen dataclass whose fields have defaults",
        int: "is not a kernel class",
        "rbf": "'rbf' is not a kernel class",
    }
    before = dict(registry)
    for kind, says in cases.items():
        with pytest.raises(SettingError) as caught:
            kernels.register(kind)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
    assert registry == before


def test_a_checkpoint_knows_classes_of_the_same_name():
    other = dataclass(frozen=True)(type("RBF", (RBF,), {"__module__": "elsewhere"}))
    assert repr(other(1.0)) == repr(RBF(1.0))
    assert identity(other(1.0)) != identity(RBF(1.0)) == repr(RBF(1.0))
    assert identity(other(1.0) + 1) != identity(RBF(1.0) + 1)


def test_predictions_know_classes_of_the_same_name():
    X = np.linspace(0, 1, 30)[:, None]
    settings = {"optimizer": None, "device": "cpu"}
    pair = [daskgp.ExactGP(k(0.7), **settings).fit(X, X[:, 0]) for k in (RBF, Halved)]
    assert len({model.solved_.token for model in pair}) == 2


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("diag_vjp", "diagonal"),
        ("__call__", "Not equal"),
        ("weighted", "Not equal"),
    ],
)
def test_the_check_finds_what_a_derived_class_forgot(method, says):
    def doubled(self, *arguments, **named):
        found = getattr(RBF, method)(self, *arguments, **named)
        if method == "diag_vjp":
            return found._replace(log_parameters=2 * found.log_parameters)
        found *= 2
        return found

    kernel = type("Wrong", (RBF,), {method: doubled})(0.7)
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError, match=says):
        testing.check_kernel(kernel, rng.uniform(size=(9, 2)), rng.uniform(size=(7, 2)))


@pytest.mark.parametrize("kernel", [kind(active_dims=(0,)) for kind in (RBF,)] + [Constant(2.0)])
def test_a_kernel_is_abstract_but_for_its_description(kernel):
    assert "to_dict" not in Kernel.__abstractmethods__
    assert kernels.from_dict(kernel.to_dict()) == kernel
