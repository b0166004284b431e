"""Arrangements of rows: how a fit orders and cuts them, and what predictions and updates need."""

from daskgp.fit.arrange.arrangement import Arrangement, Changed, Home, Planned, SoFar
from daskgp.fit.arrange.as_stored import AsStored
from daskgp.fit.arrange.batches import Batches
from daskgp.fit.arrange.blocks import Blocks
from daskgp.fit.arrange.parts import Parts
from daskgp.fit.arrange.sorted import Sorted

__all__ = [
    "Arrangement",
    "AsStored",
    "Batches",
    "Blocks",
    "Changed",
    "Home",
    "Parts",
    "Planned",
    "SoFar",
    "Sorted",
]
