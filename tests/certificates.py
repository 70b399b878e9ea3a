"""Certificates and keys for the tests of TLS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Key = ec.EllipticCurvePrivateKey
PEM = serialization.Encoding.PEM


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def signed(
    subject: str, key: Key, issuer: str, issuer_key: Key, hosts: Sequence[x509.GeneralName], *, is_authority: bool = False
) -> x509.Certificate:  # fmt: skip
    """A certificate for a day that the issuer's key signed."""
    now = dt.datetime.now(dt.UTC)
    named = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (subject, issuer)]
    return (
        x509.CertificateBuilder().subject_name(named[0]).issuer_name(named[1]).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )  # fmt: skip


def private_text(key: Key) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def certificate(folder: Path, name: str, *hosts: x509.GeneralName) -> None:
    """A certificate that is signed by its own key: `<name>.pem` and `<name>.key`."""
    key = new_key()
    made = signed(name, key, name, key, hosts, is_authority=True)
    (folder / f"{name}.pem").write_bytes(made.public_bytes(PEM))
    (folder / f"{name}.key").write_bytes(private_text(key))
