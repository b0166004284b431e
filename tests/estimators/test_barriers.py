"""Barriers between rows: Vecchia's product over visible neighbours in plain NumPy, and laws."""

import itertools
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from daskgp.errors import DaskgpError, InputError, SettingError
from daskgp.kernels import Matern32
from tests.commands import refused, succeed
from tests.models.test_barriers import crossed

LAGOON = [[2, 2], [8, 2], [8, 8], [2, 8], [2, 7.5], [7.5, 7.5], [7.5, 2.5], [2, 2.5], [2, 2]]
"""A bar of land around a bay that is open to the west."""
PENINSULA = [[4.5, 0], [5.5, 0], [5.5, 7], [4.5, 7], [4.5, 0]]
SHAPES = {"lagoon": LAGOON, "peninsula": PENINSULA}
KERNEL = Matern32(lengthscale=2.0, variance=1.3)
QUIET = {"progress": False, "mean": "zero"}
GIVEN = {"kernel": KERNEL, "noise_variance": 0.05, "optimizer": None, **QUIET}


def polygon(*rings):
    return {"type": "MultiPolygon", "coordinates": [[[list(at) for at in ring]] for ring in rings]}


def inside(ring, x, y):
    """Whether points are inside, by the crossings of a ray upwards."""
    found = np.zeros(len(x), bool)
    for (x0, y0), (x1, y1) in itertools.pairwise(ring):
        if x0 != x1:
            own = (np.minimum(x0, x1) <= x) & (x < np.maximum(x0, x1))
            found ^= own & (y < y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return found


def rows(ring, n=240, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.uniform(0, 10, n), "y": rng.uniform(0, 10, n)})
    table = table[~inside(ring, table.x, table.y)].reset_index(drop=True)
    return table.assign(z=np.sin(table.x) + (table.x > 5) + 0.1 * rng.normal(size=len(table)))


def sees(ring, a, b):
    pairs = itertools.pairwise(ring)
    return not any(crossed(a, b, np.array(c), np.array(d)) for c, d in pairs)


def covariance(kernel, X, Z):
    away = np.sqrt(((X[:, None] - Z[None]) ** 2).sum(axis=-1)) * np.sqrt(3) / kernel.lengthscale
    return kernel.variance * (1 + away) * np.exp(-away)


def conditional(kernel, noise, X, y, at, near, own_noise):
    """Mean and variance of a value at a place, given y at the rows ``near``."""
    K = covariance(kernel, X[near], X[near]) + noise * np.eye(len(near))
    k = covariance(kernel, X[near], at[None])[:, 0]
    w = np.linalg.solve(K, k) if len(near) else k
    return w @ y[near], kernel.variance + own_noise - w @ k


@pytest.mark.whole
@pytest.mark.parametrize("shape", SHAPES)
def test_density_and_predictions_are_those_given_visible_neighbours(shape):
    ring, k, many = SHAPES[shape], 7, 15
    table = rows(ring)
    model = daskgp.VecchiaGP(
        barriers=polygon(ring), n_neighbours=k, predict_neighbours=many, **GIVEN
    ).fit(table, "z")
    posterior = model.solved_
    U, target = posterior.rows.read(0) if posterior.rows.layout.n_blocks == 1 else (None, None)
    assert U is not None
    X = posterior.scaling.inputs(U)
    y = (target[:, 0] / posterior.scaling.y_scale[0]).astype(float)
    kernel, noise = posterior.theta.kernel, posterior.theta.noise_variance
    rank = posterior.method.ranks(np.arange(len(X)), X)
    total = 0.0
    for i in range(len(X)):
        order = np.argsort(((X - X[i]) ** 2).sum(axis=1), kind="stable")
        near = [j for j in order if rank[j] < rank[i] and sees(ring, U[i], U[j])][:k]
        m, v = conditional(kernel, noise, X, y, X[i], near, noise)
        total -= 0.5 * (np.log(2 * np.pi * v) + (y[i] - m) ** 2 / v)
    assert model.objective_ == pytest.approx(total, rel=1e-9)
    places = rows(ring, 40, seed=3)[["x", "y"]].to_numpy()
    mean, std = model.predict(pd.DataFrame(places, columns=["x", "y"]), return_std=True)
    for place, scaled, m, s in zip(places, posterior.scaled(places), mean, std, strict=True):
        order = np.argsort(((X - scaled) ** 2).sum(axis=1), kind="stable")
        near = [j for j in order if sees(ring, place, U[j])][:many]
        wanted, v = conditional(kernel, noise, X, y, scaled, near, 0.0)
        unit = posterior.scaling.y_scale[0]
        np.testing.assert_allclose([m, s], [wanted * unit, np.sqrt(v) * unit], rtol=1e-9, atol=1e-9)


