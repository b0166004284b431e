"""The examples of the docs run, small."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DIAGRAMS = {"flow.svg"}
"""Those without a number, which are written by hand."""


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_quickstart_agrees_with_the_exact_gp(capsys):
    scores = example("quickstart").main(rows=120, inducing=80)
    assert scores["sparse"]["rmse"] == pytest.approx(scores["exact"]["rmse"], rel=0.1)
    assert "log evidence" in capsys.readouterr().out


@pytest.mark.slow
def test_out_of_core_recovers_the_noise(tmp_path, capsys):
    sizes = {"rows": 3_000, "chunk": 500, "inducing": 60, "workers": 1}
    scores = example("out_of_core").main(str(tmp_path), **sizes)
    assert scores["rmse"] == pytest.approx(0.1, rel=0.2)
    assert scores["n"] == 300
    assert capsys.readouterr().out.splitlines()[0].split() == ["rows", "3,000"]


def test_xarray_grid_predicts_every_point(tmp_path, capsys):
    predicted = example("xarray_grid").main(
        size=20, fine=30, inducing=50, path=tmp_path / "grid.svg"
    )
    assert (tmp_path / "grid.svg").exists()
    assert predicted["mean"].dims == ("lat", "lon")
    assert np.isfinite(predicted["mean"]).all()
    # less is known under the cloud than beside it
    std = predicted["std"]
    clear = std.sel(lat=49, lon=11, method="nearest")
    assert std.sel(lat=47, lon=8, method="nearest") > clear
    assert "under the cloud" in capsys.readouterr().out


@pytest.mark.slow
def test_looking_shows_that_a_smooth_model_takes_structure_for_noise(tmp_path):
    smooth, local = example("looking").main(rows=600, side=20, folder=tmp_path).values()
    seen = local.semivariance
    error = {
        name: abs(v.expected - seen)[:5].mean() for name, v in (("SGPR", smooth), ("LMA", local))
    }
    assert error["LMA"] < error["SGPR"] / 2
    names = {"looking-map.svg", "looking-residuals.svg", "looking-variogram.svg"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.slow
def test_checking_shows_which_folds_are_like_gaps_and_a_spread_that_holds(tmp_path, capsys):
    checking, errors = example("checking"), []
    for seed in (1, 2, 3):  # one small field may have luck
        scores, checks = checking.main(rows=600, folder=tmp_path, seed=seed)
        errors.append([own["rmse"] for own in scores.values()])
    gaps, random, blocks = np.mean(errors, axis=0)
    assert abs(blocks - gaps) < abs(random - gaps)
    plain, learned = (found.scores for found in checks.values())
    assert abs(learned["z_variance"] - 1) < abs(plain["z_variance"] - 1)
    names = {"checking-pit.svg", "checking-distances.svg"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "variance of standardised residuals" in capsys.readouterr().out


def test_local_jumps_are_those_of_a_gp_a_block_alone(tmp_path):
    jumps = example("local_jumps").main(rows=60, path=tmp_path / "jumps.svg")
    assert jumps["one GP per block"].max() > 1e-3
    assert jumps["LMA, B = 1"].max() < 1e-6
    assert (tmp_path / "jumps.svg").exists()


def test_markov_order_ends_at_the_exact_gp(tmp_path):
    sizes = {"rows": 300, "blocks": 6, "supports": (8,)}
    (line,) = example("markov_order").main(**sizes, path=tmp_path / "order.svg").values()
    assert line[-1] < 1e-8 < line[0]
    assert (tmp_path / "order.svg").exists()


def test_vecchia_neighbours_bring_the_mean_to_that_of_the_exact_gp(tmp_path):
    sizes = {"rows": 300, "numbers": (5, 40), "support": 32}
    found = example("vecchia_neighbours").main(**sizes, path=tmp_path / "neighbours.svg")
    few, many = np.array(list(found.values())).T
    assert (many < few).all()
    noisy, supported = few[1:]
    assert supported < noisy / 2
    assert (tmp_path / "neighbours.svg").exists()


@pytest.mark.slow
def test_changing_field_comes_near_its_true_hyperparameters(tmp_path):
    found, learned = example("changing_field").main(rows=900, knots=8, path=tmp_path / "map.svg")
    assert found["varying"][0] < found["common"][0] - 0.02
    assert learned["lengthscale"][-1] > 2 * learned["lengthscale"][0]
    assert learned["variance"][-1] < learned["variance"][0] / 2
    assert (tmp_path / "map.svg").exists()


def test_paper_variance_is_negative_and_the_consistent_one_is_not(tmp_path):
    found = example("paper_variance").main(grid=40, path=tmp_path / "variance.svg")
    assert found["paper"].min() < -0.3
    assert found["consistent"].min() > 0
    assert (tmp_path / "variance.svg").exists()


def test_opticom_griewank_is_better_than_the_combination_technique(tmp_path):
    sizes = {"rows": 500, "level": 4, "side": 21}
    scores = example("opticom_griewank").main(**sizes, path=tmp_path / "griewank.svg")
    assert scores["OptiCom"] < scores["combination technique"]
    assert (tmp_path / "griewank.svg").exists()


def test_experts_posteriors_have_the_bands_of_their_rules(tmp_path):
    sizes = {"rows": 400, "inducing": 20, "places": 21}
    errors = example("experts_posteriors").main(**sizes, path=tmp_path / "posteriors.svg")
    spread = {name: std.mean() for name, (_, std) in errors.items()}
    full = spread["sparse GP, all rows"]
    assert spread["PoE"] == pytest.approx(spread["gPoE"] / 2, rel=1e-6)
    assert spread["PoE"] < 0.6 * full
    assert full <= spread["optimal weights"] < 1.1 * full
    assert (tmp_path / "posteriors.svg").exists()


def test_experts_weights_of_the_exact_right_side_are_better(tmp_path):
    sizes = {"rows": 600, "counts": (2, 10), "inducing": 20, "side": 11, "draws": 1}
    error, full = example("experts_weights").main(**sizes, path=tmp_path / "weights.svg")
    assert error["optimal"][-1] < error["optimal, paper"][-1]
    assert np.isfinite(full)
    assert (tmp_path / "weights.svg").exists()


@pytest.mark.slow
def test_cagp_guarantee_is_kept_and_that_of_sgpr_is_none(tmp_path):
    found = example("cagp_guarantee").main(places=41, path=tmp_path / "guarantee.svg")
    exact, sgpr, learned, cg = found.values()
    for of in (learned, cg):
        assert (of["std"] >= of["data"] - 1e-9).all()
        np.testing.assert_allclose(of["std"] ** 2, of["data"] ** 2 + of["part"] ** 2, atol=1e-3)
    gap = slice(23, 28)
    assert (sgpr["std"][gap] < 0.5 * exact["std"][gap]).all()
    assert (sgpr["std"][gap] < sgpr["data"][gap]).all()
    assert sgpr["noise"] > learned["noise"]
    assert (tmp_path / "guarantee.svg").exists()


def test_cagp_actions_near_the_eigenvectors_are_those_of_cg(tmp_path):
    sizes = {"rows": 80, "number": 8, "steps": (0, 4)}
    distance, bound = example("cagp_actions").main(**sizes, path=tmp_path / "actions.svg")
    first, last = zip(*distance.values(), strict=True)
    assert first[0] < first[1] < min(first[2:])
    assert last[0] < min(last[1:])
    assert all(values[1] > values[0] for values in bound.values())
    assert (tmp_path / "actions.svg").exists()


@pytest.mark.slow
def test_decoupled_toy_has_the_mean_of_many_and_the_band_of_few(tmp_path):
    sizes = {"rows": 200, "few": 8, "many": 40, "steps": 300, "places": 121}
    found = example("decoupled_toy").main(**sizes, path=tmp_path / "toy.svg")
    few, decoupled, many = found.values()
    truth = np.sinc(np.linspace(-12, 12, 121))
    inside = slice(10, -10)
    error = [np.abs(of["mean"] - truth)[inside].mean() for of in (few, decoupled, many)]
    assert error[1] < 0.8 * error[0]
    assert decoupled["std"][inside].mean() > 2 * many["std"][inside].mean()
    assert (tmp_path / "toy.svg").exists()


@pytest.mark.slow
def test_decoupled_learning_has_a_curve_for_each_model(tmp_path):
    sizes = {"rows": 1_500, "many": 300, "few": 16, "middle": 32, "marks": (5, 20, 60)}
    curves = example("decoupled_learning").main(**sizes, path=tmp_path / "learning.svg")
    few, middle, _, decoupled = (error for error, _ in curves.values())
    assert decoupled[-1] < middle[-1] < few[-1]
    assert all(error[-1] < error[0] for error, _ in curves.values())
    assert all((seconds > 0).all() for _, seconds in curves.values())
    assert (tmp_path / "learning.svg").exists()


@pytest.mark.slow
def test_two_seas_are_told_apart_by_barriers(tmp_path):
    sizes = {"rows": 120, "seeds": 1, "side": 30}
    found = example("two_seas").main(**sizes, path=tmp_path / "seas.svg")
    for land in ("peninsula", "lagoon"):
        straight, barriers = (found[land, how, "beside land"] for how in example("two_seas").NAMES)
        assert barriers[1] < straight[1]
    assert (tmp_path / "seas.svg").exists()


def test_every_example_is_in_the_docs():
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"../examples/{path.name}" in page, f"{path.name} is missing in docs/examples.md"


def test_every_figure_is_named_after_the_script_that_draws_it():
    folders = (EXAMPLES, ROOT / "workflows", ROOT / "workflows" / "benchmarks")
    scripts = {path for folder in folders for path in folder.glob("*.py")}
    figures = {path for end in ("svg", "png") for path in (ROOT / "docs/_static").glob(f"*.{end}")}

    def drawn(script):
        return {path for path in figures if f"{path.stem}-".startswith(f"{words(script)}-")}

    def words(script):
        return script.stem.replace("_", "-")

    lacking = figures - {path for script in scripts for path in drawn(script)}
    assert {path.name for path in lacking} == DIAGRAMS
    drawing = {
        path for path in EXAMPLES.glob("*.py") if re.search(r"if (path|folder):", path.read_text())
    }
    assert len(drawing) > 10
    assert not {path.name for path in drawing if not drawn(path)}
