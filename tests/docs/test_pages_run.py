"""Pages whose Python is run as it stands, and error lines that a page quotes."""

import ast
import re

import pytest
from docs_text import ROOT, code_blocks

DOCS = ROOT / "docs"
SLOW = ("guides/machine-learning.md", "guides/likelihoods.md")
PAGES = ("guides/kriging.md", *(pytest.param(page, marks=pytest.mark.slow) for page in SLOW))


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in code_blocks((DOCS / page).read_text(), "python"):
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out


def test_the_quickstart_keeps_its_promises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in code_blocks((DOCS / "quickstart.md").read_text(), "python"):
        block = block.replace("3_000", "1_000")  # enough for what is promised
        exec(compile(block, "quickstart", "exec"), names)
    assert (tmp_path / "stations.csv").read_text().startswith("easting,northing,height\n")
    y, mean, std = names["y"], names["mean"], names["std"]
    assert abs(((y - mean) ** 2).mean() ** 0.5 - 3) < 0.4
    assert abs((abs(y - mean) < 1.96 * std).mean() - 0.95) < 0.03


def said() -> str:
    """All text of the package's source, of f-strings what does not vary."""
    found = []
    for path in (ROOT / "daskgp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_lines_that_troubleshooting_explains_are_those_of_the_package():
    page, text = (DOCS / "guides" / "troubleshooting.md").read_text(), said()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    quoted = [part for row in rows for part in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 15
    assert not [part for part in quoted if part not in text]
