"""TLS of the service: what it shows of itself."""

from __future__ import annotations

import ssl
from pathlib import Path

from dbsp.coordinator.http.section import HttpSection
from dbsp.errors import ConfigError


def tls_context(section: HttpSection, folder: Path) -> ssl.SSLContext | None:
    """Return what the service shows of itself; None where it speaks plain HTTP.

    **Errors** `ConfigError` names the file that cannot be read or used.
    """
    if not section.is_encrypted:
        return None
    certificate, key = folder / section.certificate, folder / section.key
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for file in (certificate, key):
        refuse_unreadable(file)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"not a certificate and its key: certificate={certificate} key={key} error={error}",
            "both are files in PEM, the key without a passphrase, and belong to each other",
        ) from None
    return context


def refuse_unreadable(file: Path) -> None:
    """Raise `ConfigError` if a file of TLS cannot be read."""
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise ConfigError(
            f"a file of TLS cannot be read: file={file} error={error.strerror}", "mend its path in [http]"
        ) from None
