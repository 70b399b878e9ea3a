"""A schema registry on a free port, as far as Confluent's client and ours ask."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Registry:
    """Schemas by number; further answers by path; `login`: the header that is wanted."""

    schemas: list[str] = field(default_factory=list)
    answers: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    login: str = ""
    url: str = ""

    def answer(self, path: str) -> tuple[int, Any]:
        if path in self.answers:
            return self.answers[path]
        number = int(path.rpartition("/")[2].partition("?")[0]) if path.startswith("/schemas/ids/") else 0
        if 0 < number <= len(self.schemas):
            return 200, {"schema": self.schemas[number - 1]}
        return 404, {"error_code": 40403, "message": "not found"}

    def register(self, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1


@contextmanager
def registry(held: Registry | None = None, port: int = 0) -> Iterator[Registry]:
    """It answers while the block runs."""
    found = held or Registry()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = not found.login or self.headers.get("Authorization") == found.login
            self._say(*(found.answer(self.path) if allowed else (401, {})))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = found.register(asked["schema"])
            self._say(
                200, {"id": number, "version": number, "subject": self.path.split("/")[2], "schema": asked["schema"]}
            )

        def _say(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield found
        finally:
            server.shutdown()
