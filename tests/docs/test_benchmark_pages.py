"""The pages of benchmarks have their figures, and the figures the numbers of their tables."""

import importlib
import re

import pytest
from docs_text import ROOT

PAGES = ROOT / "docs" / "benchmarks"
FOLDER = ROOT / "workflows" / "benchmarks"


@pytest.fixture
def drawing(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("drawing")


@pytest.fixture
def figures(drawing):
    return importlib.import_module("figures")


def test_each_figure_is_on_its_page_and_each_page_has_its_own(figures, drawing):
    shown = {
        (page.stem, name)
        for page in PAGES.glob("*.md")
        for name in re.findall(r"_static/benchmarks/([\w-]+)\.svg", page.read_text())
    }
    names = {*figures.SCORES, *figures.FIGURES}
    assert shown == {(figures.page_of(name), name) for name in names}
    assert {path.stem for path in drawing.DRAWN.glob("*.svg")} == names
    described = re.compile(r"\{image\} \S+\.svg\n:alt: \S+")
    for page, _ in shown:
        text = (PAGES / f"{page}.md").read_text()
        assert len(described.findall(text)) == text.count(".svg"), page


def test_figures_are_those_of_the_tables(figures, drawing):
    for name in (*figures.SCORES, *figures.FIGURES):
        digest = drawing.digest(figures.page_of(name))
        assert f"tables {digest}" in (drawing.DRAWN / f"{name}.svg").read_text(), (
            f"a table changed after {name}.svg: run python workflows/benchmarks/figures.py"
        )


def test_a_figure_is_drawn_with_numbers_of_its_table(figures, drawing, tmp_path):
    left, right = figures.draw("speed").axes
    (table, *_) = drawing.tables("speed")
    assert [bar.get_width() for bar in left.patches] == table.column(1)
    assert [bar.get_width() for bar in right.patches] == [441, 5801, 4222]
    drawing.save(left.figure, "speed", tmp_path / "speed.svg")
    assert drawing.digest("speed") in (tmp_path / "speed.svg").read_text()


@pytest.mark.parametrize("cell", ["–", "> 1,475", ""])
def test_what_was_not_measured_is_no_number(cell, drawing):
    assert drawing.numbers(cell) == []


def test_numbers_are_read_as_they_are_written(drawing):
    read = drawing.numbers
    assert read("1,394") == [1394]
    assert read("**−0.434**") == [-0.434]
    assert read("24; 36, 46, 90") == [24, 36, 46, 90]
    assert read("0.317 ± 0.168") == [0.317, 0.168]
    assert read("2.04, 0.09") == [2.04, 0.09]
    assert read("3e−14") == [3e-14]
    assert read("**0.0100** / 0.41") == [0.01, 0.41]


def test_every_table_is_read(drawing):
    for page in sorted(PAGES.glob("*.md")):
        for table in drawing.tables(page.stem):
            assert {len(row) for row in table.rows} == {len(table.heads)}, page.stem


def test_each_page_asks_and_says_how_to_repeat_it():
    for page in sorted(PAGES.glob("*.md")):
        if page.stem == "index":
            continue
        text = page.read_text()
        assert re.search(r"^\*[^*]+\?\*$", text, re.MULTILINE), page
        command = text.split("## How to repeat it")[1]
        assert "python workflows/benchmarks/" in command, page
