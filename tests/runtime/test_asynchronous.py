"""A client in an event loop is refused with what to do, which works."""

import asyncio

import numpy as np
import pytest
from distributed import Client

import daskgp
from daskgp.errors import InputError
from tests.contract import cases


def test_an_asynchronous_client_is_refused_and_a_thread_may_use_it(tmp_path):
    X, y = cases.rows(60)
    model = cases.fixed("sgpr")
    wanted = cases.fixed("sgpr").fit(X, y).predict(X[:3])

    async def main():
        how = {"processes": False, "n_workers": 1, "dashboard_address": None}
        async with Client(asynchronous=True, **how):
            for work in (
                lambda: model.fit(X, y),
                lambda: daskgp.prepare((X, y), tmp_path / "p.zarr"),
                lambda: daskgp.cross_validate(model, X, y),
            ):
                with pytest.raises(
                    InputError, match=r"asynchronous .* asyncio.to_thread"
                ) as caught:
                    work()
                assert "\n" not in str(caught.value)
            fitted = await asyncio.to_thread(model.fit, X, y)
            return await asyncio.to_thread(fitted.predict, X[:3])

    np.testing.assert_allclose(asyncio.run(main()), wanted, rtol=1e-9)
    assert not (tmp_path / "p.zarr").exists()
