"""What is said of methods, kernels and settings that users write, on those of the page."""

import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from logs import warnings_in
from test_extending import PAGES

import daskgp
from daskgp import kernels, likelihoods, models, testing
from daskgp.choose.candidates import Candidate
from daskgp.cli import profile
from daskgp.errors import SettingError, StoreError
from daskgp.estimators import ESTIMATORS
from daskgp.estimators.settings import check_settings
from daskgp.fit.arrange import Blocks
from daskgp.posterior.layers.base import REGISTRY as LAYERS

X = np.random.default_rng(0).uniform(0, 10, (60, 2))
Y = np.sin(X[:, 0])
MADE = ESTIMATORS, kernels.REGISTRY, LAYERS
KNOWN = ESTIMATORS, models.REGISTRY, kernels.REGISTRY, likelihoods.REGISTRY, LAYERS


@pytest.fixture(scope="module")
def page():
    """The classes of the page, by name; registries are as before afterwards."""
    before, found = [dict(known) for known in KNOWN], {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("celsius", "logistic", "bayesian", "nearest", "learned"):
            module = ModuleType(name)
            patch.setitem(sys.modules, name, module)
            exec(compile(PAGES[name][0], name, "exec"), vars(module))
            found |= vars(module)
        yield found
    for known, were in zip(KNOWN, before, strict=True):
        known.clear()
        known.update(were)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("Nearest", {"kernel": "rbf"}, "kernel='rbf' has no effect, as Nearest has no kernel: lea"),
        ("Nearest", {"k": 2.5}, "k=2.5: a whole number is needed"),
        ("Nearest", {"k": True}, "k=True: a whole number is needed"),
        ("Nearest", {"power": "2"}, "power='2': a number is needed"),
        ("Nearest", {"k": 0}, "k=0, power=2.0: both must be greater than 0"),
        ("Nearest", {"max_iter": 3}, "max_iter=3 has no effect with optimizer=None: leave max_it"),
        ("LinearGP", {"kernel": "rbf"}, "LinearGP needs the kernel linear(), not RBF("),
    ],
)
def test_settings_that_a_method_cannot_take_are_refused_before_any_work(page, kind, settings, says):
    model = page[kind](**settings)
    with testing.no_compute(), pytest.raises(SettingError) as caught:
        model.fit(X, Y)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_any_kind_are_settings(page):
    check_settings(page["Nearest"](k=np.int64(3), power=np.float32(2), block_rows=np.int32(20)))
    check_settings(page["Nearest"](power=2))
    check_settings(page["LinearGP"](kernel=kernels.Linear(2.0)))


def test_a_method_without_a_kernel_shows_none(page):
    model = page["Nearest"](k=3).fit(X, Y)
    assert model.hyperparameters_ == ()
    told = profile._fitted(model)
    assert (told["kernel"], told["noise_variance"]) == (None, None)
    assert told["kept"]["conditioned on"] == "the 3 rows nearest to a place"
    with pytest.raises(SettingError, match=r"only has the spread of new .*noise=True$"):
        model.predict(X[:1], return_std=True)
    std = model.predict(X[:1], return_std=True, include_noise=True)[1]
    assert std == pytest.approx(np.sqrt(model.solved_.state.error) * Y.std())  # and no noise beside


def test_a_method_that_is_no_gp_is_not_held_against_its_evidence(page, caplog):
    model = page["LearnedNearest"](kernel=page["Power"](7.9), k=3, max_iter=3).fit(X, Y)
    assert not [line for line in warnings_in(caplog) if "evidence" in line]
    assert [row.name for row in model.hyperparameters_] == ["power", "noise_variance"]
    assert profile._fitted(model)["log_evidence_or_bound"] is None
    with pytest.raises(SettingError, match="LearnedNearest has no evidence"):
        model.log_marginal_likelihood()
    kept = page["LearnedNearest"](fixed={"power": 3.0}, k=3, max_iter=2).fit(X, Y)
    assert kept.kernel_.power == pytest.approx(3.0)


