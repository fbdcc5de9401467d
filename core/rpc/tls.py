"""What a client of TLS shows and believes."""

from __future__ import annotations

from pathlib import Path

import grpc


def channel_credentials(ca: str, cert: str = "", key: str = "") -> grpc.ChannelCredentials:
    """Return credentials that believe the certificates of a CA, and show one where it is given.

    Args:
        ca: path of CA certificates (PEM).
        cert: path of a certificate chain (PEM); `key` that of its private key.

    Raises:
        OSError: a file cannot be read.
    """
    chain = Path(cert).read_bytes() if cert else None
    private = Path(key).read_bytes() if key else None
    return grpc.ssl_channel_credentials(Path(ca).read_bytes(), private, chain)
