"""The section [http] of the settings: the service's address, its access, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbsp.errors import ConfigError
from dbsp.settings import at_least, at_most

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
SCOPES = ("read", "ingest", "admin")
MEBIBYTE = 1 << 20
PORT_MAX = 65_535
AN_HOUR_S = 3600.0
CONNECTIONS_MIN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSection:
    """The settings of the service's address, access and bounds.

    Port 0 means any free one, which the service writes to `<data_dir>/coordinator.json`.

    `token` allows every request. `read_token`, `ingest_token` and `admin_token` allow the requests of their scope.
    `token_files` names, for each scope, a file with a token a line. As soon as one token is set, every request needs
    one.

    `certificate` and `key` are files in PEM; with them the service speaks TLS alone. Commands on this host trust `ca`
    (default: the certificate) besides the system's authorities, and expect `server_name` in the certificate.
    """

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    ingest_token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    token_files: Mapping[str, str] = field(default_factory=dict)
    certificate: str = ""
    key: str = ""
    ca: str = ""
    server_name: str = ""
    access_log: str = ""
    max_body_bytes: int = 256 * MEBIBYTE
    max_decoded_bytes: int = 1024 * MEBIBYTE
    max_push_rows: int = 10_000_000
    bad_rows_max: int = 1000
    connections_max: int = 1024
    followers_max: int = 256
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    requests_per_s_max: int = 0

    def __post_init__(self) -> None:
        """Refuse to serve other hosts without a token, and bounds so low that no request could pass."""
        for name in self.token_files:
            if name not in SCOPES:
                raise ConfigError(f"unknown scope: http.token_files names {name}", f"known: {', '.join(SCOPES)}")
        for name in ("token", *(f"{scope}_token" for scope in SCOPES)):
            refuse_token(f"http.{name}", getattr(self, name))
        if self.host not in LOOPBACK and not self.needs_token:
            raise ConfigError(
                f"refusing to listen beyond this host without a token: host={self.host}",
                "set `token` in [http] or DBSP_HTTP_TOKEN, or listen on 127.0.0.1",
            )
        if not 0 <= self.port <= PORT_MAX:
            raise ConfigError(f"not a port: http.port={self.port}")
        if bool(self.certificate) != bool(self.key):
            raise ConfigError(
                f"TLS needs both: http.certificate={self.certificate!r} http.key={self.key!r}",
                "name the files of the certificate and of its key, both in PEM",
            )
        for name in ("max_body_bytes", "max_decoded_bytes", "max_push_rows", "followers_max"):
            at_least(f"http.{name}", getattr(self, name), 1)
        for name in ("bad_rows_max", "requests_per_s_max"):
            at_least(f"http.{name}", getattr(self, name), 0)
        at_least("http.connections_max", self.connections_max, CONNECTIONS_MIN)
        for name in ("header_timeout_s", "body_timeout_s"):
            at_least(f"http.{name}", getattr(self, name), 0.1)
            at_most(f"http.{name}", getattr(self, name), AN_HOUR_S)

    @property
    def needs_token(self) -> bool:
        """Return whether a request needs a token."""
        given = (self.token, self.read_token, self.ingest_token, self.admin_token)
        return any(given) or bool(self.token_files)

    @property
    def is_encrypted(self) -> bool:
        """Return whether the service speaks TLS."""
        return bool(self.certificate)


def refuse_token(origin: str, token: str | None) -> None:
    """Refuse a token that no header can carry; the token itself is not shown."""
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ConfigError(
            f"not a token: {origin} is empty, or has a space or a character that is not ASCII",
            "write a long random text, such as that of `openssl rand -hex 32`",
        )
