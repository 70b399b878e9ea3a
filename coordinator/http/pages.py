"""The pages for people: the console at `/`, and `/docs`, which describes the HTTP interface.

The console is made of the files in `console/bundle`, which Vite builds from `console/src` (see docs/testing.md). The page
loads no other file, and talks to its service alone: the content security policy of every response says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from dbsp.coordinator.http.docs_page import docs_page

BUNDLE = Path(__file__).parent / "console" / "bundle"
CONSOLE: Mapping[str, tuple[str, str]] = MappingProxyType({
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console/console.css": ("console.css", "text/css; charset=utf-8"),
})  # fmt: skip
"""The file and the media type of each address of the console."""
ONLY_ITSELF = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the pages: they load their own files and connect only to their service."""
KEPT_APART = {"Content-Security-Policy": ONLY_ITSELF, "X-Frame-Options": "DENY", "Cache-Control": "no-cache"}


def add_pages(app: FastAPI) -> None:
    """Add the routes of the console's files and of `/docs`."""
    for address, (name, media_type) in CONSOLE.items():
        app.add_api_route(address, _file((BUNDLE / name).read_bytes(), media_type), include_in_schema=False)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(app.openapi(), str(request.base_url).rstrip("/")))


def _file(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    """Return a route that answers with a file."""

    async def file() -> Response:
        return Response(content, media_type=media_type, headers=KEPT_APART)

    return file
