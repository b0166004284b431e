"""Layers between a method's Gaussian and what users see; the order here is from the inside out."""

# ruff: noqa: I001 - kinds are registered in the order of their layers
from daskgp.predict.layers.base import Layer, Parts, Places, register
from daskgp.predict.layers.trend import TrendLayer
from daskgp.predict.layers.noise import Noise
from daskgp.predict.layers.spread import Spread
from daskgp.predict.layers.units import Units
from daskgp.predict.layers.regressor import RegressorLayer
from daskgp.predict.layers.tails import Tails
from daskgp.predict.layers.response import Response
from daskgp.predict.layers.transform import TransformLayer

__all__ = [
    "Layer",
    "Noise",
    "Parts",
    "Places",
    "RegressorLayer",
    "Response",
    "Spread",
    "Tails",
    "TransformLayer",
    "TrendLayer",
    "Units",
    "register",
]
