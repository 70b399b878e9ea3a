"""TLS of the service: its certificate, which is read again when its files change."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from dbsp.coordinator.http.section import HttpSection
from dbsp.errors import ConfigError
from dbsp.reloading import Reloadable


def certificate_of(
    section: HttpSection, folder: Path, *, protocols: Sequence[str] = ()
) -> Reloadable[ssl.SSLContext] | None:
    """Read the certificate of the service; return None if the service answers without TLS.

    `protocols` are agreed on in the handshake (ALPN), where clients insist on that.

    **Errors** `ConfigError` names the file that cannot be read or used.
    """
    if not section.is_encrypted:
        return None
    certificate, key = folder / section.certificate, folder / section.key
    what = f"certificate={certificate} key={key}"
    return Reloadable(what, (certificate, key), lambda: _context(certificate, key, protocols))


def listening(certificate: Reloadable[ssl.SSLContext]) -> ssl.SSLContext:
    """Return a context that shows the newest certificate to each new connection; open connections keep theirs."""

    def choose(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = certificate.value

    context = certificate.value
    context.sni_callback = choose  # it is called in every handshake, also where the client names no host
    return context


def _context(certificate: Path, key: Path, protocols: Sequence[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if protocols:
        context.set_alpn_protocols(protocols)
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
            f"a file of TLS cannot be read: file={file} error={error.strerror}", "correct its path in [http]"
        ) from None
