"""Rows of all benchmarks: files of DASKGP_DATA, fields of known processes, functions, stores.

Fields on grids and the large survey are drawn on a torus that is longer than the grid, by the
spectrum of their covariance (circulant embedding); rows and places of the survey are centres of
cells of its grid.  The others are drawn exactly, rows and places together, by a Cholesky factor.
"""

from datasets.cases import CASES, Case, stored, table
from datasets.changing import change
from datasets.files import FIELDS, UCI, air_grid, present, satellite, uci
from datasets.functions import ackley_square, griewank, rough, sequence, sines, smooth, two_lengths
from datasets.network import Network, stations
from datasets.processes import Truth, log_normal, scattered, torus, uniform
from datasets.sphere import EARTH, Globe, globe, harmonics, unit
from datasets.split import Split
from datasets.stores import store, write, write_drawn
