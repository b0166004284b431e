"""Which methods' whole contracts a change calls for."""

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
