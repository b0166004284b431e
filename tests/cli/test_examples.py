"""``daskgp examples``: small data sets, and the commands that are printed for them."""

import shlex

import pytest
from commands import files, invoke, refused, succeed

from daskgp.cli.sample_data import EXAMPLES

STEPS = [(name, i) for name, one in EXAMPLES.items() for i in range(len(one.commands))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of the data sets, and the number of commands that were run in each."""
    return {name: [tmp_path_factory.mktemp("examples") / "here", 0] for name in EXAMPLES}


@pytest.mark.whole
@pytest.mark.parametrize(("name", "step"), STEPS, ids=[f"{name}-{i + 1}" for name, i in STEPS])
def test_each_command_that_is_printed_runs(name, step, folders, here, monkeypatch):
    folder, done = folders[name]
    if not done:
        said = succeed("examples", name, folder, "--json")
        assert said["commands"] == list(EXAMPLES[name].commands)
        assert said["folder"] == str(folder)
    monkeypatch.chdir(folder)
    for line in EXAMPLES[name].commands[done : step + 1]:
        program, *words = shlex.split(line)
        assert program == "daskgp"
        result = invoke(*words)
        assert result.exit_code == 0, f"{line}: {result.stderr}"
        folders[name][1] += 1


def test_they_are_listed():
    shown = invoke("examples").stdout.splitlines()
    assert [line.split()[0] for line in shown] == list(EXAMPLES)
    assert [*succeed("examples", "--json")["examples"]] == list(EXAMPLES)


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_they_are_small_and_always_the_same(name, tmp_path):
    shown = invoke("examples", name, tmp_path / "a b").stdout.splitlines()
    assert shown == [f"cd '{tmp_path / 'a b'}'", *EXAMPLES[name].commands]
    invoke("examples", name, tmp_path / "again")
    found = files(tmp_path / "a b")
    tables = {path for path in found if path.endswith(".csv")}
    again = files(tmp_path / "again")
    assert found.keys() == again.keys()
    assert all(found[path] == again[path] for path in tables)
    assert sum(found[path].count(b"\n") - 1 for path in tables) <= 2_000
    assert sum(map(len, found.values())) < 200_000


def test_the_folder_may_be_left_out_or_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts").mkdir()
    assert invoke("examples", "counts").stdout.startswith("cd counts\ndaskgp fit")
    assert {path.name for path in tmp_path.iterdir()} == {"counts"}


def test_what_cannot_be_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'stations'" in refused("examples", "station")
    assert "choose one of stations, cube" in refused("examples", "weather")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    for folder, said in (
        ("mine", "exists already"),
        ("file", "exists already"),
        (".", "names no folder to be made"),
        ("no/there", "there is no folder"),
        ("s3://bucket/data", "not on this machine"),
    ):
        assert said in refused("examples", "counts", folder)
    assert files(tmp_path) == before
