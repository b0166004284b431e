"""Search for a method, a kernel and sizes: rounds of trials on samples of rows that grow.

1. Kernels are compared by the exact GP on few rows; the simplest that is not surely worse is kept.
   Where these are all rows of a fold, its approximations are not tried.
2. Methods are compared with this kernel on samples that grow by GROWTH; the better half goes on.
   Where the budget has no room to train all on FIRST_ROWS they hold the hyper-parameters of the
   kernel, and are compared on as many rows as there is room for: few rows tell methods not apart.
3. The next best kernels, and other sizes, of the best one are compared on the last sample.

Every trial starts at the hyper-parameters of the one before.  What is tried follows from expected
times, so that the same seed makes the same trials; the deadline only ends what takes longer.  On a
cluster the trials of a comparison run side by side.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from daskgp.assess.leaderboard import Leaderboard
from daskgp.choose.candidates import (
    Candidate,
    methods,
    plan_of,
    sizes,
    structures,
)
from daskgp.choose.trials import SEARCH, Trials, Tried, whole
from daskgp.errors import DaskgpError, PlanError, RunError
from daskgp.estimators.exact import ExactGP

logger = logging.getLogger("daskgp")

STRUCTURE = 0.2
"""Share of the budget that the comparison of kernels may take."""
STRUCTURE_ROWS, FIRST_ROWS, GROWTH = 2_000, 4_000, 4
"""Rows of the trials of kernels, of the first round of methods, and growth from round to round."""
HELD = 0.5
"""Share of the budget after which no method is compared that holds its hyper-parameters."""
MORE = 0.3
"""Share of the budget that hyper-parameters may take of the kernel chosen, on more rows."""
NEAR = 0.01
"""Part of the gain over the constant mean that is too little to take longer for, in a short search
whose methods hold their hyper-parameters."""
OTHER_KERNELS = 2
"""Kernels that the best method is tried with beside the one chosen on few rows, and others that are
trained beside the best of those that hold their hyper-parameters."""
LEAST_ROWS = 250
"""Rows that no round has fewer of, if there are as many."""
OVERHEAD = 5.0
"""Seconds that a search takes beside its fits, at most, to say how much time is enough."""
SMALL = 5_000
"""Rows up to which the exact GP is taken where it is as good as others."""
LOCAL = ("lma", "vecchia")
"""Methods that more rows say more to."""


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
        if given is None:
            out = {one.method for one in several} - {one.method for one in candidates}
            with self.trials.within(self._share_of_structure):
                start = self._best_structure(common)
            several = methods(self.profile, common, rows)  # the tails are known now
            several = [one for one in several if one.method not in out]
            exact = self._as_method(start, several)
            if exact:  # what approximates it cannot be better
                several = [one for one in several if not one.gaussian]
            else:
                start = self._on_more_rows(start)
            begun = [self._begun(one, start) for one in several]
            candidates = self._possible(begun) if not exact else self._if_possible(begun)
        leaders = self._rounds(candidates, start, exact)
        best = self._preferred(leaders)
        if given is not None:
            return best
        if self.holding:
            best = self._trained(self._with_other_kernels(best))
            self.holds = True
            return self._with_sizes(best)
        equals = [one for one in leaders if one is not best and not one.surely_worse(best)]
        best = self._refined(best)
        for one in equals:
            other = self._refined(one)
            best = other if best.surely_worse(other) else best
        return best

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
        """Return True if a loss is greater by chance, or by little of what the best has gained."""
        little = NEAR * (self.trials.of_mean.mean - best.mean)
        return not one.surely_worse(best) or one.mean - best.mean < little

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
        """Share of the budget for kernels: that of all trials where methods need none."""
        return SEARCH if self.trials.most_rows <= STRUCTURE_ROWS else STRUCTURE

    def _as_method(self, start: Tried | None, several: Sequence[Candidate]) -> list[Tried]:
        """Return the trial of a kernel as that of a method, if the exact GP has seen all rows."""
        known = any(one.method == "exact" and one.gaussian for one in several)
        if start is None or not known or start.trial.rows < self.trials.most_rows:
            return []
        candidate, trial = start.candidate, replace(start.trial, stage="method")
        own = start._replace(candidate=replace(candidate, stage="method"), trial=trial)
        self.trials.restate(start, own)
        return [own]

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
        assert first.kernel is not None
        self.profile = self.profile.with_tails(first.held_out.score)
        if base.kernel is not None:
            return first
        begun = first.kernel, first.noise_variance
        others = structures(base, self.profile, *begun, trends="mean" not in common)
        found = whole([first, *self._trials(others, rows, share)])
        self._compared = sorted(found, key=lambda one: one.mean)
        best = self._compared[0]
        shared = [one for one in found if "one lengthscale" in one.candidate.structure]
        simple = [*shared, first, *found]
        return next(one for one in simple if not one.surely_worse(best))

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

    def _held(self, candidates: Sequence[Candidate], start: Tried | None) -> list[Tried]:
        """Return trials that hold the hyper-parameters of a kernel, if all cannot be trained."""
        few = self._first_rows(candidates) < min(FIRST_ROWS, self.trials.most_rows)
        holding = [one for one in candidates if one.holds and one.estimator.kernel is not None]
        if not few or start is None or not holding or any(one.coded for one in candidates):
            return []
        held, size = [one.held() for one in holding], self.trials.most_rows
        least = min(len(held), 2)
        while size > FIRST_ROWS and len(self.trials.room_for(held, size, HELD)) < least:
            size = max(size // 2, FIRST_ROWS)
        self.holds = True
        found = whole(self._trials(candidates, size, HELD))
        self.holds = bool(found)
        self.holding = start.trial.rows if found else 0
        return found

    def _trained(self, best: Tried) -> Tried:
        """Return the best of the trials that hold hyper-parameters, once these are trained.

        The best of each method and kernel is, as far as there is room; of others than the best one
        that is taken which is surely better.
        """
        kept, rows = sorted(self.trials.tried, key=lambda one: one.mean), best.trial.rows
        going = {(best.trial.method, best.candidate.structure): best}
        for one in kept:
            if one.trial.rows == rows and one.candidate.holds and not one.trial.failed:
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
        if rows <= STRUCTURE_ROWS or not own.holds or own.coded:  # which keeps its own kernel
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
        own = tried._replace(candidate=candidate, trial=trial)
        self.trials.restate(tried, own)
        return own


def _takes_trend(candidate: Candidate) -> bool:
    """Return True for methods that integrate over the coefficients of a trend."""
    return candidate.method in ("sgpr", *LOCAL, "pic", "exact", "ssgp")
