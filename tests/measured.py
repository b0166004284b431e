"""What plans are held against: the memory that calls take."""

import time
import tracemalloc


def peak(function, *arguments):
    """Bytes that a call takes at most, beyond what its arguments have, and its result."""
    result = function(*arguments)  # what is imported or cached once does not count
    found = []
    began = time.perf_counter()
    # Other threads are counted, too: a call of few bytes is repeated until one is alone.
    while len(found) < 3 or (len(found) < 50 and time.perf_counter() - began < 0.5):
        tracemalloc.start()
        try:
            function(*arguments)
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found), result
