"""Whose whole contracts are run: of which methods for a change, and which tests they are."""

from daskgp import kernels
from tests import conftest
from tests.contract import cases, touched


def test_the_file_of_a_method_calls_for_it():
    assert {cases.kind(name).__name__ for name in touched.of_files({"daskgp/models/exact.py"})} == {
        "ExactGP"
    }
    assert not touched.of_files({"daskgp/estimators/base.py", "daskgp/models/method.py"})


def test_methods_of_a_large_change_take_turns():
    names, seen = set(cases.SETTINGS), set()
    kinds = {cases.kind(name) for name in names}
    for turn in range(len(kinds)):
        chosen = {cases.kind(name) for name in touched.in_turn(names, turn)}
        assert len(chosen) == touched.MOST
        seen |= chosen
    assert seen == kinds
    few = touched.of_files({"daskgp/models/exact.py"})
    assert all(touched.in_turn(few, turn) == few for turn in range(3))


def test_a_case_of_a_kernel_is_that_of_what_it_is_made_of():
    nested = 2.0 * (kernels.RBF(1.0) + kernels.Linear()) * kernels.Matern32(0.7)
    made_of = {kernels.Constant, kernels.RBF, kernels.Linear, kernels.Matern32}
    assert conftest.kinds_of(nested) >= made_of
    assert conftest.kinds_of(kernels.Periodic) == {kernels.Periodic}
    assert not conftest.kinds_of("periodic")
