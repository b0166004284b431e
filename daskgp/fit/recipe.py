"""Recipe of a fit: all that it needs to know, and nothing of where its rows come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from daskgp import data, likelihoods, train
from daskgp.data import partition
from daskgp.data.blocks import prepared
from daskgp.data.categories import Levels, distinct
from daskgp.data.rows import Beside
from daskgp.data.stores.checkpoints import Checkpoint, Place
from daskgp.errors import SettingError
from daskgp.fit import constraints, means, rounds
from daskgp.fit.arrange import Arrangement
from daskgp.fit.arrange.rewriting import seed_of
from daskgp.fit.constraints import Asked, Constraints
from daskgp.fit.inputs import Inputs
from daskgp.fit.plan import Workload
from daskgp.fit.subset import Start
from daskgp.kernels import Categorical, Kernel
from daskgp.kernels.averaged import averages
from daskgp.kernels.compose import beside_places, codes_of, extents_of, tables
from daskgp.kernels.units import Size, in_model_units, known_columns
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.method import Method
from daskgp.models.values import Theta
from daskgp.posterior.posterior import VARIABLE
from daskgp.posterior.training_rows import TrainingRows
from daskgp.runtime.progress import ShowProgress
from daskgp.train import newton
from daskgp.typing import Device, DtypeName, Mean, OptimizerName, Path, UnseenName


@dataclass(frozen=True)
class Traits:
    """Facts about a method's training that hold for all settings.

    Attributes
    ----------
    ard_reach : float
        Factor on the upper bounds of lengthscales of single inputs, which may not matter.
        Lengthscales and variance may then drift off together, which not every method tolerates.
    searches_start : bool
        Whether training starts from the best of several starts.
    knows_enough_blocks : bool
        Whether ``train_blocks="auto"`` can tell how many blocks are enough.
    reads_blocks : bool
        Whether ``block_rows`` are the rows that a task reads in their original order.
    keeps_seed : bool
        Whether a checkpoint keeps the seed that ``random_state=None`` drew.
    """

    ard_reach: float = 1.0
    searches_start: bool = True
    knows_enough_blocks: bool = False
    reads_blocks: bool = True
    keeps_seed: bool = False


class Run(NamedTuple):
    """One training run: its start (k,), bounds (k, 2), names for its history, and its tape.

    Steps are measured in ``coordinates`` (k, k) of the hyper-parameters; ``curvature`` is that of
    the evidence per value of y at the start.  Training in stages begins with so many ``blocks``.
    The ``prior`` counts in full with all ``values`` of y, and in proportion with some of them.
    """

    start: np.ndarray
    bounds: np.ndarray
    describe: Callable[[np.ndarray], dict[str, Any]]
    tape: Checkpoint | None
    coordinates: np.ndarray
    curvature: newton.Curvature | None = None
    blocks: int = 1
    prior: constraints.LogPrior = constraints.NONE.prior
    values: int = 1

    @property
    def hyperparameters(self) -> int:
        """Number of hyper-parameters, inducing inputs not counted."""
        return len(self.coordinates)


class Problem(NamedTuple):
    """A recipe for some rows, and where training begins.

    Attributes
    ----------
    recipe : Recipe
    stage : Rounds
        The rows in units.
    start : Start
        Initial hyper-parameters.
    sums : Sums
        Description of the rows.
    keep : str
        URL for rows that are written, such as those that predictions read back.
    checkpoint : Place, optional
        Where training is kept.
    """

    recipe: Recipe
    stage: rounds.Rounds
    start: Start
    sums: scaling.Sums
    keep: str = ""
    checkpoint: Place | None = None

    @property
    def theta(self) -> Theta:
        """Initial hyper-parameters."""
        return self.start.theta

    def arranged(self) -> Self:
        """Return the problem with the rows in the units of the method."""
        stage = self.recipe.arrangement.arrange(self.stage, self.theta, self.sums, self.keep)
        return self._replace(stage=stage)


class Outcome(NamedTuple):
    """Result of training.

    Attributes
    ----------
    stage : Rounds
        The rows in units, as the method has solved for them.
    theta : Theta
        Hyper-parameters.
    state : NamedTuple
        What the method's predictions need.
    objective : float, optional
        Its value for all rows, if the method has one.
    history : list of dict
        Iterations of the search for hyper-parameters.
    kept : TrainingRows, optional
        Rows that predictions read back.
    errors : ndarray (k,), optional
        Standard errors of the logarithms of the hyper-parameters.
    total : NamedTuple, optional
        Sums over rows that state and objective follow from, to which more rows can be added.
    left : object
        What a later call goes on from, beside the posterior.
    """

    stage: rounds.Rounds
    theta: Theta
    state: Any
    objective: float | None
    history: list[dict[str, Any]]
    kept: TrainingRows | None = None
    errors: np.ndarray | None = None
    total: Any = None
    left: Any = None


class Trainer(ABC):
    """Way in which a method learns from its rows, and its cost: a value made from settings."""

    def check(self, recipe: Recipe, rows: data.Rows) -> None:
        """Raise InputError for rows whose columns or size the settings do not suit."""
        return

    def check_number(self, recipe: Recipe, rows: data.Rows, n: int) -> None:
        """Raise InputError for a number n of usable rows that the settings do not suit."""
        return

    def with_knob(self, recipe: Recipe, value: int) -> tuple[Recipe, int | None]:
        """Return a recipe for another value of the plan's knob; and the value, if it is not in it.

        An arrangement takes the value of its own.
        """
        return recipe, value

    def workload(self, recipe: Recipe, work: Workload) -> Workload:
        """Return the work of a fit, from that of the arrangement and the method alone."""
        return work

    def of_kinds(self, counts: np.ndarray) -> Trainer:
        """Return the trainer for rows whose last column holds codes, of so many rows each (p,)."""
        return self

    def takes_curvature(self, recipe: Recipe, rows: data.Rows) -> bool:
        """Return whether training begins with the curvature of a subset's evidence."""
        return True

    def begin(self, problem: Problem) -> Start:
        """Return a start that is better than one from a sample, where the trainer has one."""
        return problem.start

    @abstractmethod
    def learn(self, problem: Problem) -> Outcome:
        """Train from the start, and solve."""

    def train(self, problem: Problem, run: Run) -> train.Trained:
        """Return the best vector of hyper-parameters, the search's history and the curvature."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Recipe:
    """A method with all settings of its fit.

    Attributes
    ----------
    name : str
        What messages call it.
    method : Method
        For any number of units, and a mean without a trend.
    kernels : tuple of Kernel
        Kernels of the columns of X, of which the evidence of a subset of rows chooses one; the
        first one is taken where nothing is trained.
    inputs : Inputs
        Inducing inputs or the like.
    arrangement : Arrangement
        How rows are cut into units.
    trainer : Trainer
    traits : Traits
    asked : Asked
        What users say about hyper-parameters.
    settings : mapping
        All settings by name, for the identity of a checkpoint.
    begun_from : str, optional
        Identity of the model that training begins from; None for a search for a start.
    likelihood : Likelihood, optional
        Likelihood that Gaussian sites stand for; None for that of the method.
    latent : float, optional
        Unit of the latent function, where targets are those of sites.
    begins_at_spread : bool
        Whether the search for a start begins with variances in proportion to that of the targets,
        which have no scale of their own.
    of_part : bool
        Whether rows are those of a fold, in which a class may be missing.
    levels : ndarray (p,), optional
        Scales of the targets whose codes the last column has, where rows are those of joint ones.
    barriers : str, mapping or Polygons, optional
        Polygons that rows do not see one another across: as a setting gives them, until a fit has
        read them.
    others
        As the settings of an estimator.
    """

    name: str
    method: Method
    kernels: tuple[Kernel, ...]
    inputs: Inputs
    arrangement: Arrangement
    trainer: Trainer
    traits: Traits
    asked: Asked
    settings: Mapping[str, Any]
    noise_variance: float
    mean: Mean
    standardize: bool
    target_transform: Literal["log", "sqrt", "boxcox"] | None
    calibrate: Literal["blocks", "random", "loo"] | None
    optimizer: OptimizerName | None
    learning_rate: float
    max_iter: int
    tol: float
    train_blocks: int | Literal["auto"] | None
    random_state: int | None
    geographic: Any
    fill_values: Any
    unseen: UnseenName
    block_rows: int | None
    store: Path | None
    dtype: DtypeName
    device: Device
    progress: ShowProgress
    begun_from: str | None = None
    likelihood: Likelihood | None = None
    latent: float | None = None
    begins_at_spread: bool = False
    of_part: bool = False
    targets: Literal["separate", "joint"] = "separate"
    levels: np.ndarray | None = None
    barriers: Any = None

    @property
    def observed_by(self) -> Likelihood:
        """Likelihood of y given f."""
        return self.likelihood or likelihoods.by_name(self.method.likelihood_name)

    @property
    def codes(self) -> Likelihood | None:
        """Likelihood of targets that are codes or counts; None for those that are measured."""
        return None if self.observed_by.standardised else self.observed_by

    @property
    def columns(self) -> tuple[str, ...]:
        """Numbers of each row that the likelihood takes beside y."""
        return self.observed_by.own_columns

    def seed(self) -> int:
        """Return the seed of samples; a new one each time if ``random_state`` is None."""
        return seed_of(self.random_state)

    def choices(self, rows: data.Rows) -> list[Kernel]:
        """Return the kernels to choose from, as kernels of the columns of the inputs."""
        return [self._of(rows, kernel) for kernel in self.kernels]

    def kernel(self, rows: data.Rows) -> Kernel:
        """Return the first of them."""
        return self._of(rows, self.kernels[0])

    def _of(self, rows: data.Rows, kernel: Kernel) -> Kernel:
        """Return a kernel of features as one of the inputs; the default one takes categories."""
        names = rows.feature_names
        for name in reversed(names) if self.settings.get("kernel") is None else ():
            if len(rows.categories.get(name, ())) > 1:
                kernel = Categorical(name) * kernel
        return rows.columns.kernel(kernel)

    def choices_in_units(self, stage: rounds.Rounds) -> list[Kernel]:
        """Return the kernels to choose from, whose numbers are in the units of the model."""
        d, size = stage.rows.n_features, self.size(stage.scaling)
        return [in_model_units(kernel, d, size) for kernel in self.choices(stage.rows)]

    def size(self, scale: scaling.Scaling) -> Size:
        """Return what gives the size of a unit in the user's, None if there is no such size."""
        return partial(scale.size, levels=self.levels)

    def tied(self, rows: data.Rows) -> scaling.Ties:
        """Return the columns that share a scale."""
        return self.kernel(rows).tied_columns(rows.n_features)

    def categories(self, rows: data.Rows) -> tuple[int, ...]:
        """Return the columns that hold codes of categories, which are not scaled."""
        return codes_of(self.kernel(rows), rows.n_features)

    def extents(self, rows: data.Rows) -> dict[int, tuple[int, ...]]:
        """Return the columns that are lengths around places, each with those whose scale it has."""
        return extents_of(self.kernel(rows), rows.n_features)

    def known(self, rows: data.Rows) -> tuple[int, ...]:
        """Return the columns of which no hyper-parameter is left open."""
        return known_columns(self.kernel(rows), rows.n_features)

    def beside_places(self, rows: data.Rows) -> tuple[int, ...]:
        """Return the columns that do not say where a row is, on which no mean depends."""
        return beside_places(self.kernel(rows), rows.n_features)

    def constraints(self, theta: Theta, scale: scaling.Scaling) -> Constraints:
        """Return what users say about hyper-parameters, in the units of the model."""
        if self.codes is not None:  # the latent function has no unit
            scale = replace(scale, y_scale=np.ones(len(scale.y_scale)))
        noise = self.noise_variance if self.begun_from is None else None
        return self.asked.about(theta, scale, noise, self.levels)

    @property
    def read_rows(self) -> int | None:
        """Most rows that a task reads of the data in their original order."""
        return self.block_rows if self.traits.reads_blocks else None

    def spans(self, rows: data.Rows) -> tuple[partition.Span, ...]:
        """Return the parts in which tasks read rows in their original order."""
        return tuple(partition.blocks(len(rows), rows.chunks, self.read_rows))

    def rows_of(
        self,
        X: Any,
        y: Any,
        spill: str | None,
        shared_memory: bool,
        beside: Beside | None = None,
    ) -> data.Rows:
        """Return the rows of X and y, see `daskgp.data.rows_of`."""
        given = beside, self.geographic, self.columns, None, True
        rows = data.rows_of(X, y, spill, shared_memory, self.read_rows, *given)
        prepared.check_columns(rows)
        rows = replace(rows, categories=self._levels(rows))
        names = rows.feature_names
        footprints = self._footprints(names)
        means.check_footprints(self.mean, self.kernels[0], footprints)
        return replace(rows, trend=means.columns(self.mean, names, rows.categories, footprints))

    def _footprints(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of features that are footprints.

        Raise SettingError for kernels to choose from that differ in them.
        """
        known: dict[Any, str] = dict(enumerate(names)) | {name: name for name in names}
        found = []
        for kernel in self.kernels:
            parts = list(averages(kernel))
            named = (j for part in parts for j in part.footprint_columns())
            columns = tuple(known[j] for j in named if j in known)  # the kernel refuses others
            found.append((columns, [part.of_points for part in parts]))
        for kernel, own in zip(self.kernels, found, strict=True):
            if own != found[0]:
                raise SettingError(
                    f"{self.kernels[0]!r:.200} and {kernel!r:.200}, kernels to choose from, differ "
                    "in their footprints, but one scaling of the rows serves both: give all the "
                    "same footprints"
                )
        return found[0][0]

    def _levels(self, rows: data.Rows) -> Levels:
        """Return the levels of all features that are categories: of numbers those that occur."""
        found, names = dict(rows.categories), rows.feature_names
        for kernel in self.kernels:
            for table in tables(kernel):
                if self.targets == "joint" and table.column == VARIABLE and VARIABLE in names:
                    raise SettingError(
                        f"{type(table).__name__}({VARIABLE!r}) of targets='joint' is over the "
                        f"targets, and X has a feature {VARIABLE!r} too: rename the feature"
                    )
                at = names.index(table.column) if table.column in names else table.column
                if not isinstance(at, int) or at >= len(names):
                    continue  # no feature, which others refuse, or the column of joint targets
                name, fills = names[at], rows.fills[at : at + 1]
                if table.levels is not None:  # the codes of which are in the column
                    found.setdefault(name, table.level_names)
                elif name not in found:
                    found[name] = distinct(name, rows.X, at, fills[0] if fills else ())
        return found

    def objective_of(self, stage: rounds.Rounds) -> Any:
        """Return the method for rows as their scaling makes them, whatever their units."""
        return means.with_trend(self.method, stage.scaling)

    def method_of(self, stage: rounds.Rounds) -> Method:
        """Return the method for rows in units."""
        method: Method = self.objective_of(stage).of_units(stage.n_units)
        return method

    def changed(self, **settings: Any) -> Self:
        """Return the recipe with other settings, for which it is another one to a checkpoint."""
        return replace(self, **settings, settings={**self.settings, **settings})
