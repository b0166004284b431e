"""Clusters that last: what Dask notes of finished work stays little."""

import asyncio
import operator
import time
from functools import partial

import dask
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster

import daskgp
from daskgp.runtime import preload
from daskgp.runtime.executor import Executor, map_reduce

LENGTH = preload.RECORDS["distributed.admin.low-level-log-length"]


@pytest.fixture
def cluster():
    options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with preload.short_records(), LocalCluster(**options) as found:
        preload.dask_setup(found.scheduler)
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


def test_servers_that_preload_the_module_forget_the_names_of_tasks(cluster, monkeypatch):
    monkeypatch.setattr(preload, "FORGET_EVERY", 0.05)
    (worker,) = cluster.workers.values()
    for server in (worker, cluster.scheduler):
        server.periodic_callbacks.pop(preload.FORGET, None)
        preload.dask_setup(server)
        key_split("named-0123456789-1")
        for _ in range(100):
            time.sleep(0.05)
            if not key_split.cache_info().currsize:
                break
        assert key_split.cache_info().currsize < 5
        server.periodic_callbacks[preload.FORGET].stop()


def test_a_server_that_is_asked_twice_has_one_clock_which_it_stops():
    options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        (worker,) = cluster.workers.values()
        preload.dask_setup(worker)
        first = worker.periodic_callbacks[preload.FORGET]
        client.register_plugin(preload.ForgetNames())
        assert worker.periodic_callbacks[preload.FORGET] is first
        assert first.is_running()
    assert not first.is_running()


def test_workers_of_a_local_cluster_forget_names():
    with daskgp.connect(n_workers=1) as client:
        assert list(client.run(forgets).values()) == [True]


async def forgets(dask_worker):
    """Tell if a worker empties its cache of names now and then, from shortly after its start."""
    clock = dask_worker.periodic_callbacks[preload.FORGET]
    for _ in range(200):  # the loop that starts the clock goes on meanwhile
        if clock.is_running():
            break
        await asyncio.sleep(0.05)
    return clock.is_running()


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
    with dask.config.set({"distributed.admin.log-length": 5}), preload.short_records():
        assert dask.config.get("distributed.admin.log-length") == 5
        assert dask.config.get("distributed.admin.low-level-log-length") == LENGTH
    assert dask.config.get("distributed.admin.low-level-log-length") > LENGTH


def test_the_environment_says_the_same():
    found = dask.config.collect_env(preload.environment())
    assert {name: dask.config.get(name, config=found) for name in preload.RECORDS} == (
        preload.RECORDS
    )