def test_a_gradient_of_another_length_is_refused(page):
    class Short(page["LinearModel"]):
        def why_no_kernel(self, kernel):
            return None

    class ShortGP(page["LinearGP"]):
        def _model(self):
            return Short()

    says = r"gradient of bayesian-linear has 1 numbers .* are 2 \(variance, lengthscale\)"
    with pytest.raises(SettingError, match=says):
        ShortGP(kernel="rbf").fit(X, Y)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("arrangement", "reads"),
    [
        (Blocks(block_rows=500), "reads too few"),
        (Blocks(block_rows=500, near="both", reach=8, predict_rows=3), "reads too few"),
        (Blocks(block_rows=500, near="both", reach=8), None),
    ],
    ids=["its own block", "as many as it needs", "more"],
)
def test_a_method_that_reads_too_few_rows_has_a_failing_check(page, arrangement, reads):
    class Reading(page["Nearest"]):
        def _arrangement(self):
            return arrangement

    (check,) = (one for one in testing.checks_of(Reading(k=3)) if one.name == "rows_read")
    if reads is None:
        check(Reading(k=3))
        return
    with pytest.raises(AssertionError, match=reads):
        check(Reading(k=3))


def test_an_order_is_no_number_of_rows():
    with pytest.raises(SettingError, match=r"order=500: name 1 to 3 .*of rows is block_rows"):
        Blocks(500)
    assert Blocks(["a"]).order == ["a"]


def test_a_search_keeps_the_kernel_of_a_class(page):
    (own,) = daskgp.AutoGP(candidates=["bayesian-linear"])._given()
    assert isinstance(own, Candidate)
    assert own.estimator.kernel == kernels.Linear()
    (other,) = daskgp.AutoGP(kernel="linear(2.0)", candidates=["bayesian-linear"])._given()
    assert other.estimator.kernel == "linear(2.0)"


def test_a_store_names_all_that_is_missing(page, tmp_path, monkeypatch):
    url = str(tmp_path / "model.zarr")
    model = page["LearnedNearest"](k=3, optimizer=None).fit(X, Y)
    model.solved_ = model.solved_.with_layers(page["Offset"](1.0))
    model.save(url)
    for known, name in zip(MADE, ("learned-power", "power", "offset"), strict=True):
        monkeypatch.delitem(known, name)
    with pytest.raises(StoreError) as caught:
        daskgp.load(url)
    assert (
        "unknown model 'learned-power' and kernel 'power' and layer 'offset': import the modules"
        in str(caught.value)
    )


def test_an_unknown_likelihood_may_be_one_to_import():
    with pytest.raises(SettingError, match=r"'gama': did you mean 'gamma'\? .*--plugin MODULE"):
        daskgp.SVGP(likelihood="gama").fit(X, Y)


@pytest.mark.whole
@pytest.mark.parametrize("member", ["log_parameters", "log_bounds"])
def test_properties_of_a_likelihood_that_are_methods_are_named(page, member):
    kind = type("Plain", (page["Logistic"],), {"name": "plain", member: lambda self: np.zeros(1)})
    with pytest.raises(SettingError, match=f"Plain.{member} is a method: decorate it with @prop"):
        likelihoods.register(kind)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("log_parameters", "Broken.log_parameters fails for Broken() (TypeError: "),
        ("with_log_parameters", "Broken.with_log_parameters fails for Broken() (ZeroDivisionError"),
        ("resolve", "Broken.resolve fails for Broken() (ZeroDivisionError"),
    ],
)
def test_the_member_of_a_kernel_that_fails_is_named(member, says):
    wrong = property(lambda self: np.log([None])) if member == "log_parameters" else None
    kind = type("Broken", (kernels.RBF,), {"name": "broken", member: wrong or _divided})
    with pytest.raises(SettingError) as caught:
        kernels.register(dataclass(frozen=True)(kind))
    assert says in str(caught.value)


def _divided(self, *given):
    return 1 / 0


def test_members_that_a_kernel_lacks_are_named_and_how_a_name_is_written():
    kind = type("Bare", (kernels.Kernel,), {"name": "bare", "__annotations__": {}})
    with pytest.raises(
        SettingError, match=r"Bare has no __call__, .*tiles, .*: define all abstract"
    ):
        kernels.register(dataclass(frozen=True)(kind))
    kind = type("Hyphened", (kernels.RBF,), {"name": "two-words"})
    with pytest.raises(SettingError, match="a lower-case word is needed, with _ for a hyphen"):
        kernels.register(kind)
