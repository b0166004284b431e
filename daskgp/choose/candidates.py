"""Candidates of a search: kernels, methods and sizes, and the time that they are expected to take.

Expected times come from the operations that the plan of a fit counts and from rates measured once,
not from the clock: a search decides the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from daskgp import data, kernels
from daskgp.assess.calibration import LEFT_OUT
from daskgp.choose.profile import Profile
from daskgp.estimators import requirements
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.lma import LMA
from daskgp.estimators.settings import check_settings
from daskgp.estimators.sgpr import SGPR
from daskgp.estimators.svgp import SVGP
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.fit import conditionals, joint, means, work
from daskgp.fit.arrange.blocks import DEFAULT_ROWS
from daskgp.fit.hyperparameters import SECOND
from daskgp.fit.plan import Plan, make_plan
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import averages
from daskgp.kernels.compose import Product, tables
from daskgp.kernels.units import left_open
from daskgp.models.markov.conditionals import MOST_COMPILED
from daskgp.runtime.executor import Executor
from daskgp.typing import LikelihoodName

CANDIDATES = (SGPR, VecchiaGP, LMA, ExactGP, SVGP)
"""Classes of the methods that are tried."""
EXACT_ROWS, FEW_ROWS = 20_000, 2_000
"""Most rows of the exact GP, and of those that are not given their neighbours beside it."""
SMALL, FEW_FEATURES = 5_000, 3
"""Rows up to which the exact GP is taken where it is as good as others, and features up to which it
is not tried beyond them."""
SCALES_FEATURES = 4
"""Most features with which a sum of two scales is tried, and hyper-parameters that vary."""
SLOWLY, CYCLE_STEPS = 0.5, 15
"""Lengthscale over which cycles begin to change, in the range of the data, and most iterations of
their training, which begins near its end."""
FEW_INPUTS, FEW_STEPS = 128, 500
"""Inducing inputs and steps of SVGP for small budgets."""
COMMON = (
    "kernel",
    "device",
    "store",
    "random_state",
    "progress",
    "geographic",
    "noise_variance",
    "targets",
    "footprint",
    "unseen",
    "fixed",
    "limits",
    "prior",
)
"""Settings that do not tell candidates apart."""


class Cost(NamedTuple):
    """Time of fits of a method, as measured on one core of 2023.

    Attributes
    ----------
    rate : float
        Floating-point operations per second and thread.
    evaluations, each : float
        Values and gradients of a fit that starts near its end, as its plan counts them: so many,
        and so many more per hyper-parameter.
    whole : float
        Values and gradients on all blocks, where others are on some.
    seconds : float
        Time beside these, of starts and of small steps.
    """

    rate: float
    evaluations: float
    each: float
    whole: float
    seconds: float


COSTS = {
    "exact": Cost(5e10, 4.0, 1.2, 0.0, 0.5),
    "sgpr": Cost(2e10, 6.0, 2.4, 0.0, 0.7),
    "lma": Cost(1.8e10, 5.0, 1.6, 3.0, 0.8),
    "pic": Cost(1.8e10, 5.0, 1.6, 3.0, 0.8),
    "vecchia": Cost(3.5e9, 2.0, 0.75, 0.0, 1.0),
    "svgp": Cost(2.5e10, 1.0, 0.0, 0.0, 1.0),
    "decoupled": Cost(2.5e10, 1.0, 0.0, 0.0, 1.0),
}
OTHERS = Cost(4e9, 60.0, 0.0, 0.0, 10.0)
SOLVED = 2.5
"""Floating-point operations of an evaluation of SGPR beside the rows, in cubes of its inputs."""
SITES, OF_TAILS, A_SITE = 2.0, 20.0, 1.5e-5
"""Time of a fit by Gaussian sites, in that of one with Gaussian noise, and that of its passes that
train nothing where tails are heavy, whose sites take more turns; seconds of a site in a turn."""
SEARCH_RATE, LEAF = 1e9, 32
"""Differences of features per second in a search for neighbours, and rows of a leaf of its tree."""
ALONE = 2e-3
"""Seconds of the prediction of a row that is left out from its neighbours, among all rows."""
STARTED, NEARER = 4.0, 0.5
"""Divisor of the time of starts, and factor on evaluations, of a fit whose kernel has all
hyper-parameters."""
BESIDE, FACTOR = 0.5, 0.15
"""Evaluations of all rows that are worth the passes after training, summary and predictions, and
those that the factor of the exact GP is worth, which has no others."""
PER_FACTOR, FACTOR_RATE = 2, 7e9
"""Held-out rows per factor of near rows, and operations per second and thread there."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """An estimator to be tried, with the structure of its kernel in words.

    Attributes
    ----------
    stage : {"structure", "method", "size"}
    estimator : GaussianProcess
        Unfitted.
    structure : str
        Such as "matern (ard)"; empty where the kernel is the user's.
    """

    stage: str
    estimator: GaussianProcess
    structure: str = ""

    @property
    def method(self) -> str:
        """Name of the method in the registry."""
        return self.estimator.model_name

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that differ from the defaults, as plain values."""
        found = {}
        for one in fields(self.estimator):
            value = getattr(self.estimator, one.name, None)
            if one.name in COMMON or not one.init or one.name == "_":
                continue
            if isinstance(value, np.ndarray) or value != one.default:
                plain = isinstance(value, str | bool | int | float | None)
                found[one.name] = value if plain else str(value)[:80]
        return found

    def began(self, kernel: Kernel | None, noise_variance: float | None) -> Candidate:
        """Return the candidate with hyper-parameters to start from."""
        own: dict[str, Any] = {"kernel": kernel}
        if kernel is None or (noise_variance is None and not self.joint):
            return self
        if self.gaussian and noise_variance is not None:
            own["noise_variance"] = noise_variance
        if next(averages(kernel), None) is not None:
            own["footprint"] = None  # the kernel has it
        return self.having(**own)

    def again(self, kernel: Kernel | None, noise_variance: float | None) -> Candidate:
        """Return the candidate for another fold of the same rows, to begin where one has ended.

        Levels of categories may be others there, and few steps are to be as few as they are.  What
        takes long to train is held.
        """
        if kernel is None or tables(kernel) or not self._repeats:
            return self
        if self.robust:
            return self.having(kernel=kernel).held()
        begun = self.began(kernel, noise_variance)
        return begun.held() if self.cyclic else begun

    @property
    def _repeats(self) -> bool:
        able = self.gaussian or self.robust
        return self.holds and able and self.estimator.optimizer is not None

    @property
    def cyclic(self) -> bool:
        """True if its kernel has cycles."""
        return "periodic" in self.structure

    @property
    def robust(self) -> bool:
        """True if the noise is that of Student's t."""
        return bool(self.estimator.likelihood == "student-t")

    def having(self, stage: str | None = None, **settings: Any) -> Candidate:
        """Return the candidate with other settings."""
        other = clone(self.estimator).set_params(**settings)
        return replace(self, estimator=other, stage=stage or self.stage)

    def held(self) -> Candidate:
        """Return the candidate without training, or settings that have no effect then."""
        other = self if self.estimator.optimizer is None else self.having(optimizer=None)
        usual = requirements.defaults(type(other.estimator))
        while idle := requirements.idle(other.estimator):  # one may rest on another
            other = other.having(**{name: usual[name] for name in idle})
        return other

    @property
    def holds(self) -> bool:
        """True if hyper-parameters found on fewer rows can be held in a fit."""
        return self.method not in STEPPED and not self.varies and not self.joint

    @property
    def joint(self) -> bool:
        """True if several targets go together, each with a noise variance of its own."""
        return bool(self.estimator.targets == "joint")

    @property
    def varies(self) -> bool:
        """True if hyper-parameters are to vary over space, which is trained with all rows."""
        return getattr(self.estimator, "varying", None) is not None

    @property
    def gaussian(self) -> bool:
        """True if the noise is Gaussian; another likelihood has parameters of its own."""
        return self.estimator.likelihood == "gaussian"

    @property
    def coded(self) -> bool:
        """True if the likelihood is one of codes or counts, which has no noise variance."""
        return self.estimator.recipe().codes is not None

    @property
    def turns(self) -> float:
        """Expected number of passes over all rows with sites of their likelihood; 1 without."""
        if self.estimator.recipe().likelihood is None:
            return 1.0
        return OF_TAILS if self.robust else SITES

    def seconds(self, plan: Plan, threads: int, rows: data.Rows) -> float:
        """Return the expected time of a fit with a plan to rows with such columns."""
        own, cost, evaluations = self.estimator, COSTS.get(self.method, OTHERS), 0.0
        whole = FACTOR if isinstance(own, ExactGP) else BESIDE
        if own.optimizer is not None:
            evaluations = float(own.max_iter)
            if self.method not in STEPPED:
                evaluations = cost.evaluations + cost.each * hyperparameters_of(self, rows)
            if isinstance(own, VecchiaGP):
                evaluations *= (2.0 if self.varies else 1.0) * drawn_share(self, plan.rows, rows)
            whole += cost.whole
        if self.turns > 1:
            evaluations, whole = SITES * evaluations, self.turns * whole
        one = self.one_evaluation(plan, threads)
        blocks = -(-plan.rows // max(plan.block_rows, 1))
        part = min(1.0, SECOND / blocks) if own.train_blocks == "auto" else 1.0
        starts = cost.seconds
        if not self.opens(rows):
            starts /= STARTED
            evaluations *= NEARER if own.optimizer is not None and self.holds else 1.0
        if isinstance(own, VecchiaGP):
            seen = _seen(plan, rows) * rows.n_features
            starts += self.turns * plan.rows * seen / (SEARCH_RATE * threads)
        starts += A_SITE * (self.turns - 1) * plan.rows
        return starts + (evaluations + whole / part) * one

    def opens(self, rows: data.Rows) -> bool:
        """Return True if hyper-parameters are left open, for which a start is looked for.

        Kernels of joint targets are counted as open: columns of theirs are in no rows.
        """
        kernel = self.estimator.kernel
        if self.joint:
            return True
        if not isinstance(kernel, Kernel):
            return True
        named = self.estimator.recipe().kernel(rows)  # names and levels of categories
        return bool(left_open(named, rows.n_features).any())

    def left_out_seconds(self, plan: Plan, threads: int, rows: data.Rows) -> float:
        """Return the expected time of predictions of rows that are left out one by one."""
        number = min(LEFT_OUT, plan.rows)
        if isinstance(self.estimator, VecchiaGP):
            return number * ALONE * _seen(plan, rows) / (plan.rows * threads)
        own = self.predicting_seconds(plan, threads, number)
        return own or BESIDE * self.one_evaluation(plan, threads)

    def predicting_seconds(self, plan: Plan, threads: int, number: int) -> float:
        """Return the expected time of predictions at places, where these take long."""
        own: Any = self.estimator
        if isinstance(own, ExactGP):
            return number * float(plan.rows) ** 2 / COSTS[self.method].rate
        if isinstance(own, VecchiaGP) or not isinstance(own, LMA):
            return 0.0
        w, m = min(own.predict_rows or DEFAULT_ROWS, plan.rows), own.n_support
        return number / PER_FACTOR * (w**3 / 3 + 3 * w**2 * m) / (FACTOR_RATE * threads)

    def learns_spread(self, rows: data.Rows) -> bool:
        """Return True if rows that are left out can tell the spread of predictions."""
        own = self.estimator
        known = rows.y_variance is not None or own.calibrate is not None
        return self.gaussian and not (known or self.joint or own._model().why_no_loo())

    def one_evaluation(self, plan: Plan, threads: int) -> float:
        """Return the expected time of a value and gradient."""
        rate = COSTS.get(self.method, OTHERS).rate
        own, solving = self.estimator, 0.0
        if isinstance(own, SGPR):
            solving = SOLVED * min(own.n_inducing, plan.rows) ** 3
        return plan.operations / (rate * min(threads, max(plan.tasks, 1))) + solving / rate


STEPPED = ("svgp", "decoupled")
"""Methods whose plans count the operations of a step of ``max_iter``."""


def bytes_of(plan: Plan, executor: Executor) -> int:
    """Return the most bytes of a process; of this one where tasks run in it."""
    worker = work.needed(plan)
    if executor.client is None:
        return max(executor.threads() * plan.bytes_per_task + plan.bytes_client, worker)
    return max(worker, plan.bytes_client)


def hyperparameters_of(candidate: Candidate, rows: data.Rows) -> int:
    """Return the number of hyper-parameters, that of the noise included."""
    recipe, own = candidate.estimator.recipe(), 1
    if candidate.joint:
        own, (recipe, rows) = rows.n_targets, joint.planned(recipe, rows)
    kernel = recipe.kernel(rows).resolve(np.ones(rows.n_features), 1.0)
    return own + len(kernel.parameter_names)


def _seen(plan: Plan, rows: data.Rows) -> int:
    """Return the number of rows that the search for the neighbours of one looks at."""
    return int(min(plan.rows, LEAF * 2**rows.n_features))


def drawn_share(candidate: Candidate, n: int, rows: data.Rows) -> float:
    """Return the share of n rows whose conditionals hyper-parameters are trained on."""
    local: Any = candidate.estimator
    number = conditionals.wanted(local.training_rows, n, hyperparameters_of(candidate, rows))
    return min(1.0, number / max(n, 1))


def plan_of(estimator: GaussianProcess, rows: data.Rows, executor: Executor) -> Plan:
    """Return the plan of a fit to rows, from their sizes; InputError if there can be none."""
    rows = replace(rows, trend=means.columns(estimator.mean, rows.feature_names))
    check_settings(estimator)
    recipe = estimator.recipe()
    if recipe.targets == "joint":
        recipe, rows = joint.planned(recipe, rows)
    work.check(recipe, rows, len(rows))
    recipe.asked.check_names(recipe.kernel(rows), rows.n_features)
    load = work.work_of(recipe, rows)
    work.refuse(load, executor.memory_per_task())
    return make_plan(load)


# -- what is tried ---------------------------------------------------------------------------


def structures(
    base: ExactGP,
    profile: Profile,
    first: Kernel,
    noise_variance: float | None = None,
    trends: bool = True,
) -> list[Candidate]:
    """Return the kernels to compare with the default one, which has become ``first``.

    Simple ones come first.  Those of the same hyper-parameters begin at its own and its noise
    variance.  With ``trends`` the mean function is chosen, too.  All take the categories as the
    default one does, in factors.
    """
    levels, inner = _apart(first, profile)
    order = {"matern12": kernels.Matern12, "matern32": kernels.Matern32}.get(
        inner.name, kernels.Matern52
    )

    coded = [profile.features.index(name) for name in profile.categories]

    def tried(kernel: Kernel, name: str, **more: Any) -> Candidate:
        own = levels if more.get("noise_variance") else [*map(kernels.Categorical, coded)]
        kernel = reduce(lambda kernel, level: level * kernel, reversed(own), kernel)
        return Candidate("structure", clone(base).set_params(kernel=kernel, **more), name)

    begun: dict[str, Any] = {"ard": True}
    noise: dict[str, Any] = {}
    if (
        type(inner) is order
        and inner.ard
        and noise_variance is not None
        and base.targets != "joint"
    ):
        begun |= {name: getattr(inner, name) for name in ("lengthscale", "variance", "active_dims")}
        noise = {"noise_variance": noise_variance}
    found = []
    if profile.numbers > 1 and profile.alike:
        found.append(tried(order(), f"{inner.name}, one lengthscale"))
    found.append(tried(kernels.RBF(**begun), "rbf (ard)", **noise))
    if profile.kind == "measured" and trends:
        name = f"{inner.name} (ard), linear trend"
        found.append(tried(order(**begun), name, mean="linear", **noise))
    numbers = (j for j in range(len(profile.features)) if j not in coded)
    places = tuple(j for j in numbers if j not in profile.times)
    if profile.times and places:
        space = order(ard=True, active_dims=places)
        time = kernels.Matern32(active_dims=profile.times, ard=True)
        found.append(tried(space * time, f"{inner.name} of space * matern32 of time"))
    if profile.varying <= SCALES_FEATURES:
        both = kernels.Matern52(ard=True) + kernels.Matern12(ard=True)
        found.append(tried(both, "matern52 (ard) + matern12 (ard)"))
    if profile.series.cycles:
        name = f"matern32 + {len(profile.series.cycles)} periodic * rbf"
        own: dict[str, Any] = {"noise_variance": profile.series.noise, "max_iter": CYCLE_STEPS}
        if not (base.limits or base.fixed):
            own["limits"] = profile.series.limits
        found.append(tried(_of_cycles(profile), name, **own))
        if trends:
            name = f"{name}, linear trend"
            found.append(tried(_of_cycles(profile), name, mean="linear", **own))
    return found


def _apart(kernel: Kernel, profile: Profile) -> tuple[Sequence[Kernel], Kernel]:
    """Return the factors of a default kernel that are over categories, and the other one."""
    if profile.categories and isinstance(kernel, Product):
        return kernel.parts[:-1], kernel.parts[-1]
    return (), kernel


def _of_cycles(profile: Profile) -> Kernel:
    """Return a kernel of the cycles of a series, which change slowly, and of the rest."""
    varying = (j for j, name in enumerate(profile.features) if name not in profile.constant)
    own: dict[str, Any] = {"active_dims": (next(varying),) if len(profile.features) > 1 else None}
    series = profile.series
    found: Kernel = kernels.Matern32(series.length, series.variance, **own)
    for period, variance in series.cycles:
        slowly = kernels.RBF(lengthscale=SLOWLY * series.reach, variance=1.0, **own)
        found += kernels.Periodic(1.0, period, variance, **own) * slowly
    return found


def methods(profile: Profile, common: dict[str, Any], rows: int) -> list[Candidate]:
    """Return the methods that suit the target and the number of rows of the last fit."""
    first: list[GaussianProcess] = [SGPR(**common)]
    if rows > FEW_ROWS:
        first.insert(0, VecchiaGP(**common))  # the fastest
    law = profile.likelihood
    if law is not None and profile.settled:
        return [*_with_likelihood(law, first), *_stochastic(profile, law, common, rows)]
    near = rows > SMALL and profile.varying <= FEW_FEATURES  # neighbours are as good there
    exact = rows <= EXACT_ROWS and not near
    found = [*first, *([ExactGP(**common)] if exact else [])]
    if profile.kind == "measured":
        found.append(LMA(**common))
    own = [Candidate("method", one) for one in found]
    if law is not None:
        own = [*_with_likelihood(law, first), *own]
        own += _stochastic(profile, "poisson", common, rows)
    return own


def robust(profile: Profile, common: dict[str, Any], rows: int) -> list[Candidate]:
    """Return the methods with Student-t noise, where residuals have heavy tails."""
    if not profile.heavy:
        return []
    few = SGPR(n_inducing=min(FEW_INPUTS, max(rows // 2, 1)), **common)
    found: list[GaussianProcess] = [few, *([VecchiaGP(**common)] if rows > FEW_ROWS else [])]
    return _with_likelihood("student-t", found)


def _with_likelihood(
    likelihood: LikelihoodName, given: Sequence[GaussianProcess]
) -> list[Candidate]:
    """Return estimators with a likelihood that Gaussian sites stand for."""
    return [Candidate("method", clone(one).set_params(likelihood=likelihood)) for one in given]


def _stochastic(
    profile: Profile, likelihood: LikelihoodName, common: dict[str, Any], rows: int
) -> list[Candidate]:
    """Return SVGP with a likelihood and with few steps; its default sizes are tried at last.

    None for rows with weights, which it does not take.
    """
    if profile.weighted:
        return []
    few = min(FEW_INPUTS, max(rows // 2, 1))  # folds have fewer rows
    own = SVGP(n_inducing=few, max_iter=FEW_STEPS, **common | {"likelihood": likelihood})
    return [Candidate("method", own)]


def sizes(leader: Candidate, rows: int) -> list[Candidate]:
    """Return the leader with other sizes, as far as so many rows allow them."""
    own = leader.estimator
    steps: Sequence[dict[str, Any]] = ()
    if isinstance(own, SGPR):
        steps = [{"n_inducing": own.n_inducing * factor} for factor in (2, 4)]
        steps = [step for step in steps if 2 * step["n_inducing"] <= rows]
    elif isinstance(own, VecchiaGP):
        steps = [] if leader.varies else [{"varying": "auto"}]
        more = {name: 2 * getattr(own, name) for name in ("n_neighbours", "predict_neighbours")}
        near = more["predict_neighbours"]
        one = {"predict_neighbours": near}  # which is no training
        several = [one, more] if near <= MOST_COMPILED else [more]  # more at a place are slow
        steps = [*steps, *several] if 4 * near <= rows else steps
    elif isinstance(own, LMA):
        if 4 * own.n_support <= rows:
            steps = [*steps, {"n_support": 2 * own.n_support}]
        block = own.block_rows or 256
        if 8 * block <= rows:
            steps = [*steps, {"block_rows": 2 * block}]
        near = own.predict_rows or DEFAULT_ROWS
        if own.markov_order and 8 * near <= rows:
            steps = [*steps, {"predict_rows": 2 * near}]
    elif full_size(leader):
        return full_size(leader)
    elif isinstance(own, SVGP) and 4 * own.n_inducing <= rows:
        steps = [{"n_inducing": 2 * own.n_inducing}]
    return [leader.having("size", **step) for step in steps]


def full_size(candidate: Candidate) -> list[Candidate]:
    """Return SVGP of few steps with its default sizes; nothing for others."""
    own, usual = candidate.estimator, SVGP()
    if not isinstance(own, SVGP) or own.max_iter != FEW_STEPS:
        return []
    return [candidate.having("size", n_inducing=usual.n_inducing, max_iter=usual.max_iter)]
