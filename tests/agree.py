"""What two devices found, compared."""

import numpy as np


def assert_close(found, wanted, rtol=1e-9, atol=1e-9):
    """Nested tuples of NumPy arrays and numbers; an array that is not on the host is refused."""
    if isinstance(wanted, tuple | list):
        for f, w in zip(found, wanted, strict=True):
            assert_close(f, w, rtol, atol)
    elif wanted is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, wanted, rtol, atol)
