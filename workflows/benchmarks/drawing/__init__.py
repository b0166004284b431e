"""Helpers of the figures: the tables of the benchmark pages, and bars, lines and points.

A table is read from the Markdown of its page, so that a figure cannot disagree with it.
"""

from drawing.marks import COLOURS, Axes, bars, boxes, dots, finish, lines, panels, points, style
from drawing.pages import DRAWN, Tables, digest, numbers, tables
from drawing.parts import bar, beside, every_table, line, save, turn
