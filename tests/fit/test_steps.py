"""Steps: a batch in parts is the batch, batches stand for all rows, the same bits everywhere."""

import dask
import numpy as np
import pytest

from daskgp import kernels, likelihoods, metrics
from daskgp.data import Rows, dataset_arrays, partition, rows_of
from daskgp.fit import minibatches, svi
from daskgp.fit.minibatches import Stream
from daskgp.fit.svi import Steps
from daskgp.models import scaling
from daskgp.models.values import Block, Theta
from daskgp.models.variational.decoupled import Decoupled, Draw
from daskgp.models.variational.parameters import Parameters
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread

N, CHUNK = 96, 12
KERNEL = kernels.RBF((0.7, 1.1), variance=1.3)
OFFSET = np.array([0.2])
MODELS = {
    "hybrid": Decoupled("hybrid", jitter=1e-6),
    "natural": Decoupled("hybrid", natural=True),
    "frozen": Decoupled("hybrid", natural=True, frozen=True),
    "generalized": Decoupled("hybrid", "generalized"),
    "direct": Decoupled("direct"),
    "student-t": Decoupled("hybrid", likelihood="student-t", natural=True),
    "poisson": Decoupled("hybrid", likelihood="poisson"),
}
every = pytest.mark.parametrize("kind", MODELS)
lanes = pytest.mark.parametrize("lane_rows", [16, 8, 3])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pools of few blocks, and one thread of BLAS where tests compute as tasks do."""
    monkeypatch.setattr(minibatches, "POOL_BATCHES", 2)
    monkeypatch.setattr(minibatches, "POOL_BLOCKS", 4)
    with single_blas_thread():
        yield


def threaded():
    return Executor(None, False)


def data(kind="hybrid", n=N):
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 3, (n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, (rng.poisson(np.exp(y)).astype(float) if kind == "poisson" else y)


def in_memory(kind="hybrid"):
    return Rows(*data(kind), None, ("a", "b"), ("y",))


def prepared(kind, model=None, b=7, m=9):
    """Any q."""
    model = model or MODELS[kind]
    rng = np.random.default_rng(2)
    wide = model.basis == "generalized"
    shared = 0 if model.form == "direct" else b

    def scales(count):
        return 0.2 * rng.standard_normal((count, 2)) if wide else np.zeros((0, 2))

    own = Parameters(
        KERNEL.log_parameters,
        likelihoods.by_name(model.likelihood).log_parameters,
        rng.uniform(0, 3, (b, 2)),
        scales(b),
        rng.uniform(0, 3, (m, 2)),
        scales(m),
        0.3 * rng.standard_normal((m, 1)),
        rng.standard_normal((shared, 1)),
        np.tril(0.2 * rng.standard_normal((b, b))) + np.eye(b),
    )
    return model.prepare(KERNEL, own, OFFSET)


def stream_of(rows, batch_rows=16, executor=None, **more):
    spans = tuple(partition.blocks(len(rows), rows.chunks, CHUNK))
    same = scaling.identity(2, 1)
    return Stream(rows, spans, same, executor or threaded(), "float64", batch_rows, 0, **more)


def steps_of(kind, executor=None, columns=100, model=None):
    model = model or MODELS[kind]
    return Steps(model, float(N), columns, 0, executor or threaded(), "float64", "cpu")


def of(shares):
    """The rows of a batch."""
    each = [few for share in shares for few in zip(share.pools, share.rows, strict=True)]
    found = [(pool.compute(scheduler="sync"), rows) for pool, rows in each]
    return Block.join([pool.at(rows) for pool, rows in found])


def arrays(found):
    """All arrays of sums or of a bound."""
    value, gradient, *rest = found
    return [np.asarray(value), *gradient, *rest]


def bits(found):
    return [np.asarray(array).tobytes() for array in arrays(found)]


def close(found, wanted, rtol=1e-9):
    for a, b in zip(arrays(found), arrays(wanted), strict=True):
        size = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * size)


# -- a batch ---------------------------------------------------------------------------------


@every
@lanes
def test_the_sums_of_a_batch_are_those_of_its_rows_together(kind, lane_rows, monkeypatch):
    monkeypatch.setattr(minibatches, "LANE_ROWS", lane_rows)
    at, model = prepared(kind), MODELS[kind]
    with stream_of(in_memory(kind)) as batches:
        for step in range(3):
            shares = batches.take()
            assert len(shares) == -(-16 // lane_rows)
            rows = of(shares)
            every_column = np.arange(9)
            wanted = model.local(at, rows, Draw(N / len(rows.X), every_column, 1.0))
            close(steps_of(kind).sums(at, shares, step), wanted)


@every
@pytest.mark.parametrize("lane_rows", [16, 8])
def test_batches_of_an_epoch_give_the_full_gradient_on_average(kind, lane_rows, monkeypatch):
    monkeypatch.setattr(minibatches, "LANE_ROWS", lane_rows)
    at, model = prepared(kind), MODELS[kind]
    X, y = data(kind)
    full = model.local(at, Block(X, y[:, None]), Draw(1.0, np.arange(9), 1.0))
    found, seen = [], []
    with stream_of(in_memory(kind)) as batches:
        for step in range(N // 16):
            shares = batches.take()
            seen.append(of(shares))
            assert len(seen[-1].X) == 16
            found.append(steps_of(kind).sums(at, shares, step))
    whole = np.concatenate([rows.X for rows in seen])
    np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(X, axis=0))
    mean = [sum(parts) / len(found) for parts in zip(*map(arrays, found), strict=True)]
    total = found[0]._replace(value=float(mean[0]), gradient=Parameters(*mean[1:10]))
    total = total._replace(**dict(zip(total._fields[2:], mean[10:], strict=True)))
    close(total, full)
    close(model.bound(at, total), model.bound(at, full), rtol=1e-8)


@pytest.mark.parametrize("kind", ["hybrid", "direct"])
def test_columns_of_the_mean_are_drawn_without_bias(kind):
    at = prepared(kind)
    with stream_of(in_memory()) as batches:
        shares = batches.take()
        full = arrays(steps_of(kind).sums(at, shares, 0))
        few = steps_of(kind, columns=3)
        each = [arrays(few.sums(at, shares, step)) for step in range(84)]
    again = arrays(few.sums(at, shares, 5))
    for a, b in zip(again, each[5], strict=True):
        np.testing.assert_array_equal(a, b)
    assert len({float(found[0]) for found in each}) > 40
    for part, wanted in zip(zip(*each, strict=True), full, strict=True):
        values = np.array(part)
        error = values.std(axis=0) / np.sqrt(len(values))
        assert (np.abs(values.mean(axis=0) - wanted) <= 4.5 * error + 1e-9).all()


def test_a_share_of_the_columns_goes_to_each_part(monkeypatch):
    monkeypatch.setattr(minibatches, "LANE_ROWS", 4)
    given, local = [], Decoupled.local

    def watched(self, at, block, draw):
        given.append((len(block.X), draw))
        return local(self, at, block, draw)

    monkeypatch.setattr(Decoupled, "local", watched)
    with stream_of(in_memory()) as batches, dask.config.set(scheduler="sync"):
        steps_of("hybrid", columns=6).sums(prepared("hybrid"), batches.take(), 3)
    assert [rows for rows, _ in given] == [4, 4, 4, 4]
    assert sorted(len(draw.columns) for _, draw in given) == [1, 1, 2, 2]
    drawn = np.concatenate([draw.columns for _, draw in given])
    assert len(set(drawn)) == 6
    assert set(drawn) <= set(range(9))
    assert {(draw.weight, draw.column_weight) for _, draw in given} == {(N / 16, 9 / 6)}


@pytest.mark.parametrize("lane_rows", [16, 6, 3])
def test_the_inputs_of_a_batch(lane_rows, monkeypatch):
    monkeypatch.setattr(minibatches, "LANE_ROWS", lane_rows)
    with stream_of(in_memory()) as batches:
        shares = batches.take()
        found = steps_of("hybrid").inputs(shares)
        np.testing.assert_array_equal(found, of(shares).X)
    assert found.dtype == np.float64


# -- validation ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hybrid", "direct", "student-t", "poisson"])
@pytest.mark.parametrize("most", [1000, 10])
def test_the_density_of_rows_is_that_of_their_predictions(kind, most, monkeypatch):
    monkeypatch.setattr(svi, "VALIDATION_ROWS", most)
    at, model = prepared(kind), MODELS[kind]
    X, y = data(kind, 33)
    found = model.predict(Theta(KERNEL, 1.0), model.posterior(at), X, None, "variance")
    wanted = -metrics.nlpd(y, found.mean[:, 0], found.variance, at.likelihood)
    density = steps_of(kind).density(at, Block(X, y[:, None]))
    assert density == pytest.approx(wanted, rel=1e-9)
    assert np.isnan(steps_of(kind).density(at, Block(X[:0], y[:0, None])))


# -- the same bits everywhere ----------------------------------------------------------------


def everything(rows, executor, here=None, fetch=False):
    """What two steps of two models give, as bytes."""
    found, (X, y) = [], data(n=20)
    for kind in ("natural", "direct"):
        at, model = prepared(kind), MODELS[kind]
        with stream_of(rows, executor=executor, fetch=fetch) as batches:
            of_steps = steps_of(kind, here or executor, columns=6)
            for step in range(2):
                shares = batches.take()
                total = of_steps.sums(at, shares, step)
                found += [bits(total), bits(model.bound(at, total))]
                found.append(of_steps.inputs(shares).tobytes())
            found.append(of_steps.density(at, Block(X, y[:, None])))
    return found


@pytest.fixture
def stored(make_store):
    X, y = dataset_arrays(make_store(*data(), rows=CHUNK))
    return rows_of(X, y, None, False)


def test_threads_and_workers_give_the_same_bits(stored, client, monkeypatch):
    monkeypatch.setattr(minibatches, "LANE_ROWS", 4)
    found = []
    for threads in (1, 4):
        with dask.config.set(scheduler="threads", num_workers=threads):
            found.append(everything(stored, threaded()))
    with dask.config.set(scheduler="sync"):
        found.append(everything(stored, threaded()))
    workers = Executor(client, False)
    found.append(everything(stored, workers))
    here = Executor(None, False, here=True)
    found.append(everything(stored, workers, here, fetch=True))  # gradients="client"
    assert all(each == found[0] for each in found)
