"""Requests to services of this host, without what TLS would need: reading the certificates takes longer than any answer."""

from __future__ import annotations

from typing import Any

import httpx


def client(url: str, timeout_s: float | None = 60) -> httpx.Client:
    """A client of one service."""
    return httpx.Client(base_url=url, timeout=timeout_s, verify=False, trust_env=False)


def ask(method: str, url: str, *, timeout_s: float | None = 60, **options: Any) -> httpx.Response:
    """One request, by a connection of its own: the process that answers may be another one each time."""
    with client("", timeout_s) as asking:
        return asking.request(method, url, **options)


def post(url: str, *, timeout_s: float | None = 60, **options: Any) -> httpx.Response:
    """One `POST`."""
    return ask("POST", url, timeout_s=timeout_s, **options)
