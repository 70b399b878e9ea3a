"""TLS of the commands: the authorities that they trust. A module apart, since the service needs no HTTP client."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from dbsp.coordinator.http.section import HttpSection
from dbsp.coordinator.http.tls import refuse_unreadable
from dbsp.errors import ConfigError

NOT_TRUSTED = (
    "name its authority by --ca, DBSP_CA or `ca` in [http], and the name in the certificate by `server_name` in [http]"
)


def trusting(section: HttpSection, folder: Path, ca: str | None) -> ssl.SSLContext:
    """Return the authorities that a command trusts: the system's, and `ca` or those of the settings.

    **Errors** `ConfigError` names the file that cannot be read or used.
    """
    context = ssl.create_default_context()
    named = Path(ca) if ca else folder / (section.ca or section.certificate)
    if ca or section.ca or section.certificate:
        refuse_unreadable(named)
        try:
            context.load_verify_locations(named)
        except ssl.SSLError as error:
            raise ConfigError(f"not a file of certificates in PEM: file={named} error={error.reason}") from None
    return context


@contextmanager
def connecting(url: str, section: HttpSection, folder: Path, ca: str | None = None) -> Iterator[httpx.Client]:
    """Yield a client, with TLS only if the address says so: reading the system's authorities takes time."""
    trusted = trusting(section, folder, ca) if url.startswith("https:") else False
    with httpx.Client(verify=trusted, trust_env=False) as client:
        if section.server_name:
            name = section.server_name
            client.event_hooks = {"request": [lambda request: request.extensions.update(sni_hostname=name)]}
        yield client


def untrusted_reason(error: BaseException) -> str | None:
    """Return why a certificate is not trusted, or None if the error has another cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return getattr(cause, "verify_message", "") or cause.reason or str(cause)
        cause = cause.__cause__ or cause.__context__
    return None
