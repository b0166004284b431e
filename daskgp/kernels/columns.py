"""Kernels of features: which columns of the inputs these are, and in what units lengths are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.kernels.averaged import Averaged, averages
from daskgp.kernels.base import Kernel
from daskgp.kernels.categories import Table
from daskgp.kernels.checks import flat, members
from daskgp.kernels.compose import tables
from daskgp.kernels.radial import replaced
from daskgp.kernels.rotated import PROJECT, Rotated, rotations
from daskgp.kernels.units import reopened

Where = Sequence[int | tuple[int, ...]]
"""Column of each feature, or the group of columns that it shares with others."""


def on_columns(
    kernel: Kernel, names: Sequence[str], where: Where, categories: Collection[int] = ()
) -> Kernel:
    """Return a kernel of features as one of the columns that hold them.

    Parameters
    ----------
    kernel : Kernel
        Its ``active_dims`` are names or numbers of features; where each feature has a lengthscale
        of its own, a group of columns gets one.  Without, it acts on all but those of categories.
    names : sequence of str
        Names of the features.
    where : sequence of int or tuple of int
        Column of each feature, or the group of columns that it shares with others.
    categories : collection of int, optional
        Numbers of features that are categories, beside those that the kernel takes for such.

    Raises
    ------
    SettingError
        If there is no feature of a name, one of a group is named without the others, or the number
        of lengthscales is another.
    """
    own = {_number(one, one.column, names) for one in tables(kernel) if one.column is not None}
    codes = own.union(categories)
    _refuse_turned(kernel, names, codes)
    parts = list(averages(kernel))
    lengths = {
        _number(part, j, names, "footprint") for part in parts for j in part.footprint_columns()
    }
    if lengths & codes:
        first = names[min(lengths & codes)]
        raise SettingError(
            f"Averaged has the footprint {first!r}, which holds text or codes of categories: give "
            "the column of a radius, or those of offsets"
        )
    if codes or lengths:
        places = tuple(j for j in range(len(names)) if j not in codes | lengths)
        kernel = _restricted(kernel, places)
        kernel = _averaged_over(kernel, places)
    return _placed(kernel, names, where)


def _refuse_turned(kernel: Kernel, names: Sequence[str], codes: set[int]) -> None:
    """Raise SettingError if features that hold codes of categories are rotated."""
    for _, part in rotations(kernel):
        turned = [j for j in part.columns if _number(part, j, names, "columns") in codes]
        if turned:
            raise SettingError(
                f"Rotated has columns={shown(part.columns)}, of which {shown(turned[0])} holds "
                "codes of categories: give coordinates"
            )


def _averaged_over(kernel: Kernel, places: tuple[int, ...]) -> Kernel:
    """Return a kernel whose averages are over some columns, unless they name others."""
    if not hasattr(kernel, "parts"):
        return kernel
    made: Any = kernel
    if isinstance(made, Averaged):
        made = made if made.columns is not None else replaced(made, columns=places)
    else:
        made = made.with_parts(tuple(_averaged_over(part, places) for part in made.parts))
    return kernel if made == kernel else made


def _restricted(kernel: Kernel, features: tuple[int, ...]) -> Kernel:
    """Return a kernel whose parts that act on all features act on some alone."""
    if hasattr(kernel, "parts"):
        made: Any = kernel
        parts = tuple(_restricted(part, features) for part in made.parts)
        of_parts: Kernel = kernel if parts == made.parts else made.with_parts(parts)
        return of_parts
    if getattr(kernel, "active_dims", features) is not None:
        return kernel
    if not features:
        raise SettingError(
            f"{type(kernel).__name__} acts on the columns beside those of categories and "
            "footprints, and there are none: give another feature, or leave it out"
        )
    return replaced(kernel, active_dims=features)


def _placed(kernel: Kernel, names: Sequence[str], where: Where) -> Kernel:
    """Return a kernel with numbers of columns for names of features."""
    if hasattr(kernel, "parts"):
        made: Any = kernel
        if isinstance(kernel, Rotated):
            made = _turned_on(kernel, names, where)
        elif isinstance(kernel, Averaged):
            made = _averages_on(kernel, names, where)
        parts = tuple(_placed(part, names, where) for part in made.parts)
        of_parts: Kernel = made if parts == made.parts else made.with_parts(parts)
        return of_parts
    if isinstance(kernel, Table):
        return _of_codes(kernel, names, where)
    if not hasattr(kernel, "active_dims"):
        return kernel
    dims, shares = kernel.active_dims, any(isinstance(entry, tuple) for entry in where)
    if not shares and (dims is None or not any(isinstance(j, str) for j in flat(dims))):
        return kernel
    if dims is None and not _separate(kernel):
        return kernel
    entries = _entries(kernel, range(len(names)) if dims is None else dims, names, where)
    if not _separate(kernel):
        return replaced(kernel, active_dims=tuple(flat(entries)))
    return replaced(kernel, active_dims=entries, **_counted(kernel, entries, names, where))


def _of_codes(kernel: Table, names: Sequence[str], where: Where) -> Kernel:
    """Return a kernel over categories with the number of its column."""
    if kernel.column is None:
        return kernel
    feature = _number(kernel, kernel.column, names)
    column = where[feature]
    if isinstance(column, tuple):
        raise SettingError(
            f"{type(kernel).__name__} has column={kernel.column!r}, which is a coordinate on the "
            "sphere: give the column of the codes"
        )
    return kernel if column == kernel.column else replaced(kernel, column=column)


def _turned_on(kernel: Rotated, names: Sequence[str], where: Where) -> Kernel:
    """Return a rotated kernel of features as one of the columns that hold them."""
    chosen = [_number(kernel, j, names, "columns") for j in kernel.columns]
    sphere = [names[j] for j in chosen if isinstance(where[j], tuple)]
    if sphere:
        raise SettingError(
            f"Rotated turns {' and '.join(map(repr, sphere))}, which are one place on the sphere, "
            f"where directions change from place to place: {PROJECT}"
        )
    columns = tuple(where[j] for j in chosen)
    made: Kernel = replaced(kernel, columns=columns)
    return kernel if columns == kernel.columns else made


def _averages_on(kernel: Averaged, names: Sequence[str], where: Where) -> Kernel:
    """Return a kernel of averages of features as one of the columns that hold them."""
    assert kernel.columns is not None
    chosen = [_number(kernel, j, names, "columns") for j in kernel.columns]
    own = [_number(kernel, j, names, "footprint") for j in kernel.footprint_columns()]
    named = replaced(kernel, footprint=_like(kernel, [names[j] for j in own]))
    if problem := named.problem_of([names[j] for j in chosen]):
        raise SettingError(problem)
    columns, sphere = tuple(where[j] for j in chosen), kernel.sphere
    if any(isinstance(own, tuple) for own in columns):
        columns, sphere = _place_of(kernel, chosen, names, where), True
    footprint = _like(kernel, [where[j] for j in own])
    if (columns, footprint) == (kernel.columns, kernel.footprint):
        return kernel
    made: Kernel = replaced(kernel, columns=columns, footprint=footprint, sphere=sphere)
    return made


def _place_of(
    kernel: Averaged, chosen: Sequence[int], names: Sequence[str], where: Where
) -> tuple[int, ...]:
    """Return the columns x, y and z of averages over longitude and latitude, and nothing else."""
    group = next(own for own in (where[j] for j in chosen) if isinstance(own, tuple))
    place = [j for j, own in enumerate(where) if own == group]
    if sorted(chosen) != place:
        both = " and ".join(repr(names[j]) for j in place)
        raise SettingError(
            f"Averaged is over {' and '.join(repr(names[j]) for j in chosen)}, but {both} are one "
            f"place on the sphere: give columns={tuple(names[j] for j in place)}, or fit with "
            "geographic=False"
        )
    return group


def _like(kernel: Averaged, own: Sequence[Any]) -> Any:
    """Return columns of a footprint as a kernel has its own: one, or a tuple."""
    return tuple(own) if kernel.of_points else own[0]


def _separate(kernel: Any) -> bool:
    """Return True if columns have lengthscales or variances of their own."""
    return getattr(kernel, "ard", False) or isinstance(kernel.variance, tuple)


def _entries(
    kernel: Kernel, dims: Iterable[Any], names: Sequence[str], where: Where
) -> tuple[Any, ...]:
    """Return the columns of active dimensions: each, or groups that share a lengthscale."""
    chosen = [[_number(kernel, j, names) for j in members(entry)] for entry in dims]
    seen = {j for group in chosen for j in group}
    for group in {where[j] for j in seen if isinstance(where[j], tuple)}:
        apart = [name for j, name in enumerate(names) if where[j] == group and j not in seen]
        if apart:
            raise SettingError(
                f"{type(kernel).__name__} has active_dims={shown(kernel.active_dims)} "  # type: ignore[attr-defined]
                f"without {', '.join(map(repr, apart))}: longitude and latitude are one place on "
                "the sphere, name both"
            )
    placed = (tuple(dict.fromkeys(i for j in group for i in members(where[j]))) for group in chosen)
    entries = dict.fromkeys(group if len(group) > 1 else group[0] for group in placed)
    if len(set(flat(tuple(entries)))) < len(flat(tuple(entries))):
        raise SettingError(
            f"{type(kernel).__name__} has active_dims={shown(kernel.active_dims)}: "  # type: ignore[attr-defined]
            "longitude and latitude are one place on the sphere, put them in one group"
        )
    return tuple(entries)


def _number(
    kernel: Kernel, column: int | str, names: Sequence[str], setting: str = "active_dims"
) -> int:
    if isinstance(column, str) and column in names:
        return names.index(column)
    if isinstance(column, str) or column >= len(names):
        setting = "column" if isinstance(kernel, Table) else f"{setting} with"
        joint = ", or fit several targets with targets='joint'" * (column == "target")
        raise SettingError(
            f"{type(kernel).__name__} has {setting} {shown(column)}, but the features are "
            f"{shown(', '.join(names))}: give names of these or numbers from 0 to {len(names) - 1}"
            f"{joint}"
        )
    return column


def _counted(
    kernel: Any, entries: tuple[Any, ...], names: Sequence[str], where: Where
) -> dict[str, Any]:
    """Return the lengthscale, one number per active dimension; SettingError for another count."""
    setting = "variance" if isinstance(kernel.variance, tuple) else "lengthscale"
    value = getattr(kernel, setting)
    if value is None:
        return {}
    values = value if isinstance(value, tuple) else (value,) * len(entries)
    if len(values) != len(entries):
        together = [
            "/".join(name for name, own in zip(names, where, strict=True) if _meet(own, entry))
            for entry in entries
        ]
        raise SettingError(
            f"{type(kernel).__name__} has {len(values)} {setting}s for {len(entries)} features "
            f"({', '.join(together)}): give one each, longitude and latitude share one"
        )
    return {setting: values}


def _meet(one: Any, other: Any) -> bool:
    return not set(members(one)).isdisjoint(members(other))


def of_features(kernel: Kernel, where: Where) -> Kernel:
    """Return a kernel of columns as one of features by number, from which ``on_columns`` makes it.

    ``where`` is as there.
    """
    if hasattr(kernel, "parts"):
        made: Any = kernel
        made = made.with_parts(tuple(of_features(part, where) for part in kernel.parts))
        if isinstance(made, Rotated):
            made = replaced(made, columns=tuple(where.index(j) for j in made.columns))
        elif isinstance(made, Averaged):
            own = [where.index(j) for j in made.footprint_columns()]
            place = [j for j, one in enumerate(where) if isinstance(one, tuple)]
            if made.sphere and made.columns in where:
                made = replaced(made, columns=tuple(place), sphere=False)
            elif made.columns:
                made = replaced(made, columns=tuple(where.index(j) for j in made.columns))
            made = replaced(made, footprint=_like(made, own))
        of_parts: Kernel = made
        return of_parts
    if isinstance(kernel, Table) and isinstance(kernel.column, int):
        feature = next(j for j, own in enumerate(where) if own == kernel.column)
        return replaced(kernel, column=feature)
    dims = getattr(kernel, "active_dims", None)
    if dims is None:
        return kernel
    chosen = [[j for j, own in enumerate(where) if _meet(own, entry)] for entry in dims]
    entries = dict.fromkeys(tuple(group) if len(group) > 1 else group[0] for group in chosen)
    return replaced(kernel, active_dims=tuple(entries if _separate(kernel) else flat((*entries,))))


def rescaled(kernel: Kernel, factors: np.ndarray) -> Kernel:
    """Return the kernel of columns times ``factors`` (d,): lengths are multiplied by them.

    Lengthscales that are open stay so; those that serve several columns take the first factor that
    is not 1.
    """
    if hasattr(kernel, "parts"):
        made: Any = kernel
        of_parts: Kernel = made.with_parts(tuple(rescaled(part, factors) for part in kernel.parts))
        return of_parts
    shifts = np.zeros(len(kernel.parameter_names))
    for i, unit in enumerate(kernel.units(len(factors))):
        own = factors[list(unit.columns)]
        if unit.of_inputs > 0 and (own != 1.0).any():
            shifts[i] = unit.of_inputs * np.log(own[own != 1.0][0])
    if not shifts.any():
        return kernel
    return reopened(kernel.with_log_parameters(kernel.log_parameters + shifts), kernel)
