"""The pages name everything public and nothing that is not there."""

import ast
import importlib
import re
import subprocess
import sys

import dask.array as da
import pytest
from docs_text import ROOT, check_commands, code_blocks

import daskgp
from daskgp import errors, kernels, likelihoods, metrics, plot
from daskgp.data import rows_of
from daskgp.data.partition import default_block_rows
from daskgp.fit.plan import Plan, make_plan
from daskgp.fit.work import work_of

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
API = (DOCS / "api.md").read_text()
CHUNKS = (DOCS / "guides" / "chunk-sizes.md").read_text()


def listed(module: str) -> set[str]:
    """Names in the tables of a module on the page of the public interface."""
    tables = re.split(r"\.\. currentmodule:: ", API)[1:]
    found = [table for table in tables if table.split("\n", 1)[0] == module]
    return {name for table in found for name in re.findall(r"^ {3}(\w+)$", table, re.MULTILINE)}


def test_every_public_name_is_in_the_reference():
    for name in daskgp.__all__:
        assert re.search(rf"\b{name}\b", API), name


@pytest.mark.parametrize("module", [kernels, metrics, plot])
def test_every_name_of_a_module_is_in_the_reference(module):
    missing = set(module.__all__) - listed(module.__name__) - {"REGISTRY"}
    assert not missing


def test_every_likelihood_is_in_the_reference():
    found = {type(likelihoods.by_name(name)).__name__ for name in likelihoods.NAMES}
    assert found <= listed("daskgp.likelihoods")
    page = (DOCS / "models" / "decoupled.md").read_text()
    assert all(f'`"{name}"`' in page for name in likelihoods.NAMES)


def test_every_error_is_in_the_reference():
    assert listed("daskgp.errors") == {n for n in vars(errors) if n.endswith("Error")}


def test_every_listed_name_exists():
    for module in set(re.findall(r"\.\. currentmodule:: (\S+)", API)):
        for name in listed(module):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_code_names_what_exists(page):
    modules = {"daskgp": daskgp, "kernels": kernels, "metrics": metrics}
    for block in code_blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = modules.get(node.value.id)
                assert module is None or hasattr(module, node.attr), ast.unparse(node)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_commands_parse(page):
    check_commands(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_xarray_is_said_to_open_stores_without_a_warning(page):
    for call in re.findall(r"xarray\.open_zarr\([^)]*\)", page.read_text()):
        assert "consolidated=False" in call or "map.zarr" in call  # maps are consolidated


def test_the_guide_to_the_command_line_has_every_command_and_option():
    from daskgp.cli import main

    guide = (DOCS / "guides" / "command-line.md").read_text()
    assert check_commands(guide) >= set(main.commands) - {"plan"}
    for command in main.commands.values():
        assert f"## {command.name}\n" in guide
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or option in guide or option == "--verbose"


def numbers(row: str) -> list[int]:
    cells = [cell.strip().replace(",", "") for cell in row.strip("| \n").split("|")]
    return [int(cell) for cell in cells]


def rows_after(heading: str) -> list[list[int]]:
    table = CHUNKS[CHUNKS.index(heading) :].split("\n\n")[0]
    return [numbers(row) for row in table.splitlines()[2:]]


def test_the_table_of_blocks_is_that_of_the_code():
    for n, rows, count in rows_after("| Rows $n$"):
        assert (default_block_rows(n), -(-n // rows)) == (rows, count)


def test_the_table_of_memory_is_that_of_the_code():
    table = rows_after("| $m$")
    assert len(table) == 5
    for m, *figures in table:
        sizes = (2_048, 16_384, 65_536)
        plans = [planned(m, b) for b in sizes]
        adding = 9 * 8 * (m * m + m + 3)
        wanted = [*(plan.bytes_per_task for plan in plans), adding]
        wanted += [plans[-1].bytes_per_worker, plans[-1].bytes_client]
        assert figures == [round(need / 1e6) for need in wanted]


def test_the_table_of_local_memory_is_that_of_the_code():
    X = da.empty((10**6, 3), chunks=(65_536, 3))
    table = rows_after("| $b$ | $m$ |")
    assert len(table) == 6
    for b, m, window, task, worker, held, alone in table:
        rows = rows_of(X, X[:, 0], None, shared_memory=True)
        model = daskgp.LMA(n_support=m, block_rows=b, predict_order=6)
        plan = make_plan(work_of(model.recipe(), rows))
        assert window == 7 * b
        assert (task, worker) == (
            round(plan.bytes_per_task / 1e6),
            round(plan.bytes_predict / 1e6),
        )
        assert held == round(8 * window * (window + 2 * m + 3 + 1 + 128) / 1e6)
        plan = daskgp.PIC(n_support=m, block_rows=b).plan(X, X[:, 0])
        assert alone == round(plan.bytes_per_task / 1e6)


def planned(m: int, block_rows: int) -> Plan:
    X = da.empty((10**6, 8), chunks=(block_rows, 8))
    return daskgp.SGPR(n_inducing=m, block_rows=block_rows).plan(X, X[:, 0])


def test_pages_keep_to_themselves():
    for page in [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]:
        assert not re.search(r"/work/|/tmp/|/home/|/root/|TODO", page.read_text()), page


@pytest.mark.slow  # as `make docs` does
@pytest.mark.timeout(300)
def test_the_pages_build_without_warnings(tmp_path):
    pytest.importorskip("myst_nb")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-D", "nb_execution_mode=off"]  # test_tutorials.py runs them
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