def test_barriers_far_away_change_no_bit():
    table, far = rows(PENINSULA), [[40, 0], [50, 0], [50, 9], [40, 9], [40, 0]]
    settings = {"n_neighbours": 8, "max_iter": 5, "progress": False}
    plain = daskgp.VecchiaGP(**settings).fit(table, "z")
    model = daskgp.VecchiaGP(barriers=polygon(far), **settings).fit(table, "z")
    assert model.objective_ == plain.objective_
    at = table[["x", "y"]][:20] + 0.1
    for one, other in zip(
        model.predict(at, return_std=True), plain.predict(at, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_order_of_polygons_does_not_matter():
    island = [[1, 8.5], [2, 8.5], [2, 9.5], [1, 9.5], [1, 8.5]]
    table = rows(PENINSULA)
    table = table[~inside(island, table.x, table.y)]
    both = [
        daskgp.VecchiaGP(barriers=polygon(*rings), **GIVEN).fit(table, "z")
        for rings in ((PENINSULA, island), (island[::-1], PENINSULA))
    ]
    assert both[0].objective_ == both[1].objective_
    at = table[["x", "y"]][:20] + 0.05
    np.testing.assert_array_equal(both[0].predict(at), both[1].predict(at))


def closed(ring=LAGOON):
    """The bay behind a bar that is closed, so that nothing outside sees it."""
    west = [[2, 2.4], [2.2, 2.4], [2.2, 7.6], [2, 7.6], [2, 2.4]]
    return polygon(ring, west)


def test_places_that_see_no_row_have_the_prior():
    table = rows(LAGOON)
    table = table[~((table.x > 2) & (table.x < 8) & (table.y > 2) & (table.y < 8))]
    model = daskgp.VecchiaGP(barriers=closed(), **GIVEN).fit(table, "z")
    at = pd.DataFrame({"x": [5.0, 1.0], "y": [5.0, 5.0]})
    model.predict(at[1:])  # it sees rows, so that nothing is told
    with pytest.warns(UserWarning, match="barriers hide some places from the 1,000 training"):
        mean, std = model.predict(at, return_std=True)
    prior = model.solved_.theta.kernel.variance * model.solved_.scaling.y_scale[0] ** 2
    np.testing.assert_allclose([mean[0], std[0]], [0.0, np.sqrt(prior)], atol=1e-12)


def test_joint_predictions_tell_of_places_that_see_no_row():
    table = rows(LAGOON)
    table = table[~((table.x > 2) & (table.x < 8) & (table.y > 2) & (table.y < 8))]
    settings = {"barriers": closed(), "predict_neighbours": 20, **GIVEN}
    model = daskgp.VecchiaGP(**settings).fit(table, "z")
    at = pd.DataFrame({"x": [5.0, 1.0], "y": [5.0, 5.0]})
    model.predict(at[1:], return_cov=True)
    with pytest.warns(UserWarning, match="barriers hide some places from the 1,000 training"):
        covariance = model.predict(at, return_cov=True)[1]
    prior = model.solved_.theta.kernel.variance * model.solved_.scaling.y_scale[0] ** 2
    np.testing.assert_allclose(covariance[0], [prior, 0.0], atol=1e-12)


def test_rows_on_both_sides_are_independent_where_no_way_leads_round():
    table = rows(LAGOON)
    inner = (table.x > 2.2) & (table.x < 7.5) & (table.y > 2.5) & (table.y < 7.5)
    outer = (table.x < 2) | (table.x > 8) | (table.y < 2) | (table.y > 8)
    table = table[inner | outer]
    both = daskgp.VecchiaGP(barriers=closed(), standardize=False, **GIVEN).fit(table, "z")
    apart = [
        daskgp.VecchiaGP(barriers=closed(), standardize=False, **GIVEN).fit(table[own], "z")
        for own in (inner[table.index], outer[table.index])
    ]
    at = pd.DataFrame({"x": [5.0, 3.0, 1.0], "y": [5.0, 7.0, 7.0]})
    with pytest.warns(UserWarning, match="barriers hide some places from the 1,000"):
        alone = [model.predict(at) for model in apart]
    np.testing.assert_allclose(both.predict(at), [*alone[0][:2], alone[1][2]], atol=1e-7)
    cov = both.predict(at, return_cov=True)[1]
    assert cov[0, 2] == cov[1, 2] == 0.0
    assert cov[0, 1] != 0.0


SEEN = {"barriers": polygon(PENINSULA), "n_neighbours": 10, "predict_neighbours": 20}
SEEN |= {"standardize": False, **GIVEN}


@pytest.fixture(scope="module")
def fitted():
    table = rows(PENINSULA, 400)
    return table, daskgp.VecchiaGP(**SEEN).fit(table, "z")


AT = pd.DataFrame({"x": [4.3, 5.7, 5.7, 4.9], "y": [2.0, 2.0, 6.8, 7.4]})


def test_a_model_keeps_its_barriers_in_stores_and_pickles(fitted, tmp_path):
    _, model = fitted
    model.save(str(tmp_path / "model.zarr"))
    loaded = daskgp.load(str(tmp_path / "model.zarr"))
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(AT), model.predict(AT))
    assert loaded.barriers == model.barriers
    assert (
        loaded.sample_paths(2, random_state=0)(AT) == model.sample_paths(2, random_state=0)(AT)
    ).all()


def test_the_file_may_be_gone_once_a_model_is_fitted(tmp_path):
    path, table = tmp_path / "land.geojson", rows(PENINSULA, 300)
    path.write_text(json.dumps({"type": "Feature", "geometry": polygon(PENINSULA)}))
    model = daskgp.VecchiaGP(barriers=str(path), **GIVEN).fit(table[:200], "z")
    given = daskgp.VecchiaGP(barriers=polygon(PENINSULA), **GIVEN).fit(table[:200], "z")
    assert model.objective_ == given.objective_
    model.save(str(tmp_path / "model.zarr"))
    path.unlink()
    loaded = daskgp.load(str(tmp_path / "model.zarr"))
    for one in (loaded, given):
        one.update(table[["x", "y"]][200:], table.z[200:])
    np.testing.assert_array_equal(loaded.predict(AT), given.predict(AT))


def test_updates_see_what_a_fit_sees():
    table = rows(PENINSULA, 300)
    given = {"barriers": polygon(PENINSULA), "predict_neighbours": 20, "standardize": False}
    model, whole = (
        daskgp.VecchiaGP(**given, **GIVEN).fit(own, "z") for own in (table[:150], table)
    )
    rest = table[150:]
    model.update(rest[["x", "y"]], rest.z)
    assert model.n_rows_ == whole.n_rows_
    np.testing.assert_allclose(model.predict(AT), whole.predict(AT), rtol=1e-9)
    model.forget(rest[["x", "y"]], rest.z)
    first = daskgp.VecchiaGP(**given, **GIVEN).fit(table[:150], "z")
    np.testing.assert_allclose(model.predict(AT), first.predict(AT), rtol=1e-9)


def test_leave_one_out_is_given_visible_rows_alone(fitted):
    table, model = fitted
    mean, _ = model.loo(table[["x", "y"]], table.z)
    i = int(((table.x - 4.3).abs() + (table.y - 1).abs()).argmin())
    other = daskgp.VecchiaGP(**SEEN).fit(table.drop(index=table.index[i]), "z")
    at = table[["x", "y"]][i : i + 1]
    np.testing.assert_allclose(mean[i], other.predict(at)[0], rtol=1e-9)


def test_averages_and_joint_predictions_agree(fitted):
    _, model = fitted
    mean, std = model.predict_average(AT)
    joint, cov = model.predict(AT, return_cov=True)
    np.testing.assert_allclose(mean, joint.mean(), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(std, np.sqrt(cov.mean()), rtol=5e-2)
    assert abs(cov[0, 1]) < 0.05 * np.sqrt(cov[0, 0] * cov[1, 1])


def test_hyper_parameters_that_vary_go_with_barriers():
    table = rows(PENINSULA, 400)
    settings = {"n_neighbours": 10, "varying": 2, "max_iter": 5, "progress": False}
    model = daskgp.VecchiaGP(barriers=polygon(PENINSULA), **settings).fit(table, "z")
    assert np.isfinite(model.predict(AT)).all()


def test_several_targets_together_go_with_barriers():
    table = rows(PENINSULA, 200).assign(w=lambda t: 2 * t.z)
    table.loc[::3, "w"] = np.nan
    settings = {"targets": "joint", "n_neighbours": 10, "max_iter": 5, "progress": False}
    model = daskgp.VecchiaGP(barriers=polygon(PENINSULA), **settings).fit(table, ["z", "w"])
    assert np.isfinite(model.predict(AT)).all()


def test_on_the_sphere_lines_are_great_circles():
    wall = [[[170, 40], [190, 40], [190, 41], [170, 41], [170, 40]]]
    table = pd.DataFrame({"lon": [180.0, -180.0, 160.0], "lat": [39.0, 45.0, 60.0], "z": 1.0})
    table = pd.concat([table, table + 0.01])
    model = daskgp.VecchiaGP(
        barriers={"type": "Polygon", "coordinates": wall},
        geographic=("lon", "lat"),
        **{**GIVEN, "kernel": Matern32(lengthscale=800.0, variance=1.0)},
    ).fit(table, "z")
    sight = model.solved_.state.barriers
    X = model.solved_.scaled(np.array([[180.0, 39.0], [180.0, 45.0], [150.0, 39.0], [210.0, 39.0]]))
    seen = sight.between(X, X).sees(np.arange(4), np.tile(np.arange(4), (4, 1)))
    assert not seen[0, 1]
    assert seen[0, 2]
    # from 150 E to 210 E along 39 N the great circle goes north of the wall, which is clear
    assert seen[2, 3]
    assert np.isfinite(model.predict(pd.DataFrame({"lon": [179.0], "lat": [39.5]}))).all()


@pytest.mark.whole
@pytest.mark.parametrize("longitudes", [(-170.0, -175.0), (190.0, 185.0)])
def test_in_a_plane_longitudes_are_from_zero_or_not(longitudes):
    wall = {
        "type": "Polygon",
        "coordinates": [[[-173, 0], [-172, 0], [-172, 9], [-173, 9], [-173, 0]]],
    }
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"lon": rng.uniform(*longitudes[::-1], 40), "lat": rng.uniform(0, 1, 40)})
    west = np.sort(longitudes)[0] + 1.5
    table = table[(table.lon < west) | (table.lon > west + 2)].assign(z=1.0)
    model = daskgp.VecchiaGP(barriers=wall, geographic=False, **GIVEN).fit(table, "z")
    X = model.solved_.scaled(np.array([[longitudes[0], 0.5], [longitudes[1], 0.5]]))
    assert not model.solved_.state.barriers.between(X[:1], X[1:]).sees(
        np.arange(1), np.zeros((1, 1), int)
    )


