"""Blocks: every row once, whole chunks, and a default that only the data decides."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp.data import partition
from daskgp.data.partition import Span
from daskgp.errors import SettingError

CHUNKS = st.lists(st.integers(0, 40), max_size=20).map(tuple)


def covers(spans, n):
    edges = [0, *(span.stop for span in spans)]
    starts = [span.start for span in spans]
    return starts == edges[:-1] and edges[-1] == n and all(span.rows > 0 for span in spans)


@given(CHUNKS, st.none() | st.integers(1, 100))
def test_blocks_hold_every_row_once_and_are_no_larger_than_wanted(chunks, block_rows):
    n = sum(chunks)
    spans = partition.blocks(n, chunks, block_rows)
    assert covers(spans, n)
    assert all(span.rows <= (block_rows or partition.default_block_rows(n)) for span in spans)


@given(CHUNKS, st.integers(40, 100))
def test_chunks_that_fit_stay_whole_and_are_put_together(chunks, block_rows):
    spans = partition.blocks(sum(chunks), chunks, block_rows)
    stops = np.cumsum(chunks, dtype=int).tolist()
    assert {edge for span in spans for edge in span} <= {0, *stops}
    # the next chunk would not have fitted
    for a, b in itertools.pairwise(spans):
        following = next(stop for stop in stops if stop > b.start)
        assert following - a.start > block_rows


@given(st.integers(0, 500), st.integers(1, 600))
def test_rows_that_may_be_cut_anywhere_are_cut_evenly(n, block_rows):
    spans = partition.blocks(n, None, block_rows)
    assert covers(spans, n)
    assert all(span.rows == block_rows for span in spans[:-1])


@given(st.integers(0, 10**9))
def test_default_blocks_are_about_equal_in_number_and_bounded_in_rows(n):
    rows = partition.default_block_rows(n)
    assert partition.MIN_ROWS <= rows <= partition.MAX_ROWS
    if partition.MIN_ROWS < rows < partition.MAX_ROWS:
        assert -(-n // rows) <= partition.BLOCKS


def test_a_chunk_larger_than_wanted_is_cut_into_equal_parts():
    assert partition.blocks(30, (20, 10), 8) == [
        Span(0, 6), Span(6, 13), Span(13, 20), Span(20, 25), Span(25, 30)
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [0, -3])
def test_block_rows_must_be_positive(wrong):
    with pytest.raises(SettingError, match=f"at least 1, not {wrong}"):
        partition.blocks(10, None, wrong)


def test_sampled_blocks_are_distinct_ordered_and_seeded():
    spans = partition.alone(partition.blocks(1000, None, 10))
    some = [partition.sample(spans, 7, np.random.default_rng(s)) for s in (0, 0, 1)]
    assert len(set(some[0])) == 7
    assert some[0] == tuple(sorted(some[0])) == some[1] != some[2]
    assert partition.sample(spans, 100, np.random.default_rng(0)) == spans


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 100))
def test_a_task_has_few_rows_and_passes_no_more_tasks_than_a_scheduler_serves(count, rows, least):
    several = partition.per_task(count, rows, least)
    assert several == 1 or several * rows <= partition.MAX_ROWS
    assert several == 1 or -(-count // several) >= least
    most = max(2 * partition.MANY_TASKS, least, 2 * count * rows / partition.MAX_ROWS)
    assert -(-count // several) <= most or rows > partition.MAX_ROWS // 2
    if count <= partition.MANY_TASKS:  # as it was before tasks grew with their number
        assert several == max(1, min(partition.TASK_ROWS // rows, count // least))
