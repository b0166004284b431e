"""Options of file systems in threads: each ``with`` block has its own."""

import threading
from concurrent.futures import ThreadPoolExecutor

import daskgp
from daskgp.data.stores import remote

URL = "memory://bucket/a.zarr"


def seen():
    return (remote.options(URL) or {}).get("who")


def within(who):
    return daskgp.storage_options({"memory://bucket/": {"who": who}})


def test_blocks_of_two_threads_do_not_mix_however_they_end():
    turn = threading.Barrier(2, timeout=20)

    def first():
        with within("first"):
            turn.wait()  # both are inside
            turn.wait()
            found = [seen()]
        turn.wait()  # this one has ended, the other has not
        turn.wait()
        return [*found, seen()]

    def second():
        turn.wait()
        with within("second"):
            turn.wait()
            found = [seen()]
            turn.wait()
            found.append(seen())
        turn.wait()
        return [*found, seen()]

    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(run) for run in (first, second))
    assert one.result() == ["first", None]
    assert other.result() == ["second", "second", None]
    assert seen() is None


def test_threads_that_tasks_run_in_use_the_options_of_the_block():
    with within("outer"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(seen).result() == "outer"
        with within("inner"):
            assert (seen(), pool.submit(seen).result()) == ("inner", "inner")
        assert (seen(), pool.submit(seen).result()) == ("outer", "outer")
        assert pool.submit(seen).result() == "outer"
    assert seen() is None


def test_blocks_add_to_those_around_them():
    with within("outer"), daskgp.storage_options({"memory://other/": {"who": "other"}}):
        assert seen() == "outer"
