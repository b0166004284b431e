"""What plans are held against: the memory that calls take."""

import tracemalloc


def peak(function, *arguments):
    """Bytes that a call takes at most, beyond what its arguments have, and its result."""
    result = function(*arguments)  # what is imported or cached once does not count
    found = []
    for _ in range(3):  # other threads of the process are counted too
        tracemalloc.start()
        try:
            function(*arguments)
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found), result
