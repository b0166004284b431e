"""Layers between a method's Gaussian and what users see; the order here is from the inside out."""

# ruff: noqa: I001 - kinds are registered in the order of their layers
from daskgp.posterior.layers.base import Layer, Parts, Places, register
from daskgp.posterior.layers.gaussian import (
    Fade,
    Noise,
    RegressorLayer,
    Spread,
    Stretch,
    TargetNoise,
    TrendLayer,
    Units,
)
from daskgp.posterior.layers.tails import Tails
from daskgp.posterior.layers.response import Response
from daskgp.posterior.layers.transform import TransformLayer

__all__ = [
    "Fade",
    "Layer",
    "Noise",
    "Parts",
    "Places",
    "RegressorLayer",
    "Response",
    "Spread",
    "Stretch",
    "Tails",
    "TargetNoise",
    "TransformLayer",
    "TrendLayer",
    "Units",
    "register",
]
