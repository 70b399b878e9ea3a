"""Check access to the service: a token of the right scope (`tokens`); without tokens, only programs and pages of this host.

Invariants
1. While any token is set, only `PUBLIC` needs none; every other request needs a token whose scope allows it.
2. Without a token the raw `Host` header must be a loopback name, and a browser's `Origin` the service's own address. A
   header that does not parse is refused, never guessed at. Otherwise a page whose DNS name is rebound to 127.0.0.1
   would be admitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fastapi.responses import JSONResponse

from dbsp.coordinator.http.pages import CONSOLE
from dbsp.coordinator.http.refusals import refuse
from dbsp.coordinator.http.tokens import Tokens, allowing

PUBLIC = frozenset({*(("GET", path) for path in CONSOLE), ("GET", "/healthz"), ("GET", "/readyz")})
"""The requests that need no token. The console's files contain no data: its page asks the user for the token."""
HOST = re.compile(rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
FOREIGN = (b"cross-site", b"same-site")
"""Values of `Sec-Fetch-Site` that are refused. Another port of localhost is `same-site`, but a page of another program."""
BEARER = b"bearer "

Headers = Sequence[tuple[bytes, bytes]]


def refusal(tokens: Tokens, method: str, path: str, scheme: str, headers: Headers) -> JSONResponse | None:
    """Return why a request is refused; None if it is admitted."""
    if tokens.known:
        return None if (method, path) in PUBLIC else _refused_by_token(tokens, method, path, headers)
    found = values(headers)
    return _refused_by_host(found) or _refused_by_origin(found, scheme, method)


def values(headers: Headers) -> Mapping[bytes, list[bytes]]:
    """Group the values of headers by their names."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


def _refused_by_token(tokens: Tokens, method: str, path: str, headers: Headers) -> JSONResponse | None:
    given = values(headers).get(b"authorization", [])
    token = given[0][len(BEARER) :] if len(given) == 1 and given[0][: len(BEARER)].lower() == BEARER else b""
    scopes = tokens.scopes(token)
    if not scopes:
        return refuse(401, "unauthorized", "a bearer token is needed", "send `Authorization: Bearer <token>`")
    wanted = allowing(method, path)
    if not scopes & wanted:
        story = f"the token does not allow it: scope={'+'.join(sorted(scopes))} needed={' or '.join(sorted(wanted))}"
        return refuse(403, "forbidden", story, "ask with a token of that scope")
    return None


def _refused_by_host(found: Mapping[bytes, list[bytes]]) -> JSONResponse | None:
    hosts = found.get(b"host", [])
    if len(hosts) == 1 and HOST.fullmatch(hosts[0]):
        return None
    shown = ", ".join(ascii(host.decode("latin-1"))[1:-1][:80] for host in hosts) or "none"
    return refuse(403, "forbidden", f"not a loopback host name: host={shown}", "set a token to use other names")


def _refused_by_origin(found: Mapping[bytes, list[bytes]], scheme: str, method: str) -> JSONResponse | None:
    """Refuse a page of another origin, by `Origin`, or by `Sec-Fetch-Site` if a browser sends no `Origin`."""
    own = scheme.encode() + b"://" + found[b"host"][0].lower()
    for origin in found.get(b"origin", []):
        if origin.lower() != own:
            shown = ascii(origin.decode("latin-1"))[1:-1][:80]
            return refuse(
                403, "forbidden", f"requests from pages of other sites are refused: origin={shown}", "set a token"
            )
    links_here = method == "GET" and found.get(b"sec-fetch-mode") == [b"navigate"]
    if not links_here and any(site in FOREIGN for site in found.get(b"sec-fetch-site", [])):
        return refuse(403, "forbidden", "requests from pages of other sites are refused", "set a token")
    return None
