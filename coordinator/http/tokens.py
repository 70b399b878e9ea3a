"""Tokens and their scopes: the requests that each allows, and their reading from settings and files.

Invariant: a request that `allowing` does not list needs the scope `admin`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dbsp.coordinator.http.section import SCOPES, HttpSection, refuse_token
from dbsp.errors import ConfigError
from dbsp.reloading import Reloadable

READ, INGEST, ADMIN = SCOPES
PUSH = re.compile(r"/v1/tables/[^/]+/rows|/v1/transactions")
FOR_ADMINS = frozenset({"/v1/logs", "/v1/settings"})
"""Paths that only the scope `admin` allows: they show folders of the host, addresses of other systems, and tracebacks."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The known tokens with their scopes; if there are none, no request needs one."""

    known: tuple[tuple[bytes, str], ...] = ()

    def scopes(self, given: bytes) -> frozenset[str]:
        """Return the scopes of a token; every known token is compared, in the same time whichever matches."""
        return frozenset(scope for token, scope in self.known if hmac.compare_digest(token, given))

    def best(self, method: str, path: str) -> str | None:
        """Return a token that allows a request; None if none does."""
        allowed = allowing(method, path)
        return next((token.decode() for token, scope in self.known if scope in allowed), None)


def load_tokens(section: HttpSection, folder: Path) -> Tokens:
    """Read the tokens of the settings and of the files that they name, the strongest first.

    **Errors** `ConfigError` for a file that cannot be read or has no token; tokens are never shown.
    """
    given = {ADMIN: [section.token, section.admin_token], INGEST: [section.ingest_token], READ: [section.read_token]}
    known = []
    for scope, tokens in given.items():
        known += [(token.encode(), scope) for token in tokens if token]
        if scope in section.token_files:
            known += [(token, scope) for token in _tokens_in(folder / section.token_files[scope])]
    return Tokens(tuple(known))


def tokens_of(section: HttpSection, folder: Path) -> Reloadable[Tokens]:
    """Read the tokens as `load_tokens`, and again when one of their files changes."""
    files = {scope: folder / file for scope, file in sorted(section.token_files.items())}
    what = f"tokens: {' '.join(f'{scope}={file}' for scope, file in files.items())}"
    return Reloadable(what, tuple(files.values()), lambda: load_tokens(section, folder))


def _tokens_in(file: Path) -> Iterable[bytes]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"a file of tokens cannot be read: file={file} error={type(error).__name__}",
            "name a file with a token a line in `token_files` of [http]",
        ) from None
    for number, line in enumerate(lines):
        refuse_token(f"file={file} token={number + 1}", line)
    if not lines:
        raise ConfigError(f"a file of tokens is empty: file={file}", "write a token a line into it")
    return [line.encode() for line in lines]


def allowing(method: str, path: str) -> frozenset[str]:
    """Return the scopes that allow a request; each is sufficient."""
    if method == "POST" and PUSH.fullmatch(path):
        return frozenset({INGEST, ADMIN})
    if method in ("GET", "HEAD") and path == "/v1/completion":
        return frozenset(SCOPES)
    if path in FOR_ADMINS:
        return frozenset({ADMIN})
    if method in ("GET", "HEAD") or (method, path) == ("POST", "/v1/query"):
        return frozenset({READ, ADMIN})
    return frozenset({ADMIN})
