"""Certificates for tests of TLS: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Files:
    """A certificate and its key, as PEM files."""

    cert: str
    key: str


class Authority:
    """Signs certificates, which lie in a folder with its own (`ca.pem`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        basic = (x509.BasicConstraints(ca=True, path_length=None), True)
        own = self._signed(self._name, self._key, days=2, extensions=[basic])
        (folder / "ca.pem").write_bytes(own.public_bytes(serialization.Encoding.PEM))
        self.ca = str(folder / "ca.pem")

    def issue(self, name: str, *alternatives: x509.GeneralName, days: int = 2) -> Files:
        """A certificate for a common name and alternative ones; with days < 0 it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = [(x509.SubjectAlternativeName(alternatives), False)] if alternatives else []
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert = self._signed(subject, key, days=days, extensions=extensions)
        files = Files(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        Path(files.cert).write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        Path(files.key).write_bytes(pem)
        return files

    def server(self) -> Files:
        """A certificate for this machine."""
        local = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return self.issue("server", x509.DNSName("localhost"), local)

    def _signed(self, subject, key, *, days, extensions) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOW - datetime.timedelta(days=10))
            .not_valid_after(_NOW + datetime.timedelta(days=days))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())
