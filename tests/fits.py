"""What tests of fitted estimators share: rows in stores, and what a fit gives."""

import gc
import pickle

import cloudpickle
import numpy as np
from commands import dataset

import daskgp
from daskgp.data import reading
from daskgp.posterior import training_rows


def zarr_rows(path, X, y, step=37):
    """Rows in a dataset store, opened."""
    targets = ("y",) if y.ndim == 1 else tuple(f"y{j}" for j in range(y.shape[1]))
    return daskgp.open_dataset(dataset(path, X, y, step=step, targets=targets))


def equal(found, wanted, **close):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, **{"rtol": 1e-8, "atol": 1e-8, **close})


def same_bits(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def outcome(model, T):
    """All that a fit gives, in bits."""
    history = [{k: v for k, v in e.items() if k != "seconds"} for e in model.history_]
    bits = [np.asarray(a).tobytes() for a in model.predict(T, return_std=True)]
    return model.objective_, model.kernel_, model.noise_variance_, history, bits


def files_below(*folders):
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def forget():
    """Let go of factors and chunks that this process holds."""
    gc.collect()
    training_rows._cache.cache_clear()
    reading._held.cache_clear()


def arrived(value):
    """A value as a message brings it: pickled, its arrays between the addresses of items."""
    buffers = []
    message = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(message, buffers=[_between(buffer.raw()) for buffer in buffers])


def _between(raw):
    memory = np.empty(len(raw) + 8, np.uint8)
    start = (4 - memory.ctypes.data) % 8
    memory[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
    return memory[start : start + len(raw)]
