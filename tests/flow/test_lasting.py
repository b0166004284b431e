"""Clusters that last: what Dask notes of finished work stays little."""

import operator
from functools import partial

import dask
import pytest
from distributed import Client, LocalCluster

from daskgp.flow import lasting
from daskgp.flow.cluster import Executor
from daskgp.flow.rounds import map_reduce

LENGTH = lasting.RECORDS["distributed.admin.low-level-log-length"]


@pytest.fixture
def cluster():
    options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with lasting.short_records(), LocalCluster(**options) as found:
        lasting.dask_setup(found.scheduler)
        yield found


def add_up(client, times):
    """So many rounds of eight tasks."""
    for _ in range(times):
        task = partial(operator.mul, 2)
        assert map_reduce(task, operator.add, range(8), Executor(client, False), "double") == 56


async def tell(worker):
    """Let a worker tell the scheduler of its tasks."""
    await worker.heartbeat()


def test_rounds_leave_no_record_of_their_graphs(cluster):
    (worker,) = cluster.workers.values()
    with Client(cluster, set_as_default=False) as client:
        add_up(client, 2)
        cluster.sync(tell, worker)
    graphs = {name[1] for name in worker.digests_total if name[0] == "execute"}
    assert graphs == {None}  # seconds of tasks are summed over all graphs
    assert not cluster.scheduler.extensions["spans"].spans


def test_a_worker_that_preloads_the_module_is_left_as_it_is(cluster):
    (worker,) = cluster.workers.values()
    before = dict(worker.extensions)
    lasting.dask_setup(worker)
    assert worker.extensions == before


def test_logs_of_all_processes_are_short_and_workers_do_not_profile(cluster):
    (worker,), scheduler = cluster.workers.values(), cluster.scheduler
    with Client(cluster, set_as_default=False) as client:
        add_up(client, 30)
        logs = [scheduler.transition_log, worker.state.log, worker.state.stimulus_log]
        logs += [client.scheduler_comm.recent_message_log, worker.batched_stream.recent_message_log]
        assert [log.maxlen for log in logs] == [LENGTH] * len(logs)
        assert len(scheduler.transition_log) == LENGTH
        assert not worker.profile_history
        assert "profile" not in worker.periodic_callbacks


def test_what_the_user_has_set_stays():
    with dask.config.set({"distributed.admin.log-length": 5}), lasting.short_records():
        assert dask.config.get("distributed.admin.log-length") == 5
        assert dask.config.get("distributed.admin.low-level-log-length") == LENGTH
    assert dask.config.get("distributed.admin.low-level-log-length") > LENGTH


def test_the_environment_says_the_same():
    found = dask.config.collect_env(lasting.environment())
    assert {name: dask.config.get(name, config=found) for name in lasting.RECORDS} == (
        lasting.RECORDS
    )
