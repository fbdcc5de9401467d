"""Bundles that do not travel in one message: sent in pieces, before the function is registered."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from leman._channel import Services
from leman.v1 import catalog_pb2, udf_pb2

INLINE_BYTES = 512 << 10
"""A bundle of so many bytes fits into a message, whatever the services allow."""

_SERVICE = "planner"
_PIECE_BYTES = 512 << 10
_AN_HOUR = 3600.0


def upload(services: Services, database: str, bundle: udf_pb2.PythonBundle, data: bytes) -> None:
    """Store a bundle. It is sent again where the service was away. Raises LemanError."""
    header = catalog_pb2.UploadBundleHeader(database=database, sha256=bundle.sha256, size_bytes=bundle.size_bytes)
    patience = services.patient()
    while True:
        try:
            services.catalog.UploadBundle(_messages(header, data), timeout=_AN_HOUR)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            services.wait_or_raise(_SERVICE, error, patience, repeatable=True)
        else:
            return


def _messages(header: catalog_pb2.UploadBundleHeader, data: bytes) -> Iterator[catalog_pb2.UploadBundleRequest]:
    yield catalog_pb2.UploadBundleRequest(header=header)
    for at in range(0, len(data), _PIECE_BYTES):
        yield catalog_pb2.UploadBundleRequest(data=data[at : at + _PIECE_BYTES])
