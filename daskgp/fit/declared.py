"""What a method declares that it takes, held against what a fit would hand it."""

from __future__ import annotations

from daskgp.data import Rows
from daskgp.errors import SettingError
from daskgp.fit.arrange import Arrangement
from daskgp.models.method import Declared

NOISY = (
    "the rows have weights, and experts with noise_in_experts=True do not tell noise from f: fit "
    "with noise_in_experts=False"
)


def refuse_weights(model: Declared, rows: Rows) -> None:
    """Raise SettingError for rows with weights if a method does not tell noise from f."""
    if model.noisy and rows.weight is not None:
        raise SettingError(NOISY)


def check_noise(method: Declared, rows: Rows, name: str) -> None:
    """Raise SettingError for noise variances of rows that a method would ignore.

    ``name`` is that of the estimator.
    """
    for setting, given in (("y_variance", rows.y_variance), ("sample_weight", rows.weight)):
        if given is not None and not method.takes_noise:
            raise SettingError(
                f"{setting} is given, and {name} would ignore it, as its method does not say "
                f"takes_noise: leave it out ({setting}=False where the store has it)"
            )


def check_arrangement(method: Declared, arrangement: Arrangement, name: str) -> None:
    """Raise SettingError for units without the neighbours that a method needs, or the reverse.

    So are rows that predictions would miss.
    """
    given = type(arrangement).__name__
    if method.takes_neighbours != arrangement.nearby:
        has, needs = ("", "does not say") if arrangement.nearby else ("no ", "says")
        raise SettingError(
            f"{name} has rows in {given}, with {has}neighbours, and its method {needs} "
            "takes_neighbours: return another arrangement of daskgp.fit.arrange from _arrangement, "
            f"such as {'AsStored' if arrangement.nearby else 'Blocks'}"
        )
    if method.keeps_rows and not arrangement.keeps_rows:
        raise SettingError(
            f"{name} has rows in {given}, which predictions cannot read back, and its method says "
            "keeps_rows: return another arrangement of daskgp.fit.arrange from _arrangement, such "
            "as Blocks"
        )
