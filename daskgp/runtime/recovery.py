"""Recovery of work that a cluster lost: it is submitted again, and kept values are made anew.

A scheduler runs the tasks of a dead worker again by itself.  What it forgets when it, or all of the
workers, restart, only the client can submit again; rounds are pure, so it may.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from dask.delayed import Delayed
from distributed import Client, Future
from distributed.comm.core import CommClosedError

from daskgp.errors import RunError

logger: logging.Logger = logging.getLogger("daskgp")

RETRIES = 3
"""Times that the scheduler runs a task again."""
ATTEMPTS = 6
"""Times that a round is submitted before the cluster counts as unusable."""
PATIENCE = 300.0
"""Seconds that a cluster may have no workers; ``daskgp.worker-timeout`` of Dask's configuration
sets another number."""
POLL, PAUSE = 2.0, 0.2
"""Seconds between checks that workers still exist, and before a scheduler is asked again."""
LOST = (CancelledError, CommClosedError)
"""Errors that a client raises for work lost with its scheduler or with all workers."""

T = TypeVar("T")


def patience() -> float:
    """Return the seconds that a cluster may have no workers."""
    return float(dask.config.get("daskgp.worker-timeout", PATIENCE))


def until_done(
    client: Client, work: Callable[[], T], lost: tuple[type[Exception], ...] = LOST
) -> T:
    """Return ``work()``, done again after each of the errors ``lost``.

    Raises
    ------
    RunError
        If the scheduler or its workers do not come back, or are lost again and again.
    """
    _refuse_closed(client)
    for left in reversed(range(ATTEMPTS)):
        try:
            return work()
        except lost as error:
            reason = _line(error)
            if not left:
                raise RunError(
                    f"the Dask cluster{_address(client)} lost the same work {ATTEMPTS} times "
                    f"({reason}): check its workers and run again"
                ) from error
        # outside the handler, where nothing refers to what was lost
        logger.warning("the cluster lost work, which is done again (%s)", reason)
        _wait_for_cluster(client)
    raise AssertionError("unreachable")


def _line(error: BaseException | None) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _address(client: Client) -> str:
    """Return " at" and the address of the scheduler; nothing once the client has given it up."""
    address = getattr(client.scheduler, "address", None)
    return f" at {address}" if address else ""


def _refuse_closed(client: Client) -> None:
    """Raise RunError if the client has given up its scheduler."""
    if client.status not in ("running", "connecting"):
        raise RunError(
            f"the Dask scheduler{_address(client)} is gone and did not come back: start it "
            "and its workers again, then run again"
        )


def _wait_for_cluster(client: Client) -> None:
    """Wait until the scheduler answers and has a worker."""
    limit, began = patience(), time.monotonic()
    while True:
        _refuse_closed(client)
        with suppress(OSError):  # timeouts are OSErrors, too
            client.wait_for_workers(1, timeout=POLL)
            if client.status == "running":
                return
        if time.monotonic() - began >= limit:
            _refuse_closed(client)
            raise _without_workers(client, limit)
        time.sleep(PAUSE)


def _without_workers(client: Client, limit: float) -> RunError:
    return RunError(
        f"the Dask cluster{_address(client)} had no workers for {limit:g} s: start some, then "
        "run again"
    )


def settle(
    client: Client,
    futures: Sequence[Future],
    usable: Callable[[Mapping[str, Any]], bool] | None = None,
) -> None:
    """Wait for futures, but not for ever without workers, or without ``usable`` ones.

    Raises
    ------
    RunError
        If there are none for as long as ``patience`` says.
    """
    alone, limit = 0.0, patience()
    for future in futures:
        while not future.done():
            try:
                future.exception(timeout=POLL)
            except TimeoutError:
                alive = client.status != "running" or _has_workers(client, usable)
                alone = 0.0 if alive else alone + POLL
                if alone >= limit:
                    raise _without_workers(client, limit) from None
        if future.status == "error":
            return  # no need to wait for the rest


def _has_workers(client: Client, usable: Callable[[Mapping[str, Any]], bool] | None) -> bool:
    some = 1 if usable is None else -1  # what the scheduler says of a thousand takes a while
    try:
        workers = client.scheduler_info(n_workers=some)["workers"].values()
        return any(usable is None or usable(worker) for worker in workers)
    except OSError:  # the client finds out by itself that the scheduler is gone
        return True


# -- what workers keep -----------------------------------------------------------------------


@dataclass
class _Recipe:
    """Node that makes the value of a future again, and what took the future's place."""

    node: Delayed
    again: Delayed | None = None
    resources: Mapping[str, float] | None = None


_recipes: dict[int, _Recipe] = {}
"""Recipes by identity of live futures: those of one key are equal, though one may be lost."""


def keep(
    client: Client, nodes: Sequence[Delayed], resources: Mapping[str, float] | None = None
) -> list[Delayed]:
    """Keep the values of nodes on the workers; ``renewed`` makes those that are lost again."""
    current = renewed(client, nodes)
    asked = dict(resources or {})
    kept = list(client.persist(current, retries=RETRIES, optimize_graph=False, resources=asked))
    for node, persisted in zip(nodes, kept, strict=True):
        for future in _futures(persisted).values():
            _recipes[id(future)] = _Recipe(node, resources=resources)
            weakref.finalize(future, _recipes.pop, id(future), None)
    return kept


def renewed(client: Client, nodes: Sequence[Delayed]) -> list[Delayed]:
    """Return the nodes as they are, or on values kept anew where they need what was lost."""
    needed = {
        id(future): future
        for node in nodes
        for future in _futures(node).values()
        if _lost(future) and id(future) in _recipes
    }
    if not needed:
        return list(nodes)
    recipes = {i: _recipes[i] for i in needed}
    stale = [recipe for recipe in recipes.values() if _stale(recipe)]
    for future in (*needed.values(), *(f for recipe in stale for f in _instead(recipe))):
        future.release()  # another future of this key would be as lost as this one
    if stale:
        for recipe, again in zip(stale, _kept_again(client, stale), strict=True):
            recipe.again = again
    return [_on(node, recipes) for node in nodes]


def _kept_again(client: Client, stale: Sequence[_Recipe]) -> list[Delayed]:
    """Keep the values that recipes stand for, made anew where they were made before."""
    return keep(client, [recipe.node for recipe in stale], stale[0].resources)


def _on(node: Delayed, recipes: dict[int, _Recipe]) -> Delayed:
    """Return a node whose graph has the futures that took the place of lost ones."""
    graph: dict[Any, Any] = dict(node.dask)
    for key, future in _futures(node).items():
        recipe = recipes.get(id(future))
        if recipe is not None and recipe.again is not None:
            graph[key] = _futures(recipe.again)[key]
    return Delayed(node.key, graph)


def _futures(node: Delayed) -> dict[Any, Future]:
    return {key: value for key, value in dict(node.dask).items() if isinstance(value, Future)}


def _lost(future: Future) -> bool:
    return bool(future.status == "cancelled")


def _instead(recipe: _Recipe) -> list[Future]:
    return [] if recipe.again is None else list(_futures(recipe.again).values())


def _stale(recipe: _Recipe) -> bool:
    return recipe.again is None or any(map(_lost, _instead(recipe)))
