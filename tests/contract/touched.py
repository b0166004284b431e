"""Methods whose own files a change touches: their whole contract is run."""

import inspect
import subprocess
from collections import Counter
from pathlib import Path

import daskgp
from tests.contract import cases

ROOT = Path(daskgp.__file__).parents[1]
SHARED = 4
"""A file that so many methods are made of is everybody's: the usual sample is run for it."""
MOST = 4
"""Most methods whose whole contract is run; of more that a change touches, other ones each time."""


def files_of(name):
    """Return the files of a case's estimator and of the parts of its recipe, and of their bases."""
    estimator = cases.make(name)
    recipe = estimator.recipe()
    parts = estimator, recipe.method, recipe.trainer, recipe.arrangement
    own = (c for part in parts for c in type(part).__mro__ if c.__module__.startswith("daskgp."))
    return {str(Path(inspect.getfile(c)).relative_to(ROOT)) for c in own}


def methods(since):
    """Return the cases whose files differ from a revision; none where git cannot say."""
    found = _git("diff", "--name-only", since, "--", "daskgp")
    revision = _git("rev-parse", "HEAD")
    if found is None or revision is None:
        return set()
    return in_turn(of_files(set(found.split())), int(revision[:8], 16))


def in_turn(touched, turn):
    """Return the cases of MOST methods, from one on that a number says."""
    kinds = sorted({cases.kind(name).__name__ for name in touched})
    first = turn % max(1, len(kinds))
    chosen = [*kinds[first:], *kinds[:first]][:MOST]
    return {name for name in touched if cases.kind(name).__name__ in chosen}


def _git(*words):
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if found.returncode else found.stdout


def of_files(changed):
    """Return the cases that changed files belong to."""
    files = {name: files_of(name) for name in cases.SETTINGS}
    of = {name: cases.kind(name) for name in files}
    users = Counter(f for kind in set(of.values()) for f in _files_of_kind(files, of, kind))
    return {n for n, f in files.items() if any(users[x] < SHARED for x in f & changed)}


def _files_of_kind(files, of, kind):
    return set().union(*(files[name] for name in files if of[name] is kind))
