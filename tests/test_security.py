"""Nothing read from a store is run, and whatever is wrong with one is said in one line.

Stores are damaged at random: the bytes of any file, any part of their JSON, and models as a whole
with a checksum that fits what they hold, so that the code behind the checksum is reached too.
"""

import ast
import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import dataset, files, refused, rows
from damage import damaged_files, damaged_models, deep
from hypothesis import HealthCheck, given, settings

import daskgp
from daskgp import kernels
from daskgp.data.stores import groups, models
from daskgp.errors import DaskgpError, SettingError, StoreError
from tests.contract import cases

# damaged numbers may overflow, and damaged arrays may hold text
pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning",
    "ignore::zarr.errors.UnstableSpecificationWarning",
    "ignore::hypothesis.errors.HypothesisWarning",  # of a large store that failed
)

X, Y = rows(120)
MEMORY = 16 << 30
QUICK = settings(
    max_examples=20, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
THOROUGH = settings(QUICK, max_examples=300)
KERNELS = {"sgpr": {"kernel": kernels.RBF() + 0.5 * kernels.Linear()}}
"""Kernels of some models, whose descriptions have parts."""
every = pytest.mark.parametrize("name", cases.SETTINGS)


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """What would be allocated by the terabyte fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class Sound(dict):
    """Sound stores by name; models as they are fitted to ``data`` when they are asked for."""

    def __init__(self, folder):
        super().__init__(data=dataset(folder / "data.zarr", X, Y, step=50))
        self.folder = folder
        self["blocks"] = str(folder / "blocks.zarr")
        daskgp.prepare(self["data"], self["blocks"], block_rows=20)

    def __missing__(self, name):
        self[name] = str(self.folder / f"{name}.zarr")
        model = cases.make(name, max_iter=1, **KERNELS.get(name, {}))
        model.fit(*daskgp.open_dataset(self["data"])).save(self[name])
        return self[name]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return Sound(tmp_path_factory.mktemp("sound"))


def put(path, contents):
    """A store of these files, alone; a file in the way of a folder is left out."""
    shutil.rmtree(path, ignore_errors=True)
    for name in sorted(contents):
        place = path / name
        if not any(above.is_file() for above in place.parents):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents[name])


def outcome(what, *arguments):
    """What a call gives, or None for an error that says in one line what is wrong."""
    try:
        return what(*arguments)
    except DaskgpError as error:
        said = str(error)
    assert len(said.splitlines()) == 1, said
    assert len(said) < 1000
    return None


def predicted(url):
    return np.concatenate(cases.moments(daskgp.load(url), X[:7]))


def fitted(url):
    X, y = daskgp.open_dataset(url)
    assert X.numblocks[0] <= 1_000_000
    model = daskgp.SGPR(n_inducing=5, max_iter=1) if len(X) < 10_000 else None
    return model and model.fit(X, y).predict(np.asarray(X[:1]))


def check_damaged_model(name, sound, tmp_path, how):
    right, refusals = predicted(sound[name]), []

    @how
    @given(damaged_files(files(sound[name])))
    def check(changed):
        put(tmp_path / "m.zarr", changed)
        found = outcome(predicted, str(tmp_path / "m.zarr"))
        refusals.append(found is None)
        if found is not None:  # such as of notes, or of a file that nobody reads
            np.testing.assert_array_equal(found, right)

    check()
    assert sum(refusals) > len(refusals) // 3  # predictions do not read all of a store


def forge(url, whole, forged):
    """Make a copy of a sound model store one of what is forged."""
    group = groups.open_group(url, "model", mode="r+")
    for name in set(whole.arrays) - set(forged.arrays):
        shutil.rmtree(Path(url) / name)
    for name, values in forged.arrays.items():
        if values is not whole.arrays.get(name):
            groups.write_array(group, name, values)
    said = {"checksum": forged.checksum, "model": forged.attributes, "notes": forged.notes}
    place = Path(url) / "zarr.json"
    found = json.loads(place.read_text())
    place.write_text(json.dumps(found | {"attributes": found["attributes"] | said}))


def check_forged_model(name, sound, tmp_path, how):
    right, refusals = predicted(sound[name]), []
    whole, url = models.read(sound[name]), str(tmp_path / "m.zarr")

    @how
    @given(damaged_models(whole))
    def check(forged):
        shutil.rmtree(url, ignore_errors=True)
        shutil.copytree(sound[name], url)
        forge(url, whole, forged)
        found = outcome(predicted, url)
        refusals.append(found is None)
        assert found is None or found.size == right.size  # y may have been a column

    check()
    assert any(refusals)


def check_damaged_dataset(name, sound, tmp_path, how):
    refusals = []

    @how
    @given(damaged_files(files(sound[name])))
    def check(changed):
        put(tmp_path / "d.zarr", changed)
        refusals.append(outcome(fitted, str(tmp_path / "d.zarr")) is None)

    check()
    assert any(refusals)


@every
def test_a_damaged_model_is_refused_or_predicts_as_before(name, sound, tmp_path):
    check_damaged_model(name, sound, tmp_path, QUICK)


@every
def test_a_forged_model_is_refused_or_predicts(name, sound, tmp_path):
    check_forged_model(name, sound, tmp_path, QUICK)


@pytest.mark.parametrize("name", ["data", "blocks"])
def test_a_damaged_dataset_is_refused_or_fitted(name, sound, tmp_path):
    check_damaged_dataset(name, sound, tmp_path, QUICK)


@pytest.mark.parametrize("depth", [10, 200, 400])
def test_a_description_that_is_nested_deep_is_refused(depth, sound, tmp_path):
    url = str(tmp_path / "m.zarr")
    shutil.copytree(sound["experts"], url)
    whole = models.read(url)
    settings = whole.attributes["model_settings"] | {"noise_in_experts": deep(depth)}
    attributes = whole.attributes | {"model_settings": settings}
    digest = groups.checksum(whole.arrays, attributes)
    forge(url, whole, whole._replace(attributes=attributes, checksum=digest))
    found = outcome(predicted, url)
    assert found is None or depth == 10  # which nothing trips over


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@every
def test_models_stand_much_damage(name, sound, tmp_path):
    check_damaged_model(name, sound, tmp_path, THOROUGH)
    check_forged_model(name, sound, tmp_path, THOROUGH)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "blocks"])
def test_datasets_stand_much_damage(name, sound, tmp_path):
    check_damaged_dataset(name, sound, tmp_path, THOROUGH)


# -- sizes ------------------------------------------------------------------------------------


def described(store, **changes):
    """Change the description of an array."""
    place = Path(store) / "zarr.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_an_array_of_a_model_that_declares_terabytes_is_refused(name, sound, tmp_path):
    model = shutil.copytree(sound[name], tmp_path / "m.zarr")
    described(model / "scaling_x_shift", shape=[10**12])
    for command in (["info", model], ["predict", model, sound["data"], tmp_path / "p.zarr"]):
        line = refused(*command)
        assert "8e+12 bytes" in line
        assert "this machine has" in line


@pytest.mark.parametrize(
    ("shape", "says"),
    [([10**12, 2], "at most 1,000,000 chunks"), ([120, 10**12], "bytes to be read at once")],
)
def test_a_dataset_that_declares_terabytes_is_refused(shape, says, sound, tmp_path):
    data = shutil.copytree(sound["data"], tmp_path / "d.zarr")
    described(data / "X", shape=shape)
    described(data / "y", shape=shape[:1])
    chunk = {"chunk_shape": [50, shape[1]]}
    described(data / "X", chunk_grid={"name": "regular", "configuration": chunk})
    assert says in refused("info", data)
    with pytest.raises(StoreError, match=says):
        daskgp.open_dataset(str(data))


@pytest.mark.parametrize("depth", [101, 400])
def test_a_deeply_nested_kernel_is_refused(depth):
    with pytest.raises(SettingError, match="nested more than 100 deep"):
        kernels.from_dict(deep(depth, dict) | {})


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["os.system", "__class__", "builtins.eval", "GaussianProcess"])
@pytest.mark.parametrize("where", ["model", "method", "kernel"])
def test_a_name_that_is_in_no_registry_is_refused(name, where, sound, tmp_path):
    whole = models.read(sound["sgpr"])
    value = {"kernel": name} if where == "kernel" else name
    attributes = whole.attributes | {where: value}
    url = str(tmp_path / "m.zarr")
    models.write(url, models.stored(whole.arrays, attributes), {})
    with pytest.raises(StoreError, match=f"unknown (model|method|kernel) '{name}'"):
        daskgp.load(url)


def test_a_codec_that_is_not_installed_is_refused(sound, tmp_path):
    data = shutil.copytree(sound["data"], tmp_path / "d.zarr")
    described(data / "X", codecs=[{"name": "os.system", "configuration": {"command": "true"}}])
    assert "cannot read array 'X'" in refused("info", data)


RUNS_WHAT_IT_READS = {"eval", "exec", "compile", "__import__", "import_module"}
RUNS_WHAT_IT_LOADS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def is_named_here(argument):
    """Tell whether the name of a module is not that of a store: a constant, or in the package."""
    part = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    own = str(getattr(part, "value", "")).startswith("daskgp.")
    return isinstance(argument, ast.Constant) or (isinstance(part, ast.Constant) and own)


def test_no_module_runs_what_it_reads():
    for path in Path(daskgp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.split(".")[0] for alias in node.names}
                names.add(str(getattr(node, "module", "") or "").split(".")[0])
                own = {"pickle"} if "testing" in path.parts else set()  # of what it made itself
                assert not names & RUNS_WHAT_IT_LOADS - own, path
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if ast.unparse(node.func) == "re.compile":
                    continue
                named = all(map(is_named_here, node.args))
                at = (path.name, node.lineno)
                named |= path.name == "run.py" and path.parent.name == "cli"  # --plugin MODULE
                assert called not in RUNS_WHAT_IT_READS or (called == "import_module" and named), at
                assert not any(k.arg == "allow_pickle" and k.value.value for k in node.keywords)


def test_an_npz_of_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, y=np.array([{}] * len(X), dtype=object))
    refused("convert", tmp_path / "x.npz", tmp_path / "d.zarr", "--target", "y")
    assert not (tmp_path / "d.zarr").exists()


def test_attributes_of_a_dataset_that_are_nested_too_deep_are_one_line(sound, tmp_path):
    store = tmp_path / "d.zarr"
    shutil.copytree(sound["data"], store)
    found = json.loads((store / "zarr.json").read_text())
    found["attributes"]["nested"] = deep(400)
    (store / "zarr.json").write_text(json.dumps(found))
    with pytest.raises(StoreError, match="is damaged, its attributes are nested too deep"):
        daskgp.open_dataset(str(store))