# -- what is refused ---------------------------------------------------------------------------


def test_rows_inside_are_refused(tmp_path):
    table = rows(PENINSULA)
    table.loc[:2, ["x", "y"]] = 5.0, 3.0
    with pytest.raises(InputError, match=r"3 of \d+ rows lie inside the barriers"):
        daskgp.VecchiaGP(barriers=polygon(PENINSULA), **GIVEN).fit(table, "z")


def test_updates_refuse_rows_inside_and_stay_as_they_were():
    table = rows(PENINSULA)
    model = daskgp.VecchiaGP(barriers=polygon(PENINSULA), **GIVEN).fit(table, "z")
    before = model.predict(AT)
    with pytest.raises(InputError, match="1 of 2 rows lies inside the barriers"):
        model.update(pd.DataFrame({"x": [5.0, 6.0], "y": [3.0, 3.0]}), np.ones(2))
    np.testing.assert_array_equal(model.predict(AT), before)


@pytest.mark.whole
@pytest.mark.parametrize("turn", [0, -360])
def test_updates_on_the_sphere_refuse_rows_inside_over_the_date_line(turn):
    ring = [[175 + turn, -5], [186 + turn, -5], [186 + turn, 5], [175 + turn, 5], [175 + turn, -5]]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"lon": rng.uniform(150, 174, 40), "lat": rng.uniform(-9, 9, 40)})
    settings = {**GIVEN, "kernel": Matern32(lengthscale=800.0, variance=1.0)}
    model = daskgp.VecchiaGP(
        barriers={"type": "Polygon", "coordinates": [ring]}, geographic=("lon", "lat"), **settings
    ).fit(table.assign(z=np.sin(table.lon)), "z")
    at = pd.DataFrame({"lon": [176.0, 180.0, -175.0, 185.0, 187.0, -172.0, 174.0], "lat": 0.5})
    for i, lies_inside in enumerate([True, True, True, True, False, False, False]):
        if lies_inside:
            with pytest.raises(InputError, match="1 of 1 rows lies inside"):
                model.update(at[i : i + 1], [0.0])
    assert model.update(at[4:], np.zeros(3)).n_rows_ == 43


