"""Maps over pieces of work and their sums in a fixed order.

The tree of a sum has the same shape whatever the workers, so its result has the same bits.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dask import delayed
from dask.delayed import Delayed

from daskgp.runtime.executor import Executor

FAN_IN = 8


def map_reduce(
    task: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
) -> Any:
    """Sum ``task(piece, *shared)`` over pieces of work.

    Parameters
    ----------
    task : callable
        Pure; given a piece and the values of ``shared``.
    combine : callable
        Associative; sums neighbours, FAN_IN at a time, in the order of the pieces.
    pieces : sequence
        Small values that say what a task works on, such as the span of its rows.
    executor : Executor
        Where to run.
    label : str
        Names the tasks on the dashboard and the progress bar.
    shared : sequence of Delayed
        Values that are broadcast once.
    """
    return tree_sum(
        mapped(task, [(piece, *shared) for piece in pieces], label), combine, executor, label
    )


def map_all(
    task: Callable[..., list[Any]],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
) -> list[Any]:
    """Return the lists that ``task(piece, *shared)`` gives, joined in the order of the pieces."""
    nodes = mapped(task, [(piece, *shared) for piece in pieces], label)
    return list(itertools.chain.from_iterable(executor.compute_all(nodes, label)))


def mapped(
    task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], label: str
) -> list[Delayed]:
    """Return a node for each tuple of arguments."""
    tag = uuid.uuid4().hex[:8]  # a round is never mistaken for an earlier one
    call = delayed(task, pure=False, traverse=False)
    return [call(*values, dask_key_name=f"{label}-{tag}-{i}") for i, values in enumerate(arguments)]


def tree_sum(
    nodes: list[Delayed],
    combine: Callable[[Any, Any], Any],
    executor: Executor,
    label: str,
    in_place: bool = True,
) -> Any:
    """Sum nodes, FAN_IN neighbours at a time, in their order.

    A ``combine`` that adds ``in_place`` is given a copy: a task may run again on the same inputs.
    """
    root = _tree(nodes, partial(_fold, combine, in_place), f"{label}-sum-{uuid.uuid4().hex[:8]}")
    return executor.compute(root, nodes, label)


def _tree(nodes: list[Delayed], fold_in_order: Callable[..., Any], name: str) -> Delayed:
    fold = delayed(fold_in_order, pure=False, traverse=False)
    for level in itertools.count():
        groups = [nodes[i : i + FAN_IN] for i in range(0, len(nodes), FAN_IN)]
        if len(nodes) == 1:
            return nodes[0]
        nodes = [
            fold(*group, dask_key_name=f"{name}-{level}-{i}") if len(group) > 1 else group[0]
            for i, group in enumerate(groups)
        ]
    raise AssertionError("unreachable")


def _fold(combine: Callable[[Any, Any], Any], in_place: bool, first: Any, *others: Any) -> Any:
    total = copy.deepcopy(first) if in_place else first
    for other in others:
        total = combine(total, other)
    return total


def node(name: str, value: Any) -> Delayed:
    """Return a value as one node of a graph."""
    return delayed(value, name=f"{name}-{uuid.uuid4().hex[:8]}", traverse=False)
