"""What a release says of itself, in several files, agrees."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def text(file):
    return (ROOT / file).read_text()


def pythons():
    """Versions of Python among the classifiers, the oldest first."""
    found = (re.search(r"Python :: (3\.\d+)$", line) for line in PROJECT["project"]["classifiers"])
    return [match[1] for match in found if match]


def test_the_citation_is_that_of_the_changelog():
    (cited,) = re.findall(r"^date-released: (\S+)$", text("CITATION.cff"), re.MULTILINE)
    version = PROJECT["project"]["version"]
    assert f"\n## {version} ({cited})\n" in text("CHANGELOG.md")
    assert yaml.safe_load(text("CITATION.cff"))["license"] == PROJECT["project"]["license"]


def test_pythons_are_the_same_everywhere():
    assert PROJECT["project"]["requires-python"] == f">={pythons()[0]}"
    (tried,) = re.findall(r"^PYTHONS := (.+)$", text("Makefile"), re.MULTILINE)
    assert tried.split()[::-1] == pythons()
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == [pythons()[0], pythons()[-1]]
    (lowest,) = (step["with"] for step in jobs["lowest"]["steps"] if "with" in step)
    assert lowest["python-version"] == pythons()[0]


def test_continuous_integration_runs_targets_of_the_makefile():
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"].values()
    lines = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert {".ci/run", "make docs", "make package"} <= set(lines)
    named = [name for line in [*lines, *text(".ci/run").splitlines()]
             for name in re.findall(r"^make (.+)$", line)]  # fmt: skip
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert {name for names in named for name in names.split()} <= targets


def test_the_wheel_has_every_workflow_that_the_command_runs():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    here = {path.name for end in ("py", "toml") for path in (ROOT / "workflows").glob(f"*.{end}")}
    assert wheel == {f"workflows/{name}": f"daskgp/workflows/{name}" for name in here - {"demo.py"}}
