"""Encrypted clusters, with certificates that are checked on both sides."""

import dask
import pytest
import trustme
from commands import dataset, invoke, refused, rows, succeed
from distributed import LocalCluster
from distributed.security import Security

from daskgp.errors import InputError
from daskgp.runtime.connect import CERTIFICATES, connect

CA, CERT, KEY = CERTIFICATES


def certificates(folder):
    """Files of an authority and of a certificate that it issued, as Dask's settings."""
    folder.mkdir()
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "cert.pem").write_bytes(chain)
    places = ("ca.pem", "cert.pem", "key.pem")
    return {name: str(folder / place) for name, place in zip(CERTIFICATES, places, strict=True)}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def address(ours):
    """A cluster that takes nobody without a certificate of its authority."""
    roles = {
        f"tls_{role}_{what}": ours[name]
        for role in ("scheduler", "worker", "client")
        for what, name in (("cert", CERT), ("key", KEY))
    }
    security = Security(tls_ca_file=ours[CA], require_encryption=True, **roles)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=":0",
        protocol="tls://",
        host="127.0.0.1",
        security=security,
    ) as cluster:
        yield cluster.scheduler_address


def test_a_fit_and_a_prediction_on_an_encrypted_cluster(address, ours, tmp_path):
    data, model = dataset(tmp_path / "d.zarr", *rows(100)), tmp_path / "m.zarr"
    settings = ("--model", "sgpr", "--set", "n_inducing=5", "--set", "max_iter=1")
    assert address.startswith("tls://")
    with dask.config.set({**ours, "distributed.comm.require-encryption": True}):
        succeed("fit", data, model, *settings, "--scheduler", address)
        done = succeed("predict", model, data, tmp_path / "p.zarr", "--scheduler", address)
    assert done["rows"] == 100


@pytest.mark.parametrize("missing", CERTIFICATES)
def test_a_client_without_a_certificate_is_told_what_to_set(missing, address, ours, tmp_path):
    data = dataset(tmp_path / "d.zarr", *rows(100))
    plan = ("plan", data, "--model", "sgpr", "--scheduler", address)
    with dask.config.set({**ours, missing: None}):
        assert f"requires certificates: set {CERTIFICATES[missing]}" in refused(*plan)
    with dask.config.set({**ours, missing: "/nowhere.pem"}):
        assert f"{CERTIFICATES[missing]} names /nowhere.pem, which is not a file" in refused(*plan)
    with dask.config.set(ours):
        assert invoke(*plan, "--set", "n_inducing=5").exit_code == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("others", [[CA], [CERT, KEY]], ids=["authority", "certificate"])
def test_certificates_that_do_not_know_each_other_are_refused(others, address, ours, tmp_path):
    theirs = certificates(tmp_path / "theirs")
    mixed = {**ours, **{name: theirs[name] for name in others}}
    with (
        dask.config.set(mixed),
        pytest.raises(InputError, match="do not trust each other") as error,
        connect(address, timeout=3),
    ):
        pass
    assert len(str(error.value).splitlines()) == 1


def test_an_address_without_encryption_is_refused_where_it_is_required(address, ours):
    plain = address.replace("tls://", "tcp://")
    with (
        dask.config.set({**ours, "distributed.comm.require-encryption": True}),
        pytest.raises(InputError, match="use its tls:// address"),
        connect(plain, timeout=3),
    ):
        pass
    with pytest.raises(InputError, match="no Dask scheduler answers"), connect(plain, timeout=3):
        pass
