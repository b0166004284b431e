"""Search for a method, a kernel and sizes: rounds of trials on samples of rows that grow.

1. Kernels are compared by the exact GP on few rows; the simplest that is not surely worse is kept.
   Where these are all rows of a fold, its approximations are not tried.
2. Methods are compared with this kernel on samples that grow by GROWTH; the better half goes on.
   Where the budget has no room to train all on FIRST_ROWS they hold hyper-parameters of the kernel,
   of the exact GP, or of `VecchiaGP` on many rows where it has time for few alone, and are compared
   on as many rows as there is room for: few rows tell methods not apart.
3. The next best kernels, and other sizes, of the best one are compared on the last sample.
4. What expected times have shut out is tried as far as the clock leaves time, the most promising
   first.
Where residuals have heavy tails and Student-t noise does better on the rows of step 1, step 4 alone
follows, with such noise.

Every trial starts at the hyper-parameters of the one before.  What is tried follows from expected
times but in step 4, so that the same seed makes the same trials; the deadline only ends what takes
longer, and gives the exact GP fewer rows.  On a cluster the trials of a comparison run side by
side.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from daskgp.assess.leaderboard import HeldOut, Leaderboard
from daskgp.choose.candidates import (
    SCALES_FEATURES,
    SMALL,
    Candidate,
    methods,
    plan_of,
    robust,
    sizes,
    structures,
)
from daskgp.choose.trials import LOCAL, SEARCH, Trials, Tried, whole
from daskgp.errors import DaskgpError, PlanError, RunError
from daskgp.estimators.exact import ExactGP

logger: logging.Logger = logging.getLogger("daskgp")

STRUCTURE = 0.2
"""Share of the budget that the comparison of kernels may take."""
ROBUST = 0.2
"""Share of the budget that the first trial with Student-t noise may take."""
STRUCTURE_ROWS, FIRST_ROWS, GROWTH = 2_000, 4_000, 4
"""Rows of the trials of kernels, of the first round of methods, and growth from round to round."""
HELD = 0.5
"""Share of the budget after which no method is compared that holds its hyper-parameters."""
MORE = 0.3
"""Share of the budget that hyper-parameters may take of the kernel chosen, on more rows."""
NEAR, AT_MOST = 0.01, 0.05
"""Parts of a score, and nats of a density, that are too little to take longer for in a short search
whose methods hold their hyper-parameters: of any difference, and of one that may be chance."""
BEHIND = 0.1
"""Part of the gain over the constant mean by which a trial that holds its hyper-parameters may be
behind to be trained in the time that is left."""
WAITS = 0.35
"""Share of the budget that a method is expected to take at most, though it holds hyper-parameters,
to be compared with others; those beyond it are tried in the time that is left."""
OTHER_KERNELS = 2
"""Kernels that the best method is tried with beside the one chosen on few rows, and others that are
trained beside the best of those that hold their hyper-parameters."""
CYCLE_ROWS = 600
"""Rows that hyper-parameters of a kernel with cycles are trained on, which has many."""
LEAST_ROWS = 250
"""Rows that no round has fewer of, if there are as many."""
OVERHEAD = 5.0
"""Seconds that a search takes beside its fits, at most, to say how much time is enough."""
MARGIN = 1.2
"""Factor on the time of the last fit that is kept for it."""
MOST_SQUARE, MANY, SURE_RATIO = 9.0, 10, 4.0
"""Most that the square of a residual counts, and rows for each term and variance ratio from which
residuals are said to spread differently from place to place."""
VARYING_NEAR = 200
"""Neighbours of a prediction where hyper-parameters vary, whose training takes longer."""


@dataclass
class Search:
    """A search by trials for the candidate that is fitted to all rows."""

    trials: Trials
    _compared: list[Tried] = field(default_factory=list)
    holding: int = 0
    """Rows whose hyper-parameters the trials of methods hold; 0 where all are trained."""
    holds: bool = False
    """Whether hyper-parameters are held just now."""
    trained: bool = False
    """Whether those of the trial chosen were trained after others had been held."""
    learned: int = 0
    """Rows that the hyper-parameters of the kernel chosen were trained on."""
    learner: str = "exact"
    """Method that has trained them."""
    holder: str = "exact"
    """Method that has trained those of ``holding`` rows."""
    plain: bool = False
    """Whether Student-t noise was no better on many rows."""

    def __post_init__(self) -> None:
        self.profile = self.trials.profile

    def chosen(self, common: dict[str, Any], given: Sequence[Candidate] | None) -> Tried:
        """Return the trial whose candidate is to be fitted to all rows."""
        rows = len(self.trials.rows)
        several = given if given is not None else methods(self.profile, common, rows)
        candidates = self._possible(several)  # before anything is tried
        self.trials.try_mean()
        start: Tried | None = None
        exact: list[Tried] = []
        able = {one.method for one in candidates}
        if given is None:
            out = {one.method for one in several} - {one.method for one in candidates}
            with self.trials.within(self._share_of_structure):
                start = self._best_structure(common)
            several = [one for one in several if one.method not in out]
            heavy = robust(self.profile, common, rows)
            if best := self._robust(start, heavy):
                return self._with_time_left(best, heavy)
            if rows > SMALL and not self.plain:
                several = [*several, *heavy]
            exact = self._as_method(start, several)
            if not exact:
                start = self._learned(start, several)
                exact = self._as_method(start, several) if self._has_all(start) else []
            if exact:  # what approximates it cannot be better
                several = [one for one in several if not one.gaussian]
            else:
                several = [*self._variants(start, several), *several]
            several = [self._begun(one, start) for one in several]
            candidates = self._possible(several) if not exact else self._if_possible(several)
        leaders = self._rounds(candidates, start, exact)
        if given is not None:
            return self._preferred(leaders)
        return self._with_time_left(self._overtaken(self._best(leaders), able), several)

    def _best(self, leaders: Sequence[Tried]) -> Tried:
        """Return the best of the trials of the last round once it is refined."""
        best = self._preferred(leaders)
        if self.holding:
            best = self._trained(self._with_other_kernels(best))
            self.holds = True
            best = self._with_sizes(best)
            self.holds = False
            return best
        equals = [one for one in leaders if one is not best and not one.surely_worse(best)]
        best = self._refined(best)
        for one in equals:
            other = self._refined(one)
            best = other if best.surely_worse(other) else best
        return best

    # -- heavy tails -----------------------------------------------------------------------------

    def _robust(self, start: Tried | None, heavy: Sequence[Candidate]) -> Tried | None:
        """Return the trial with Student-t noise of the first method, if Gaussian noise is worse.

        It is to be so by the CRPS too, as the density alone says much of a few rows.
        """
        if start is None or not heavy:
            return None
        if self.profile.rows > SMALL:
            return self._robust_of_many(start, heavy[0])
        left = self.trials.left / self.trials.rules.seconds
        with self.trials.within(1 - left + ROBUST if math.isfinite(left) else SEARCH):
            found = self._trials(self._if_possible(heavy[:1]), start.trial.rows, SEARCH)
        better = [one for one in found if start.surely_worse(one)]
        return next((one for one in better if one.surely_closer(start)), None)

    def _robust_of_many(self, start: Tried, heavy: Candidate) -> Tried | None:
        """Return the trial on many rows with Student-t noise, if the same with Gaussian is worse.

        Few rows may have heavy tails because they do not tell f, and are asked first.
        """
        usual = heavy.having(likelihood="gaussian")
        kernel_of = self._tailed_of_few(start, heavy)
        if kernel_of is None:
            return None
        both, rows = [self._begun(one, kernel_of) for one in (usual, heavy)], self.trials.most_rows
        while rows > start.trial.rows and not self._room_for_held(both, rows):
            rows = max(rows // 2, start.trial.rows)
        pair = self._holding(both, rows, HELD) if self._room_for_held(both, rows) else []
        if len(pair) < 2:
            return None
        self.plain = not _tailed(*pair)
        if self.plain:
            return None
        self.holds, self.holding, self.holder = True, self.learned, self.learner
        best = self._with_sizes(pair[1])
        self.holds = False
        return best

    def _tailed_of_few(self, start: Tried, heavy: Candidate) -> Tried | None:
        """Return the trial whose kernel Student-t noise does better with on the rows of kernels.

        That is the one chosen or, as it may have taken outliers for f, the next best one.
        """
        own, before = start.candidate.structure, self.trials.spent
        others = [one for one in self._compared if one.candidate.structure != own]
        for one in [start, *others[:1]]:
            first = self._begun(heavy, one)
            if one.kernel is None or not self._if_possible([first.held()]):
                continue
            self._learned_by(one)
            found = self._holding([first], start.trial.rows, SEARCH)
            if found and _tailed(start, found[0]):
                return one
        self.trials.spent = before  # it took little, and is to shut out nothing
        return None

    def _room_for_held(self, candidates: Sequence[Candidate], rows: int) -> bool:
        """Return True if all candidates have room on so many rows where they train nothing."""
        held = [one.held() for one in candidates]
        return len(self.trials.room_for(held, rows, HELD)) == len(held)

    def _learned_by(self, start: Tried) -> None:
        """Let trials that hold hyper-parameters say that they are those of another trial."""
        self.learned = start.learned or start.trial.rows
        self.learner = start.learner if start.learned else start.trial.method

    def _overtaken(self, best: Tried, able: Collection[str]) -> Tried:
        """Return a trial, or one of such methods that did surely better, if with no more rows.

        That is one of kernels, where the budget had no time for its method beside others.  What
        approximates the exact GP is better than it on no number of rows.
        """
        known = (one for one in self.trials.tried if one.trial.method in able)
        whole = (one for one in known if len(one.loss) >= len(best.loss))  # failures have none
        less = [one for one in whole if one.mean < best.mean]
        for one in sorted(less, key=lambda one: one.mean):
            fair = one.trial.method == "exact" or one.trial.rows <= best.trial.rows
            if not (fair and best.surely_worse(one)):
                continue
            last = one.next()
            last = last.held() if last.holds else last
            if self._possible_one(last) and self._seconds_of_last(last) <= self.trials.left:
                return one
        return best

    # -- what time is left for -------------------------------------------------------------------

    def _with_time_left(self, best: Tried, several: Sequence[Candidate]) -> Tried:
        """Return the best of a trial and what expected times have shut out, by the clock.

        The most promising comes first, and the last fit of the best keeps its time.
        """
        if not math.isfinite(self.trials.left):
            return best
        with self.trials.by_clock():
            best = self._with_more_rows(best)
            while True:
                one, holds = self._next(best, self._promising(best, several))
                if one is None:
                    return best
                self._learned_by(best)
                able = self._holding if holds else self._trials
                for found in able([one], best.trial.rows, 1.0):
                    larger = one.stage == "size" and one.varies == best.candidate.varies
                    if best.surely_worse(found) or (larger and found.mean < best.mean):
                        best = found

    def _next(self, best: Tried, candidates: Sequence[Candidate]) -> tuple[Candidate | None, bool]:
        """Return the first candidate that was not tried and that there is time for.

        What takes turns with the sites of heavy tails is to hold hyper-parameters where there is no
        room for more, which the other value says.
        """
        self.trials.kept_back = self._time_of_last(best.next())
        tried = {_label(one.candidate) for one in [best, *self._settled(best)]}
        new = [one for one in candidates if _label(one) not in tried and self._possible_one(one)]
        held = {_label(one.candidate) for one in self.trials.tried if one.learned}
        asked = list[tuple[Candidate, Candidate, bool]]()
        for one in new:
            asked.append((one, one, False))
            if one.robust and _label(one) not in held:
                asked.append((one.held(), one, True))
        # a search that goes on makes the same steps
        kept = self.trials.first_kept([own for own, _, _ in asked], best.trial.rows)
        for own, one, holds in asked:
            if kept is own or (kept is None and self._in_time(own, best.trial.rows)):
                return one, holds
        return None, False

    def _in_time(self, candidate: Candidate, rows: int) -> bool:
        """Return True if the clock leaves time for a trial and its last fit."""
        pace, back = self.trials.pace(candidate.method), self._time_of_last(candidate)
        if pace * self.trials.expected([candidate], rows) + back > self.trials.left:
            return False
        return bool(self.trials.room_for([candidate], rows, 1.0))

    def _settled(self, best: Tried) -> list[Tried]:
        """Return the trials that training would not bring before the best: most hold nothing."""
        far = best.mean + BEHIND * (self.trials.of_mean.mean - best.mean)
        return [one for one in self.trials.tried if not one.learned or not one.mean < far]

    def _with_more_rows(self, best: Tried) -> Tried:
        """Return the best of a trial of the exact GP and those with hyper-parameters of more rows.

        Only where the last fit has no time to train them on all rows.
        """
        while best.learned and best.candidate.method == "exact":
            training, rows = best.next(), min(2 * best.learned, best.trial.rows)
            held = training.held()
            holding = self.trials.pace("exact") * self.trials.expected([held], best.trial.rows)
            self.trials.kept_back = self._time_of_last(held) + holding
            if self._seconds_of_last(training) <= self.trials.left or rows == best.learned:
                return best
            found = self._trials([training], rows, 1.0)
            self.learned, self.learner = rows, "exact"
            if found and rows < best.trial.rows:
                found = self._holding([found[0].next()], best.trial.rows, 1.0)
            if not found or found[0].mean >= best.mean:
                return best
            best = found[0]
        return best

    def _promising(self, best: Tried, several: Sequence[Candidate]) -> list[Candidate]:
        """Return what may be better than a trial, the most promising first."""
        own, alike = best.candidate, best.candidate.gaussian or best.candidate.robust
        others = [one for one in self._compared if one.candidate.structure != own.structure]
        base = best.next().having(varying=None) if own.varies else best.next()
        other = [self._begun(replace(base, stage="structure"), one) for one in others]
        able = (own.holds or own.varies) and own.gaussian and not own.cyclic
        other = other[:OTHER_KERNELS] if able else []
        larger = sizes(best.next(), best.trial.rows)
        same = [one for one in several if alike and one.robust == own.robust]
        begun = [self._begun(one, best) for one in same if one.gaussian or one.robust]
        return [*self._variants(best, several), *larger, *other, *begun]

    def _variants(self, best: Tried | None, several: Sequence[Candidate]) -> list[Candidate]:
        """Return what has hyper-parameters that vary, if residuals spread as if they did."""
        alike = best is not None and best.candidate.gaussian and not best.candidate.varies
        few = self.profile.varying <= SCALES_FEATURES
        if best is None or not (alike and few) or not spread_varies(best.held_out):
            return []
        local = [self._begun(one, best) for one in several if one.method == "vecchia"]
        several = [one for one in local if one.gaussian and not one.varies]
        return [one.having(varying="auto", predict_neighbours=VARYING_NEAR) for one in several]

    def _seconds_of_last(self, candidate: Candidate) -> float:
        """Return the seconds that the last fit of a candidate takes, by those of its trials."""
        rows, threads = self.trials.rows, self.trials.executor.threads()
        plan = plan_of(candidate.estimator, rows, self.trials.executor)
        seconds = candidate.seconds(plan, threads, rows)
        seconds += candidate.left_out_seconds(plan, threads, rows)
        return MARGIN * self.trials.pace(candidate.method) * seconds

    def _time_of_last(self, candidate: Candidate) -> float:
        """Return the seconds that are kept for the last fit of a candidate.

        With heavy tails it trains nothing where these are too few for all of the training.
        """
        seconds, most = self._seconds_of_last(candidate), (1 - SEARCH) * self.trials.rules.seconds
        if candidate.robust and seconds > most:
            seconds = self._seconds_of_last(candidate.held())
        return min(seconds, most)

    def _refined(self, best: Tried) -> Tried:
        """Return the best of a trial and those with other kernels and sizes, as these improve."""
        return self._with_sizes(self._with_other_kernels(best))

    def _with_sizes(self, best: Tried) -> Tried:
        """Return the best of a trial and those with other sizes, as these improve."""
        before = None
        while best is not before:
            best, before = self._sized(best), best
        return best

    def _hardly_worse(self, one: Tried, best: Tried) -> bool:
        """Return True if a loss is greater by little, or by what may be chance and is not much."""
        units = {"nlpd": 1.0, "crps": best.mean, "rmse": 2 * best.mean}  # that of "rmse" is squares
        part = (one.mean - best.mean) / units[self.trials.rules.metric]
        return part < NEAR or (part < AT_MOST and not one.surely_worse(best))

    def _preferred(self, leaders: Sequence[Tried]) -> Tried:
        """Return the best trial, or one as good of a method that does better on all rows.

        That is the exact GP where rows are few, and a local one where the sample is a small part;
        of methods that hold their hyper-parameters, the one that is trained the fastest.
        """
        best, n = leaders[0], self.profile.rows
        if self.holds:
            as_good = [one for one in leaders if self._hardly_worse(one, best)]
            return min(as_good, key=lambda one: self.trials.expected([one.next()], one.trial.rows))
        others = ("exact",) if n <= SMALL else LOCAL if 2 * best.trial.rows < n else ()
        equals = (one for one in leaders if one.trial.method in others)
        return next((one for one in equals if not one.surely_worse(best)), best)

    def leaderboard(self, best: Tried) -> Leaderboard:
        """Return all trials with the one chosen."""
        trials = [one.trial for one in self.trials.tried]
        rules, findings = self.trials.rules, self.profile.findings
        return Leaderboard.of(rules.metric, trials, best.trial, len(self.trials.rows), findings)

    @property
    def _share_of_structure(self) -> float:
        """Share of the budget for kernels: that of all trials where methods may need none."""
        few = self.trials.most_rows <= STRUCTURE_ROWS or self.profile.series.cycles
        return SEARCH if few else STRUCTURE

    def _as_method(self, start: Tried | None, several: Sequence[Candidate]) -> list[Tried]:
        """Return the trial of a kernel as that of a method, if the exact GP has seen all rows."""
        known = any(one.method == "exact" and one.gaussian for one in several)
        if start is None or not known:
            return []
        if start.trial.rows < self.trials.most_rows:
            return self._of_all_rows(start)
        candidate, trial = start.candidate, replace(start.trial, stage="method")
        own = start._replace(candidate=replace(candidate, stage="method"), trial=trial)
        self.trials.restate(start, own)
        return [own]

    def _has_all(self, start: Tried | None) -> bool:
        """Return True for a trial of the exact GP that was trained on all rows of a fold."""
        if start is None or start.trial.method != "exact" or start.learned:
            return False
        return start.trial.rows >= self.trials.most_rows

    def _of_all_rows(self, start: Tried) -> list[Tried]:
        """Return the trial of a kernel with cycles on all rows of a fold, at what was found.

        Approximations of the exact GP do not know rows that are a cycle away.
        """
        if not start.candidate.cyclic:
            return []
        again = replace(start.next(), stage="method")
        return self._holding([again], self.trials.most_rows, SEARCH)

    def _best_structure(self, common: dict[str, Any]) -> Tried | None:
        """Return the trial of the exact GP with the kernel chosen; None where none is tried."""
        if self.profile.settled:
            return None
        base, share = ExactGP(**common), self._share_of_structure
        rows = min(STRUCTURE_ROWS, self.trials.most_rows)
        usual = Candidate("structure", base, "matern (ard)")
        one = share / (4 if share > STRUCTURE else 2)  # the rest is for other kernels
        while rows > LEAST_ROWS and not self._affordable(usual, rows, one):
            rows = max(rows // 2, LEAST_ROWS)
        if not self._affordable(usual, rows, HELD):
            return None
        only = self.trials.run([usual], rows)
        if not only or only[0].kernel is None:
            return None
        first = only[0]
        alone = self._gaussian_alone()
        self.profile = self.profile.with_tails(first.held_out.score, alone)
        others = self._others_than(first, base, "mean" not in common)
        found = whole([first, *self._trials_of_structures(first, others, rows, share)])
        self._compared = sorted(found, key=lambda one: one.mean)
        best = self._compared[0]
        shared = [one for one in found if "one lengthscale" in one.candidate.structure]
        simple = [*shared, first, *found]
        heavy = self.profile.heavy
        chosen = next(one for one in simple if not one.surely_worse(best, heavy))
        return self._with_mean(chosen, found)

    def _others_than(self, first: Tried, base: ExactGP, trends: bool) -> list[Candidate]:
        """Return the kernels and trends to compare with those of the first trial."""
        if base.kernel is None:
            assert first.kernel is not None
            given = base, self.profile, first.kernel, first.noise_variance
            return structures(*given, trends=trends)
        if not trends or self.profile.kind != "measured":
            return []
        own = first.next().having(mean="linear")
        return [replace(own, structure=f"{own.structure}, linear trend")]

    def _gaussian_alone(self) -> str:
        """Return what the rows have that likelihoods of heavy tails do not take; "" for nothing."""
        rows = self.trials.rows
        if rows.y_variance is not None:
            return "y_variance"
        return "several targets" if rows.n_targets > 1 else ""

    def _with_mean(self, best: Tried, others: Sequence[Tried]) -> Tried:
        """Return a trial, or in a forecast that of the same kernel whose trend or mean does better.

        There none is simpler: a forecast without a trend returns to the mean.
        """
        if not self.trials.rules.forecast:
            return best
        alike = [one for one in others if one.trial.kernel == best.trial.kernel]
        return min(alike, key=lambda one: one.mean)

    def _trials_of_structures(
        self, first: Tried, others: Sequence[Candidate], rows: int, share: float
    ) -> list[Tried]:
        """Return the trials of kernels, the simplest first.

        Where cycles are found, what has none is not tried beside it, and a trend only in forecasts.
        """
        cyclic = [one for one in others if one.cyclic]
        known = [one for one in cyclic if self.trials.rules.forecast or one is cyclic[0]]
        self.learned = min(rows, CYCLE_ROWS)
        found = self._trials(known, self.learned, share)
        if found and rows > CYCLE_ROWS:
            found = self._holding([one.next() for one in found], rows, share) or found
        if any(first.surely_worse(one, self.profile.heavy) for one in found):
            return found
        return [*self._trials([one for one in others if not one.cyclic], rows, share), *found]

    def _holding(self, candidates: Sequence[Candidate], rows: int, share: float) -> list[Tried]:
        """Return trials of candidates at the hyper-parameters that they have."""
        self.holds = True
        found = self._trials(candidates, rows, share)
        self.holds = False
        return found

    def _learned(self, start: Tried | None, several: Sequence[Candidate]) -> Tried | None:
        """Return the trial whose hyper-parameters others hold or begin with.

        That of few rows may be trained on more: by the exact GP where it is a candidate and there
        is time for twice as many, else by `VecchiaGP`, whose time grows with the rows alone.
        """
        if any(one.method == "exact" for one in several):
            more = self._on_more_rows(start)
            return more if more is not start else self._by_neighbours(start, several) or start
        return self._by_neighbours(start, several) or self._on_more_rows(start)

    def _by_neighbours(self, start: Tried | None, several: Sequence[Candidate]) -> Tried | None:
        """Return the trial of `VecchiaGP` that is trained with the best kernel.

        The next best kernels are trained, too, unless the time is for the exact GP.  None where all
        methods can be trained, or this one cannot.
        """
        local = [one for one in several if one.method == "vecchia" and one.gaussian]
        if start is None or not (local and start.candidate.holds) or start.candidate.cyclic:
            return None
        if not self._few([self._begun(one, start) for one in several]):
            return None
        again, rows = self._begun(local[0], start), self.trials.most_rows
        while rows > FIRST_ROWS and not self._affordable(again, rows, MORE):
            rows = max(rows // 2, FIRST_ROWS)
        found = self._trials([again], rows, MORE)
        if found and not any(one.method == "exact" for one in several):
            own = start.candidate.structure
            others = [one for one in self._compared if one.candidate.structure != own]
            other = [self._begun(local[0], one) for one in others[:OTHER_KERNELS]]
            found = [*found, *self._trials(self._if_possible(other), rows, HELD)]
        best: Tried | None = None
        for one in found:
            if one.kernel is not None and (best is None or best.surely_worse(one)):
                best = one
        return best

    def _few(self, candidates: Sequence[Candidate]) -> bool:
        """Return True if not all candidates can be trained on the rows of a first round."""
        return self._first_rows(candidates) < min(FIRST_ROWS, self.trials.most_rows)

    def _on_more_rows(self, start: Tried | None) -> Tried | None:
        """Return the trial of the kernel chosen, on more rows where a short budget took few.

        Their hyper-parameters may be held.
        """
        if start is None or start.kernel is None or not start.candidate.holds:
            return start
        for factor in (GROWTH, 2):
            rows = min(factor * start.trial.rows, self.trials.most_rows, STRUCTURE_ROWS)
            again = start.next()
            if rows > start.trial.rows and self._affordable(again, rows, MORE):
                found = self._trials([again], rows, MORE)
                return found[0] if found and found[0].kernel is not None else start
        return start

    def _begun(self, candidate: Candidate, start: Tried | None) -> Candidate:
        """Return a candidate with the kernel and the trend of a trial."""
        if start is None or candidate.coded:
            return candidate
        own: dict[str, Any] = {}
        if _takes_trend(candidate):
            own["mean"] = start.candidate.estimator.mean
        if start.candidate.cyclic and start.candidate.estimator.limits:
            own["limits"] = start.candidate.estimator.limits  # of its periods
        named = replace(candidate, structure=start.candidate.structure)
        return named.having(**own).began(start.kernel, start.noise_variance)

    def _possible(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose last fit can fit budget and memory, the cheapest at least."""
        left = (1 - SEARCH) * self.trials.rules.seconds
        found, least, refused = [], [], list[DaskgpError]()
        for candidate in candidates:
            try:
                plan = plan_of(candidate.estimator, self.trials.rows, self.trials.executor)
            except DaskgpError as error:
                logger.info("%s is not tried: %s", candidate.method, error)
                refused.append(error)
                continue
            if not self.trials.fits(candidate, plan):
                continue
            least_of = candidate.held() if candidate.holds else candidate
            seconds = least_of.seconds(plan, self.trials.executor.threads(), self.trials.rows)
            least.append((seconds, candidate))
            if seconds <= left:
                found.append(candidate)
            else:
                logger.info(
                    "%s is not tried: its fit of all rows would take about %.0f s, the budget "
                    "leaves %.0f s for it",
                    candidate.method,
                    seconds,
                    left,
                )
        if refused and len(refused) == len(candidates):
            raise refused[0]
        if not least:
            raise PlanError(
                f"no candidate fits in the memory allowed for {len(self.trials.rows)} rows: raise "
                "memory, or give candidates with smaller sizes"
            )
        if not found:
            seconds, candidate = min(least, key=lambda pair: pair[0])
            search = self.trials.expected([candidate], LEAST_ROWS) / SEARCH
            enough = OVERHEAD + max(search, seconds / (1 - SEARCH))
            raise PlanError(
                f"time_budget={self.trials.rules.seconds:g} s is too little for "
                f"{len(self.trials.rows)} rows: the fastest candidate, {candidate.method}, takes "
                f"about {seconds:.1f} s for all of them: give at least {math.ceil(enough)} s"
            )
        return found

    def _rounds(
        self, candidates: Sequence[Candidate], start: Tried | None, exact: Sequence[Tried]
    ) -> list[Tried]:
        """Return the trials of the last round, and those of the exact GP, the best first."""
        found = self._held(candidates, start) or self._grown(candidates, sure=not exact)
        return sorted(whole([*exact, *found]), key=lambda one: one.mean)

    def _soon(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that do not take too much of the budget even where they hold.

        Others approximate the exact GP, which is tried if there is time at all.
        """
        most, size = WAITS * self.trials.rules.seconds, self.trials.most_rows
        held = [one.held() if one.holds else one for one in candidates]
        times = [self.trials.expected([one], size) for one in held]
        pairs = zip(candidates, times, strict=True)
        found = [one for one, time in pairs if time <= most or one.method == "exact"]
        return found or [*candidates]

    def _held(self, candidates: Sequence[Candidate], start: Tried | None) -> list[Tried]:
        """Return trials that hold the hyper-parameters of a kernel, if all cannot be trained."""
        few, candidates = self._few(candidates), self._soon(candidates)
        holding = [one for one in candidates if one.holds and one.estimator.kernel is not None]
        if not few or start is None or not holding or any(one.coded for one in candidates):
            return []
        held, size = [one.held() for one in holding], self.trials.most_rows
        least = min(len(held), 2)
        while size > FIRST_ROWS and len(self.trials.room_for(held, size, HELD)) < least:
            size = max(size // 2, FIRST_ROWS)
        self._learned_by(start)
        trained = [start] if start.trial.stage == "method" else []
        known = [_label(one.candidate) for one in trained]
        candidates = [one for one in candidates if _label(one) not in known]
        self.holds = True
        exact = [one for one in candidates if one.method == "exact"]
        others = [one for one in candidates if one not in exact]
        found = self._trials([one for one in others if not one.robust], size, HELD)
        for one in exact:  # whose last fit may take as long as its trial
            found += self._trials([one], self._rows_in_time(one, size), HELD)
        found += self._trials([one for one in others if one.robust], size, HELD)
        found = whole([*found, *trained])
        self.holds = bool(found)
        self.holding, self.holder = (self.learned if found else 0), self.learner
        return found

    def _rows_in_time(self, candidate: Candidate, rows: int) -> int:
        """Return the rows of a trial, fewer where the clock leaves no time for its last fit then.

        What does better than others with fewer rows than they had does so with all.
        """
        trials, held = self.trials, candidate.held()
        plan = plan_of(held.estimator, trials.rows, trials.executor)
        threads = trials.executor.threads()
        last = held.seconds(plan, threads, trials.rows) + held.left_out_seconds(
            plan, threads, trials.rows
        )
        left = trials.left / trials.pace(candidate.method) - last
        while rows > FIRST_ROWS and trials.expected([held], rows) > left:
            if trials.first_kept([held], rows):
                break
            rows = max(rows // 2, FIRST_ROWS)
        return rows

    def _trained(self, best: Tried) -> Tried:
        """Return the best of the trials that hold hyper-parameters, once these are trained.

        The best of each method and kernel is, as far as there is room; of others than the best one
        that is taken which is surely better.
        """
        if not best.candidate.holds:
            return best
        rows, going = best.trial.rows, dict[tuple[str, str], Tried]()
        kept = [one for one in self.trials.tried[1:] if not one.trial.failed]  # but the mean
        for one in [best, *sorted(kept, key=lambda one: one.mean)]:
            if one.learned and one.trial.rows == rows and one.candidate.holds:
                going.setdefault((one.trial.method, one.candidate.structure), one)
        self.holds = False
        begun = [one.next() for one in list(going.values())[: 1 + OTHER_KERNELS]]
        found = whole(self._trials(begun, rows, SEARCH))
        first = best
        for one in found:
            own = one.candidate.structure == best.candidate.structure
            own = own and one.trial.method == best.trial.method
            if first.surely_worse(one) or (own and not one.surely_worse(best)):
                first = one
        self.trained = first is not best
        return first

    def _grown(self, candidates: Sequence[Candidate], sure: bool) -> list[Tried]:
        """Return the trials of the last round of those that are trained on ever more rows.

        With ``sure`` there is one at least.
        """
        left, size = list(candidates), self._first_rows(candidates)
        found: list[Tried] = []
        while True:
            if found and not self._affordable(left[0], size, SEARCH):
                return found  # of others alone a round tells nothing
            current = self._trials(left, size, SEARCH, sure=sure and not found)
            if not current:
                if sure and not found:
                    raise RunError(self._why_none())
                return found
            current = whole(current)
            found = sorted(current, key=lambda one: one.mean)
            if size >= self.trials.most_rows:
                return found
            number = max(2, -(-len(found) // 2))
            first = self._preferred(found)
            going = [first, *(one for one in found if one is not first)]
            left = [one.next() for one in going[:number]]
            size = self._larger(left[0], size)

    def _larger(self, leader: Candidate, size: int) -> int:
        """Return the rows of the next round: less than usual where only those are affordable."""
        sizes = [min(factor * size, self.trials.most_rows) for factor in (GROWTH, 2)]
        return next((one for one in sizes if self._affordable(leader, one, SEARCH)), sizes[-1])

    def _first_rows(self, candidates: Sequence[Candidate]) -> int:
        """Return the rows of the first round, all candidates of which are to be affordable."""
        size, left = (
            min(FIRST_ROWS, self.trials.most_rows),
            SEARCH * self.trials.rules.seconds - self.trials.spent,
        )
        while size > LEAST_ROWS:
            # steps take the same time on any number of rows
            if self.trials.expected([one for one in candidates if one.holds], size) <= left:
                break
            size = max(size // 2, min(LEAST_ROWS, self.trials.most_rows))
        return size

    def _with_other_kernels(self, best: Tried) -> Tried:
        """Return the best of a trial and those with the next best kernels of the comparison.

        Few rows may prefer a kernel that many do not.
        """
        own, rows = best.candidate, best.trial.rows
        if rows <= STRUCTURE_ROWS or not own.holds or own.coded:
            return best
        if own.cyclic or self.learner == "vecchia":  # which has compared kernels
            return best
        others = [one for one in self._compared if one.candidate.structure != own.structure]
        other = [self._begun(replace(own, stage="structure"), one) for one in others]
        return self._improved(best, other[:OTHER_KERNELS])

    def _sized(self, best: Tried) -> Tried:
        """Return the best of a trial and those with other sizes."""
        tried = [(one.trial.method, one.trial.settings) for one in self.trials.tried]
        others = sizes(best.next(), best.trial.rows)
        return self._improved(
            best, [one for one in others if (one.method, one.settings) not in tried]
        )

    def _improved(self, best: Tried, candidates: Sequence[Candidate]) -> Tried:
        """Return the best of a trial and those of candidates that are surely better."""
        for one in self._trials(self._if_possible(candidates), best.trial.rows, SEARCH):
            if best.surely_worse(one) and not (self.holds and self._hardly_worse(best, one)):
                best = one
        return best

    def _if_possible(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose last fit can fit budget and memory; maybe none."""
        return [one for one in candidates if self._possible_one(one)]

    def _possible_one(self, candidate: Candidate) -> bool:
        if candidate.varies and self.profile.varying > SCALES_FEATURES:
            return False  # their training takes long there, and no deadline ends it
        try:
            return bool(self._possible([candidate]))
        except DaskgpError:
            return False

    def _why_none(self) -> str:
        last = next((one.trial for one in reversed(self.trials.tried) if one.trial.failed), None)
        return f"no candidate could be fitted{'' if last is None else f': {last.failed}'}"

    def _affordable(self, candidate: Candidate, rows: int, share: float) -> bool:
        """Return True if a trial is expected to end within a share of the budget."""
        return bool(self.trials.room_for([candidate], rows, share))

    def _trials(
        self, candidates: Sequence[Candidate], rows: int, share: float, sure: bool = False
    ) -> list[Tried]:
        """Return the trials that a share of the budget has room for and that have a score.

        With ``sure`` there is one at least, of the first candidate that has a score, if any has.
        """
        asked = [one.held() if self.holds and one.holds else one for one in candidates]
        batch = self.trials.room_for(asked, rows, share)
        found = self.trials.run(batch, rows)
        for candidate in asked if sure else ():
            if not found and candidate not in batch:
                found = self.trials.run([candidate], rows)
        own = {id(held): one for held, one in zip(asked, candidates, strict=True)}
        return [self._to_be_trained(one, own[id(one.candidate)]) for one in found]

    def _to_be_trained(self, tried: Tried, candidate: Candidate) -> Tried:
        """Return a trial as that of the candidate that the last fit may train."""
        if tried.candidate is candidate:
            return tried
        trial = replace(tried.trial, settings=candidate.settings)
        own = tried._replace(
            candidate=candidate, trial=trial, learned=self.learned, learner=self.learner
        )
        self.trials.restate(tried, own)
        return own


def _label(candidate: Candidate) -> str:
    """Return text that tells what is tried apart, whatever it begins with."""
    settings = {name: own for name, own in candidate.settings.items() if name != "optimizer"}
    return f"{candidate.method}, {candidate.structure}, {sorted(settings.items())}"


def spread_varies(found: HeldOut) -> bool:
    """Return True if squares of standardised residuals follow from the features beyond chance."""
    z = found.score[:, 0]
    known = np.isfinite(z) & np.isfinite(found.X).all(axis=1)
    X, squares = found.X[known], np.minimum(z[known] ** 2, MOST_SQUARE)
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    design = np.hstack([np.ones((len(X), 1)), X, X**2])
    n, k = design.shape
    total = float(squares.var())
    if n < MANY * k or total == 0:
        return False
    rest = squares - design @ np.linalg.lstsq(design, squares, rcond=None)[0]
    explained = 1 - float(rest.var()) / total
    return explained / (k - 1) > SURE_RATIO * (1 - explained) / (n - k)


def _tailed(gaussian: Tried, robust: Tried) -> bool:
    """Return True if Student-t noise is better on average, and on most rows."""
    return robust.mean < gaussian.mean and robust.mostly_better(gaussian)


def _takes_trend(candidate: Candidate) -> bool:
    """Return True for methods that integrate over the coefficients of a trend."""
    return candidate.method in ("sgpr", *LOCAL, "pic", "exact", "ssgp")
