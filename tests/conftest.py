"""Settings shared by all tests."""

import gc
import shutil
import subprocess
import tempfile
import zlib
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import settings

from daskgp import kernels
from daskgp.arrays import backend
from daskgp.data.stores import groups
from daskgp.testing import Check

# A script that type checkers read; to import it would register a method of its own.
collect_ignore = ["typed"]

# Machines differ in speed and a run must not depend on it, nor on chance.
settings.register_profile("daskgp", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("daskgp")

# Workers are forked from a process that has imported what they need: tests start dozens.  They have
# the environment of when the first of them started; clusters that need their own say "spawn".
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
get_mp_context().set_forkserver_preload(["distributed", "daskgp.estimators"])


# What is imported and collected stays: to look for garbage in it takes a third of the time.
gc.disable()


LONG, KEPT = 2, 12
"""Cases from which on a promise is long, and of how many of them one is not slow."""
SAMPLED = {
    *("settings", "idle_settings", "same_bits", "rows_of_the_caller", "pickle", "save_load"),
    *("quantiles", "bad_rows", "noise_refused", "update_refused", "likelihoods"),
}
"""Checks of ``daskgp.testing`` whose promise what all methods share keeps."""


def pytest_addoption(parser):
    """Add the choice of methods and kernels whose whole contract is run."""
    for what in ("method", "kernel"):
        whole = f"run the whole contract of a {what}, and nothing else"
        parser.addoption(f"--{what}", action="append", metavar="NAME", default=[], help=whole)
    touched = "run the whole contract of methods whose files differ from this revision"
    parser.addoption("--changed-since", metavar="REV", default="", help=touched)


def named(config, what, known):
    """Return the names that ``--method`` or ``--kernel`` gives, if they are known ones."""
    given = set(config.getoption(f"--{what}"))
    if unknown := sorted(given - set(known)):
        raise pytest.UsageError(
            f"no {what} {unknown[0]!r}: choose among {', '.join(sorted(known))}"
        )
    return given


def chosen(config):
    """Return the subjects whose whole contract is run: those named, and those a change touches."""
    since = config.getoption("--changed-since")
    if not (since or config.getoption("--method") or config.getoption("--kernel")):
        return set()
    from tests.contract import cases, touched

    names = named(config, "method", {*cases.SETTINGS, *map(cases.registered, cases.SETTINGS)})
    methods = {n for n in cases.SETTINGS if names & {n, cases.registered(n)}}
    of_kernels = {kernels.REGISTRY[name] for name in named(config, "kernel", kernels.REGISTRY)}
    return methods | of_kernels | (touched.methods(since) if since else set())


def kinds_of(value):
    """Return the classes of kernels that a parameter of a test is, or has as parts."""
    if isinstance(value, kernels.Kernel):
        return {type(value)}.union(*map(kinds_of, getattr(value, "parts", ())))
    return {value} if isinstance(value, type) and issubclass(value, kernels.Kernel) else set()


def subjects(item):
    """Return what a test is a case of: kernels by class, methods by their names in the contract."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {value for value in given if isinstance(value, str)}
    if check_of(item):
        names = {item.callspec.id.removesuffix(f"-{check_of(item)}")}
    return set().union(
        names if item.path.parent.name == "contract" else (), *(kinds_of(v) for v in given)
    )


def check_of(item):
    """Return the name of the check of ``daskgp.testing`` that a test makes; None for others."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((value.name for value in given if isinstance(value, Check)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Begin with the files of this folder, which wait for servers; make most long promises short.

    A promise with many cases keeps a twelfth of them, chosen by their names, so that each method
    is among those kept of some promises; ``make test-slow`` has all others.  Promises marked
    ``whole`` keep all, and so do those of methods and kernels that are asked for, unless they are
    of what all methods share: ``sampled``.
    """
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)
    # checks that are not about what they are given
    items[:] = [one for one in items if not (check_of(one) and one.get_closest_marker("skip"))]
    wanted, promises = chosen(config), defaultdict(list)
    alone = config.getoption("--method") or config.getoption("--kernel")
    if alone:
        others = [item for item in items if not subjects(item) & wanted]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if subjects(item) & wanted]
    for item in items:
        if item.get_closest_marker("whole") is None and item.get_closest_marker("slow") is None:
            promises[item.nodeid.split("[")[0], check_of(item)].append(item)
    for cases in promises.values():
        if len(cases) >= LONG:
            cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
            for item in cases[-(-len(cases) // KEPT) :]:
                some = item.get_closest_marker("sampled") or check_of(item) in SAMPLED
                if not (alone or (subjects(item) & wanted and not some)):
                    item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Spare garbage collections what was imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def cupy_is_looked_for():
    """Forget whether CuPy is installed: tests put one in its place."""
    backend._is_installed.cache_clear()


# Clusters of a session wait for most of it: their workers seldom look at themselves meanwhile, nor
# say that they are there, which is half a second otherwise and no setting.
distributed.scheduler.heartbeat_interval = lambda _: 5.0
CALM = {
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.memory.monitor-interval": "2s",
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def calm_cluster(**options):
    """A cluster of workers with a thread each; settings are as before once it has started."""
    with dask.config.set(CALM):
        cluster = LocalCluster(threads_per_worker=1, **options)
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def scheduler():
    """Address of a cluster of two worker processes over TCP, shared by the tests of a process."""
    with calm_cluster(n_workers=2, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def here(monkeypatch):
    """Tasks of commands run in this process, which saves the start of a cluster for each."""
    from daskgp.cli.cluster import Workers
    from daskgp.runtime.executor import Executor

    monkeypatch.setattr(Workers, "come", lambda self, *modules: self.check())
    monkeypatch.setattr(Workers, "executor", lambda *_: nullcontext(Executor(None, False)))


@pytest.fixture(scope="session")
def cluster():
    """Four worker processes with a thread each."""
    with calm_cluster(
        n_workers=4,
        processes=True,
        protocol="tcp://",
        memory_limit="600MiB",
        dashboard_address=None,
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    """A client of the cluster that Dask itself does not compute with."""
    with Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def default_client(cluster):
    """A client of the cluster, Dask's default while the test runs."""
    with Client(cluster) as client:
        yield client


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def small_disk(tmp_path, request):
    """A file system of 8 MiB, or of the ``DISK`` of a module, where one may be mounted."""
    folder, size = tmp_path / "disk", getattr(request.module, "DISK", "8m")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def make_store(tmp_path):
    """Write arrays to a dataset store, with the attributes of one."""

    def make(X, y, rows=10, url=None, shards=None, **attributes):
        url = str(url or tmp_path / "data.zarr")
        group = groups.create_group(url, attributes)
        for name, a in (("X", X), ("y", y)):
            a = np.asarray(a)
            shape = (max(1, rows), *a.shape[1:])
            shard = None if shards is None else (shards, *a.shape[1:])
            array = group.create_array(
                name, shape=a.shape, chunks=shape, shards=shard, dtype=a.dtype
            )
            array[...] = a
        return url

    return make