def test_classes_go_with_barriers():
    table = rows(PENINSULA)
    codes = np.digitize(table.z, [0, 1])
    settings = {"barriers": polygon(PENINSULA), "n_neighbours": 8, "optimizer": None}
    gp = daskgp.GPClassifier(daskgp.VecchiaGP(**settings, kernel=KERNEL, progress=False))
    p = gp.fit(table[["x", "y"]], codes).predict_proba(AT)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    table.loc[0, ["x", "y"]] = 5.0, 3.0
    with pytest.raises(InputError, match=r"1 of .* rows lies inside"):
        gp.fit(table[["x", "y"]], codes)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"n_support": 10}, "support inputs tie all rows"),
        ({"predict_neighbours": 400}, "choose at most 256"),
        ({"barriers": 3}, "barriers=3: give the path of a GeoJSON file"),
    ],
)
def test_settings_that_look_across_are_refused(more, match):
    given = {"barriers": polygon(PENINSULA), **GIVEN, **more}
    with pytest.raises(SettingError, match=match):
        daskgp.VecchiaGP(**given).fit(rows(PENINSULA), "z")


UNCLOSED = {"type": "Polygon", "coordinates": [[[4, 0], [5, 0], [5, 7], [4, 7]]]}
ENDLESS = {"type": "Polygon", "coordinates": [[[4, 0], [5, 0], [5, np.nan], [4, 7], [4, 0]]]}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("barriers", "match"),
    [
        ("nowhere.geojson", "barriers nowhere.geojson does not exist"),
        ({"type": "Point", "coordinates": [0, 1]}, "barriers has no polygon with an inside"),
        ({"type": "Polygon", "coordinates": 3}, "barriers has no polygon with an inside"),
        ({"type": "Polygon", "coordinates": [[[1, 1]] * 4]}, "no polygon with an inside"),
        (UNCLOSED, "ring 1 of barriers is not closed"),
        (ENDLESS, "ring 1 of barriers has coordinates that are not finite numbers"),
    ],
)
def test_damaged_polygons_are_told(barriers, match):
    with pytest.raises(InputError, match=match):
        daskgp.VecchiaGP(barriers=barriers, **GIVEN).fit(rows(PENINSULA), "z")
    with pytest.raises(InputError, match=match):
        daskgp.VecchiaGP(barriers=barriers, **GIVEN).plan(rows(PENINSULA), "z")


