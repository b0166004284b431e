"""Arrangements of rows: how a fit orders and cuts them, and what predictions and updates need."""

from daskgp.fit.arrange.arrangement import Arrangement, Changed, Home, SoFar
from daskgp.fit.arrange.as_stored import AsStored, Batches, Sorted
from daskgp.fit.arrange.blocks import Blocks
from daskgp.fit.arrange.parts import Parts

__all__ = [
    "Arrangement",
    "AsStored",
    "Batches",
    "Blocks",
    "Changed",
    "Home",
    "Parts",
    "SoFar",
    "Sorted",
]
