"""Compiled code for neighbours; importing this has it, which takes a second or more."""

from daskgp.models.markov.conditionals import compiled

compiled()
