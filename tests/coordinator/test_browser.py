"""Web pages in a real browser: those of other origins reach nothing, under whatever name they come; our own works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.service import Service
from tests.coordinator.shop import answering, settings

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
REASON = "no browser: install Debian's chromium"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)
ATTACK = """<!doctype html><title>waiting</title><pre id=story></pre><img src="{url}/v1/views">
<iframe name=hidden></iframe>
<form id=f target=hidden method=post enctype=text/plain action="{url}/v1/tables/orders/rows">
<input name='{{"id": 2, "customer": "form", "amount": 1, "x": "' value='"}}'></form>
<script>
const row = '{{"id": 1, "customer": "page", "amount": 700}}';
const asks = [
  ["no-cors push", "{url}/v1/tables/orders/rows", {{method: "POST", mode: "no-cors", body: row}}],
  ["no-cors stop", "{url}/v1/stop", {{method: "POST", mode: "no-cors"}}],
  ["push", "{url}/v1/tables/orders/rows", {{method: "POST", body: row}}],
  ["read", "{url}/v1/views/per_customer", {{}}],
];
(async () => {{
  document.getElementById("f").submit();
  for (const [name, url, options] of asks) {{
    let story;
    try {{ const answer = await fetch(url, options); story = answer.type + " " + answer.status; }}
    catch (error) {{ story = "failed"; }}
    document.getElementById("story").textContent += name + ": " + story + "\\n";
  }}
  document.title = "done";
}})();
</script>"""


@contextmanager
def page(text: str) -> Iterator[str]:
    """A server of another origin with one page; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def shown(url: str, folder: Path, *, names: str = "") -> str:
    """What a browser shows of a page when its scripts have run; `names` lead to this host."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000",
        "--run-all-compositor-stages-before-draw", "--dump-dom", url,
    ]  # fmt: skip
    if names:
        command.insert(1, f"--host-resolver-rules=MAP {names} 127.0.0.1")
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.soak
def test_a_page_of_another_origin_reaches_nothing(folder: Path, tmp_path: Path) -> None:
    with Service(settings(folder, "http.access_log=access.log")) as service, answering(service) as client:
        with page(ATTACK.format(url=str(client.base_url).rstrip("/"))) as url:
            dom = shown(url, tmp_path)
        status = client.get("/v1/status").json()
    assert "<title>done" in dom, dom
    for what in ("no-cors push", "no-cors stop", "push", "read"):
        assert f"{what}: failed" in dom, "the page cannot even read that it was refused"
    assert (status["state"], status["rows_in"], status["lag_rows"]) == ("Running", 0, 0)
    lines = map(json.loads, (folder / "access.log").read_text().splitlines())
    met = {(line["method"], line["path"], line["status"]) for line in lines} - {("GET", "/v1/status", 200)}
    assert {status for _, _, status in met} == {403}, met
    sent = {
        ("POST", "/v1/tables/orders/rows"),
        ("POST", "/v1/stop"),
        ("GET", "/v1/views/per_customer"),
        ("GET", "/v1/views"),
    }
    assert {(method, path) for method, path, _ in met} >= sent, "all of it was sent"


@pytest.mark.soak
@pytest.mark.parametrize("name", ["rebound.example", "a{b.example", "localhost.rebound.example"])
def test_a_name_that_leads_here_is_refused(client: httpx.Client, tmp_path: Path, name: str) -> None:
    """What a page gets whose name was bound to this host after it was loaded: it has our origin, and its own name."""
    dom = shown(f"http://{name}:{client.base_url.port}/v1/status", tmp_path, names=name)
    assert "not a loopback host name" in dom, dom
    assert "Running" not in dom


def test_the_main_page_of_the_console(client: httpx.Client, tmp_path: Path) -> None:
    """Every other page is in `tests/coordinator/test_console.py`, which needs Node."""
    rows = [{"id": number, "customer": "a", "amount": 700} for number in range(5)]
    client.post("/v1/tables/orders/rows", json=rows, params={"wait": "true"}).raise_for_status()
    dom = shown(str(client.base_url), tmp_path)
    assert "<title>Overview · shop</title>" in dom, dom
    assert '<span class="badge good">Running</span>' in dom
    pages = re.findall(r'href="#/([a-z]+)"', dom[dom.index('<nav id="pages"') : dom.index("</nav>")])
    assert pages == [
        "overview", "dataflow", "tables", "views", "sql", "letters", "checkpoints", "workers", "logs", "settings"
    ]  # fmt: skip
    tiles = dict(re.findall(r'<div class="tile[^"]*"><span class="soft">([^<]*)</span><b>([^<]*)</b>', dom))
    assert tiles.keys() == {
        "Rows in a second", "Changes a second", "Latency", "Waiting rows", "State", "Dead letters", "Errors"
    }  # fmt: skip
    assert (tiles["Waiting rows"], tiles["Errors"]) == ("0", "0")
    assert re.fullmatch(r"[\d.]+ (s|ms|µs)", tiles["Latency"])
    assert dom.count('<figure class="chart">') == 6
    assert "Rows processed since this start</dt><dd>5</dd>" in dom
