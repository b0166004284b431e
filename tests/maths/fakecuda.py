"""CUDA C on the host: the same source, its threads in turn, as ``cupy.RawModule`` runs it.

The system's C compiler builds a function with a shim before it.  Threads of a block are coroutines:
each runs up to a barrier, then the next one, and after the last all go on, in the opposite order.
What one thread leaves for another without a barrier between is so missed in one of the orders.
Memory is what NumPy gave: a stray index is caught where the sanitizer or a wrong number shows it.
"""

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

COMPILER = shutil.which("gcc") or shutil.which("cc")

SHIM = r"""
#pragma GCC diagnostic ignored "-Wunused-function"
#include <math.h>
#include <stdlib.h>
#include <ucontext.h>
typedef struct { unsigned int x, y, z; } dim3_;
static dim3_ blockIdx, threadIdx, gridDim;
static ucontext_t scheduler, *contexts;
static int current;
static void barrier_(void) { swapcontext(&contexts[current], &scheduler); }
#define __global__
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __syncthreads barrier_
#define extern
"""

LAUNCH = r"""
static void (*body_)(void);
static char *done_;
static void thread_(void) { body_(); done_[current] = 1; }
static int run_(unsigned int gx, unsigned int gy, int threads, void (*body)(void))
{
    const size_t stack = 1 << 16;
    char *stacks = malloc(stack * threads);
    contexts = malloc(sizeof(ucontext_t) * threads);
    done_ = malloc(threads);
    body_ = body;
    gridDim.x = gx; gridDim.y = gy; gridDim.z = 1;
    int torn = 0;
    for (blockIdx.y = 0; blockIdx.y < gy; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < gx; ++blockIdx.x) {
        for (int t = 0; t < threads; ++t) {
            getcontext(&contexts[t]);
            contexts[t].uc_stack.ss_sp = stacks + stack * t;
            contexts[t].uc_stack.ss_size = stack;
            contexts[t].uc_link = &scheduler;
            done_[t] = 0;
            makecontext(&contexts[t], thread_, 0);
        }
        int left = threads, turn = 0;
        while (left) {
            int ended = 0, alive = left;
            for (int i = 0; i < threads; ++i) {
                current = turn % 2 ? threads - 1 - i : i;
                if (done_[current]) continue;
                threadIdx.x = current;
                swapcontext(&scheduler, &contexts[current]);
                ended += done_[current];
            }
            left -= ended;
            if (ended && ended != alive) torn = 1;  /* some wait at a barrier that others left */
            ++turn;
        }
    }
    free(stacks); free(contexts); free(done_);
    return torn;
}
"""
ENTRY = re.compile(r"^ENTRY void (\w+)\(([^)]*)\)", re.MULTILINE)


@functools.cache
def library(source):
    """The compiled source, a launching function for each of its entries, and their parameters."""
    entries = {
        name: [" ".join(p.split()) for p in parameters.split(",")]
        for name, parameters in ENTRY.findall(source)
    }
    launchers = "".join(launcher(name, parameters) for name, parameters in entries.items())
    # `extern "C"` is C++: what is left of it is a string before a definition
    text = SHIM + source.replace('extern "C" ', "") + LAUNCH + launchers
    with tempfile.TemporaryDirectory() as folder:
        code, built = Path(folder, "code.c"), Path(folder, "code.so")
        code.write_text(text)
        flags = ("-O0", "-std=gnu11", "-shared", "-fPIC", "-Wall", "-Werror")
        words = [COMPILER, *flags, str(code), "-o", str(built), "-lm"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(built)), entries


def launcher(name, parameters):
    """C that keeps the arguments where every thread finds them, and runs the threads."""
    kept = [f"{name}_{i}_" for i in range(len(parameters))]
    types = [re.sub(r"\w+$", "", p).strip() for p in parameters]
    statics = "".join(f"static {t} {k};\n" for t, k in zip(types, kept, strict=True))
    given = ", ".join(f"{t} a{i}" for i, t in enumerate(types))
    puts = " ".join(f"{k} = a{i};" for i, k in enumerate(kept))
    return (
        f"{statics}static void {name}_body_(void) {{ {name}({', '.join(kept)}); }}\n"
        f"int launch_{name}(unsigned gx, unsigned gy, int threads, {given})\n"
        f"{{ {puts} return run_(gx, gy, threads, {name}_body_); }}\n"
    )


SCALARS = {"float": np.float32, "double": np.float64, "int": np.int32, "long long": np.int64}


class Function:
    """A launched function, as strict about its arguments as its source is."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self, grid, block, args):
        built, entries = library(self.module.code)
        real = re.search(r"#define real (\w+)", self.module.code)[1]
        threads = int(re.search(r"#define THREADS (\w+)", self.module.code)[1])
        assert block == (threads,), "the source knows another number of threads"
        assert len(grid) == 2
        assert min(grid) > 0, "CUDA refuses an empty grid"
        assert grid[1] <= 65_535
        words = [ctypes.c_uint(int(g)) for g in grid] + [ctypes.c_int(threads)]
        for parameter, arg in zip(entries[self.name], args, strict=True):
            words.append(argument(parameter.replace("real", real), arg))
        torn = getattr(built, f"launch_{self.name}")(*words)
        assert not torn, f"some threads of {self.name} left while others wait at a barrier"
        self.module.launched.append(self.name)


def argument(parameter, arg):
    """A pointer to the memory of a fake array of the right type, or a number of it."""
    kind = re.sub(r"\w+$", "", parameter).replace("const", "").strip()
    if kind.endswith("*"):
        assert arg.flags.c_contiguous, f"{parameter}: an array that is not contiguous"
        wanted = np.dtype(SCALARS[kind.rstrip("* ")])
        assert arg.dtype == wanted, f"{parameter}: an array of {arg.dtype}"
        return ctypes.c_void_p(arg._data.ctypes.data)
    assert type(arg) is SCALARS[kind], f"{parameter}: {arg!r} of {type(arg)}"
    return np.ctypeslib.as_ctypes_type(SCALARS[kind])(arg.item())


def give(xp):
    """Let a fake array module compile; ``xp.launched`` names what ran."""
    xp.launched = []

    class RawModule:
        launched = xp.launched

        def __init__(self, code, options=()):
            self.code = code

        def get_function(self, name):
            return Function(self, name)

    xp.RawModule = RawModule
    return xp
