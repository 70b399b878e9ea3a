"""Check access to Flight SQL: a token of [http] as bearer token, or as the password of any user; bound the number of calls.

Invariants
1. While any token is set, every call needs one that may read.
2. At most `calls_max` calls run at once.

Without tokens every call is allowed, because the service then listens on this host only, and browsers do not speak the
protocol.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow.flight as fl

from dbsp.coordinator.http.tokens import ADMIN, READ, Tokens

BEARER, BASIC = "bearer ", "basic "
Headers = Mapping[str, Sequence[str | bytes]]


class FlightAccess(fl.ServerMiddlewareFactory):  # type: ignore[misc] # pyarrow comes without types
    """Arrow's middleware that admits or refuses each call; gRPC calls it on the call's thread, before any method."""

    def __init__(self, tokens: Callable[[], Tokens], calls_max: int) -> None:
        """Ask for the present tokens at each call."""
        super().__init__()
        self._tokens, self._calls_max = tokens, calls_max
        self._lock = threading.Lock()
        self.calls = 0

    def start_call(self, info: Any, headers: Headers) -> _Call:
        """Check and count a call. **Errors** of Flight, for a token without the scope and for too many calls."""
        del info  # Flight SQL only reads, so the scope `read` is sufficient
        kind, token = authorization_of(headers)
        tokens = self._tokens()
        if tokens.known:
            _refuse(tokens.scopes(token))
        with self._lock:
            if self.calls >= self._calls_max:
                raise fl.FlightUnavailableError(
                    f"too many calls at once: calls_max={self._calls_max}\n"
                    "hint: ask again, or raise `connections_max` in [flight]"
                )
            self.calls += 1
        return _Call(self, token if kind == BASIC else b"")

    def end_call(self) -> None:
        """Count a call that has ended."""
        with self._lock:
            self.calls -= 1


def _refuse(scopes: frozenset[str]) -> None:
    if not scopes:
        raise fl.FlightUnauthenticatedError(
            "a token is needed\nhint: send it as bearer token, or as the password of any user"
        )
    if not scopes & {READ, ADMIN}:
        raise fl.FlightUnauthorizedError(
            f"the token does not allow it: scope={'+'.join(sorted(scopes))} needed={READ} or {ADMIN}"
        )


def authorization_of(headers: Headers) -> tuple[str, bytes]:
    """Return the scheme and the token of a call's header; empty for no header, several, or an invalid one.

    **Example**

    >>> import base64
    >>> basic = base64.b64encode(b"me:secret").decode()
    >>> authorization_of({"authorization": ["Bearer secret"]}), authorization_of({"authorization": [f"Basic {basic}"]})
    (('bearer ', b'secret'), ('basic ', b'secret'))
    """
    given = {value for name, values in headers.items() if name.lower() == "authorization" for value in values}
    (first,) = given if len(given) == 1 else ("",)
    text = first.decode("latin-1") if isinstance(first, bytes) else first
    if text.lower().startswith(BEARER):
        return BEARER, text[len(BEARER) :].encode()
    if text.lower().startswith(BASIC):
        with suppress(ValueError):
            return BASIC, base64.b64decode(text[len(BASIC) :], validate=True).partition(b":")[2]
    return "", b""


class _Call(fl.ServerMiddleware):  # type: ignore[misc] # pyarrow comes without types
    """A call that was let in."""

    def __init__(self, access: FlightAccess, password: bytes) -> None:
        super().__init__()
        self._access, self._password = access, password

    def sending_headers(self) -> Mapping[str, str]:
        """Return the bearer token that a client with a password uses in later calls."""
        return {"authorization": f"Bearer {self._password.decode('latin-1')}"} if self._password else {}

    def call_completed(self, exception: BaseException | None) -> None:
        """Count the call as ended."""
        del exception
        self._access.end_call()


class Handshake(fl.ServerAuthHandler):  # type: ignore[misc] # pyarrow comes without types
    """Lets the call `Handshake` succeed: `FlightAccess` has checked its header, as it does for every call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Exchange nothing more."""

    def is_valid(self, token: bytes) -> bytes:
        """Return no identity: a token of the older kind names nobody."""
        del token
        return b""