def test_it_must_be_clear_which_features_they_are_over():
    table = rows(PENINSULA).rename(columns={"x": "a"})
    with pytest.raises(InputError, match="barriers has polygons, and it is not clear which"):
        daskgp.VecchiaGP(barriers=polygon(PENINSULA), **GIVEN).fit(table, "z")


def test_holes_and_rings_that_cross_themselves_are_taken_by_their_edges():
    bow = [[4, 0], [6, 7], [4, 7], [6, 0], [4, 0]]
    hole = [[[2, 2], [8, 2], [8, 8], [2, 8], [2, 2]], [[3, 3], [7, 3], [7, 7], [3, 7], [3, 3]]]
    table = rows(bow)
    model = daskgp.VecchiaGP(barriers=polygon(bow), **GIVEN).fit(table, "z")
    assert np.isfinite(model.predict(AT[:2])).all()
    table = rows(hole[0])
    pond = pd.DataFrame({"x": [4.0, 5.0, 6.0], "y": [4.0, 5.0, 6.0], "z": 30.0})
    land = {"type": "Polygon", "coordinates": hole}
    model = daskgp.VecchiaGP(barriers=land, **GIVEN).fit(pd.concat([table, pond]), "z")
    beside = pd.DataFrame({"x": [8.5], "y": [5.0]})
    alone = daskgp.VecchiaGP(barriers=land, **GIVEN).fit(table, "z")
    assert abs(model.predict(beside)[0] - alone.predict(beside)[0]) < 1.0
    assert model.predict(pond[["x", "y"]][1:2])[0] > 15


