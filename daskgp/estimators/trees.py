"""Predictions on the nodes of a DataTree, as a tree of the same nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sklearn.utils.validation import check_is_fitted

from daskgp.data import grids
from daskgp.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def of_nodes(method: F) -> F:
    """Let a method that predicts at X take a DataTree, and return one of its results at the nodes.

    Nodes with children that lack a feature are left without a result; a leaf has to have them all.
    """

    @functools.wraps(method)
    def predicted(self: Any, X: Any, *arguments: Any, **settings: Any) -> Any:
        if not grids.is_tree(X):
            return method(self, X, *arguments, **settings)
        check_is_fitted(self)
        found: dict[str, Any] = {}
        for path, node in grids.nodes_with(X, _features_of(self)).items():
            try:
                found[path] = method(self, node, *arguments, **settings)
            except InputError as error:
                raise InputError(f"node {path} of the DataTree: {error}") from error
        several = isinstance(next(iter(found.values())), tuple)
        each = zip(*found.values(), strict=True) if several else [found.values()]
        trees = [grids.tree_like(X, dict(zip(found, own, strict=True))) for own in each]
        return tuple(trees) if several else trees[0]

    return cast(F, predicted)


def _features_of(model: Any) -> tuple[str, ...]:
    """Return the names of the features of a fitted model."""
    solved = getattr(model, "solved_", None)
    return tuple(model.feature_names_in_ if solved is None else solved.feature_names)
