"""Settings shared by all tests."""

import pytest
from distributed import LocalCluster
from hypothesis import settings

# Machines differ in speed and a run must not depend on it, nor on chance.
settings.register_profile("daskgp", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("daskgp")


@pytest.fixture(scope="session")
def scheduler():
    """Address of a cluster of two worker processes over TCP, shared by the tests of a process."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address