# -- maps --------------------------------------------------------------------------------------


def grid():
    return {"x": np.linspace(0.1, 9.9, 15), "y": np.linspace(0.1, 9.9, 15)}


def test_a_map_leaves_out_rows_and_cells_inside():
    table = rows(PENINSULA)
    more = pd.DataFrame({"x": [5.0], "y": [3.0], "z": [99.0]})
    land = polygon(PENINSULA)
    maps, model = daskgp.interpolate(
        pd.concat([table, more]), grid(), barriers=land, max_iter=5, return_model=True
    )
    assert type(model).__name__ == "VecchiaGP"
    assert model.n_rows_ == len(table)
    x, y = np.meshgrid(maps.x, maps.y, indexing="ij")
    np.testing.assert_array_equal(
        maps.z.isnull(), inside(PENINSULA, x.ravel(), y.ravel()).reshape(15, 15)
    )
    given = daskgp.VecchiaGP(barriers=land, max_iter=5, progress=False)
    xr.testing.assert_identical(daskgp.interpolate(table, grid(), method=given), maps)


def test_methods_without_barriers_refuse_them(tmp_path):
    with pytest.raises(SettingError, match=r"a setting of VecchiaGP, .* and not of SGPR"):
        daskgp.interpolate(rows(PENINSULA), grid(), method="sgpr", barriers=polygon(PENINSULA))
    given = {"method": daskgp.VecchiaGP(), "barriers": polygon(PENINSULA)}
    with pytest.raises(SettingError, match="give it barriers"):
        daskgp.interpolate(rows(PENINSULA), grid(), **given)


def test_commands_take_barriers(tmp_path):
    table, land = str(tmp_path / "rows.csv"), str(tmp_path / "land.geojson")
    rows(PENINSULA).to_csv(table, index=False)
    (tmp_path / "land.geojson").write_text(json.dumps(polygon(PENINSULA)))
    where = ("--target", "z", "--resolution", "x=1,y=1")
    out = str(tmp_path / "map.nc")
    told = succeed("interpolate", table, out, *where, "--barriers", land)
    assert told["method"] == "VecchiaGP"
    how = ("--model", "sgpr", "--barriers", land)
    assert "a setting of VecchiaGP" in refused(
        "interpolate", table, str(tmp_path / "o.nc"), *where, *how
    )
    model = str(tmp_path / "model.zarr")
    fit = ("--target", "z", "--model", "vecchia", "--set", "max_iter=3")
    succeed("fit", table, model, *fit, "--set", f"barriers={land}")
    assert daskgp.load(model).barriers == land


def test_all_that_is_refused_is_of_the_package():
    with pytest.raises(DaskgpError):
        daskgp.VecchiaGP(barriers={"type": "Polygon", "coordinates": [[1, 2]]}, **GIVEN).fit(
            rows(PENINSULA), "z"
        )
