"""Certificates for encrypted clusters, which Dask's configuration names."""

from __future__ import annotations

from pathlib import Path

import dask

from daskgp.errors import InputError

FILES = {
    "distributed.comm.tls.ca-file": "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "distributed.comm.tls.client.cert": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT",
    "distributed.comm.tls.client.key": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY",
}
"""Settings of Dask that name the files of a client, and their environment variables."""

UNTRUSTED = ", or its certificates and those of {} do not trust each other".format(
    ", ".join(FILES.values())
)


def encrypted(address: str) -> bool:
    """Return whether an address asks for TLS."""
    return address.startswith("tls://")


def refuse_unprepared(address: str) -> None:
    """Raise InputError unless the configuration has what an address requires."""
    if not encrypted(address):
        if dask.config.get("distributed.comm.require-encryption", None):
            raise InputError(
                f"the scheduler at {address} is not encrypted, and Dask's configuration requires "
                "that: use its tls:// address"
            )
        return
    for setting, variable in FILES.items():
        path = dask.config.get(setting, None)
        if not path:
            raise InputError(f"the scheduler at {address} requires certificates: set {variable}")
        if not Path(path).is_file():
            raise InputError(f"{variable} names {path}, which is not a file: correct it")
