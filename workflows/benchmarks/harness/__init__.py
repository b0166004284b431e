"""Helpers of all benchmarks: processes of their own, files of results, options, scores, tables.

A script says what its runs are, how one is measured and how their table looks::

    def keys(options):               # one small dict per run, mostly from ``runs``
    def measure(key, options):       # in a process of its own; a dict of numbers
    def table(records, options):     # Markdown, as the documentation quotes it
    harness.command(globals(), methods=METHODS, rows=(36_000, 500))  # of tiny runs

Each run is a line of JSON: its key, what ``measure`` returned, the seconds and processor seconds of
its process, and the peaks of resident memory of the largest process and of all together, sampled
every 0.1 s.  With ``--out`` the lines are kept, and a script that was interrupted goes on where it
was.  Neither Dask nor Zarr is imported here before a run needs them.
"""

from harness.bounds import bound_of, bound_per_row
from harness.clocks import (
    best_of,
    evaluation_seconds,
    marks,
    product_rate,
    rounds,
    seconds_of,
    step_seconds,
)
from harness.commands import command
from harness.fits import Outcome, by_command_line, convert, fitted, lowered
from harness.options import Keys, Options, Some, runs
from harness.processes import daskgp
from harness.reports import cell, grouped, markdown, medians, report, reporting, slope, tables
