"""The part of CuPy that is about devices, memory and streams, with a log of what was done.

Streams do nothing until somebody waits for them, as a slow device would.
"""

import importlib.machinery
import types

import numpy as np


class OutOfMemoryError(MemoryError):
    """As CuPy's, which does not survive pickling either."""

    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,}).")


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class Event:
    """A mark on a stream: what was to be done before it."""

    def __init__(self, stream, place):
        self._stream, self._place = stream, place

    def synchronize(self):
        """Have the stream do all up to here."""
        self._stream.run(self._place)


class Stream:
    """A queue of work that is done when somebody waits for it."""

    def __init__(self, cuda, name):
        self._cuda, self._name, self._queue, self._done = cuda, name, [], 0

    def __enter__(self):
        self._cuda.current.append(self)

    def __exit__(self, *_):
        self._cuda.current.pop()

    def do(self, what, how):
        self._cuda.log.append((self._name, *what))
        self._queue.append(how)

    def run(self, place):
        while self._done < place:
            self._queue[self._done]()
            self._queue[self._done] = None  # what was copied may go
            self._done += 1

    def record(self):
        self._cuda.log.append((self._name, "record", len(self._queue)))
        return Event(self, len(self._queue))

    def wait_event(self, event):
        self._cuda.log.append((self._name, "wait for", event._stream._name, event._place))
        event.synchronize()  # all that computes here does so at once

    def synchronize(self):
        self.run(len(self._queue))


class Device:
    """The only one."""

    id = 0

    def __init__(self, cuda):
        self.mem_info = cuda.free, cuda.total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Pool:
    """A memory pool that keeps nothing."""

    def __init__(self, cuda):
        self._cuda = cuda

    def malloc(self, size):
        """As an allocator."""

    def free_bytes(self):
        return 0

    def used_bytes(self):
        return 0

    def get_limit(self):
        return 0

    def free_all_blocks(self):
        self._cuda.log.append(("free all blocks",))


class FakeCuda:
    """The part of ``cupy.cuda`` that is about devices, memory and streams, with a log.

    An array of more than ``limit`` bytes does not fit.
    """

    def __init__(self):
        self.log, self.limit, self.free, self.total = [], None, 1 << 30, 1 << 30
        self.pool = Pool(self)
        self.null = Stream(self, "null")
        self.current = [self.null]
        self.runtime = types.SimpleNamespace(
            getDeviceCount=lambda: 1, CUDARuntimeError=CUDARuntimeError
        )
        self.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)

    def allocate(self, size):
        if self.limit is not None and size > self.limit:
            raise OutOfMemoryError(size, 0)

    def get_allocator(self):
        return self.pool.malloc

    def get_current_stream(self):
        return self.null

    def alloc_pinned_memory(self, size):
        self.log.append(("pinned", size))
        return bytearray(size)

    def Device(self):
        return Device(self)

    def Stream(self, non_blocking):
        assert non_blocking, "a blocking stream takes turns with the null stream"
        return Stream(self, "copying")


def _set(self, host, stream):
    """A copy from the host that a stream makes when it comes to it."""
    assert host.base is not None, "only pinned memory is copied beside other work"
    assert (self.shape, self.dtype) == (host.shape, host.dtype), "CuPy casts and broadcasts nothing"
    stream.do(("copy", self.shape), lambda: np.copyto(self._data, host))


def add(xp):
    """Give a fake array module a device, memory and streams."""
    xp.__spec__ = importlib.machinery.ModuleSpec(xp.__name__, None)
    xp.cuda = FakeCuda()
    xp.get_default_memory_pool = lambda: xp.cuda.pool
    xp.get_default_pinned_memory_pool = lambda: xp.cuda.pool
    xp.ndarray.set = _set
