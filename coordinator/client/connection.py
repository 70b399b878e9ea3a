"""The connection of a program to a running service: find the service, check its identity, send requests, raise its errors.

The command line and `dbsp.Client` share it. A service is found by its address, or by `coordinator.json` in the data folder of a
pipeline. In the second case its name and run are compared first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from dbsp.coordinator.client.liveness import (
    ANSWER_S_MAX,
    error_in,
    found_service,
    not_running,
    silent,
    while_it_answers,
)
from dbsp.coordinator.http.identity import Expected
from dbsp.coordinator.http.section import HttpSection
from dbsp.coordinator.http.tokens import load_tokens
from dbsp.coordinator.http.trust import NOT_TRUSTED, connecting, untrusted_reason
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError, UnavailableError

CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The address of a service, or the settings that lead to it, and the token to show there."""

    pipeline: Path
    url: str | None = None
    token: str | None = None
    ca: str | None = None
    met: list[Expected] = field(default_factory=list)
    """The service that was found and checked, as the only element; empty before the first request."""

    def __post_init__(self) -> None:
        """Refuse an address that was given as the settings file; `Path` has turned its two slashes into one."""
        if self.url is None and str(self.pipeline).startswith(("http:/", "https:/")):
            address = str(self.pipeline).replace(":/", "://", 1)
            hint = f'write Client(url="{address}"), or `coordinator --url {address}`'
            raise ConfigError(f"an address was given in the place of a settings file: {address}", hint)

    def ask(self, method: str, path: str, *, at_rest: str | None = None, **options: Any) -> Any:
        """Send a request and return its response as JSON, however long it takes; `at_rest` is the hint if no service runs.

        **Errors** the service's own error; `UnavailableError` if no service runs, or if it stops responding.
        """
        return self.response(method, path, at_rest=at_rest, **options).json()

    def response(self, method: str, path: str, *, at_rest: str | None = None, **options: Any) -> httpx.Response:
        """Send a request and return the whole response; see `ask`."""
        self.meet(at_rest)
        look = partial(self._request, "GET", "/v1/status", at_rest)
        try:
            return while_it_answers(lambda: self._request(method, path, at_rest, None, **options), look)
        except UnavailableError:
            self.met.clear()  # after an upgrade the service may have another address
            raise

    def meet(self, at_rest: str | None = None) -> None:
        """Find the service and check once that it is this pipeline's; a service that is named by its address is not checked."""
        if self.url is not None or self.met:
            return
        config = load_config(self.pipeline)
        expected = found_service(config)
        if expected is None:
            raise not_running(f"{config.data_dir}", at_rest or self._start_hint())
        self.met.append(expected)
        try:
            expected.refuse_other(self._request("GET", "/v1/status", at_rest, ANSWER_S_MAX).json())
        except BaseException:
            self.met.clear()
            raise

    def _request(
        self, method: str, path: str, at_rest: str | None, timeout_s: float | None, **options: Any
    ) -> httpx.Response:
        """Send one request; without `timeout_s` the response may take any time."""
        url, token, section, folder = self._address(method, path)
        headers = {**options.pop("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            with connecting(url, section, folder, self.ca) as session:
                answer = session.request(method, url + path, headers=headers, timeout=timeout, **options)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if (reason := untrusted_reason(error)) is not None:
                raise ConfigError(
                    f"the service's certificate is not trusted: url={url} reason={reason}", NOT_TRUSTED
                ) from None
            raise not_running(url, at_rest or self._start_hint()) from None
        except httpx.ReadTimeout:
            raise silent(url, timeout_s or 0.0) from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ConfigError(f"not an address: url={url} error={error}", "write --url http://host:port") from None
        except httpx.HTTPError as error:
            raise UnavailableError(f"the service stopped answering: url={url} error={error}") from None
        if answer.is_error:
            raise error_in(answer)
        return answer

    def _address(self, method: str, path: str) -> tuple[str, str | None, HttpSection, Path]:
        """Return the service's URL, the token, and the settings [http] with the folder of their files."""
        if self.url is not None:
            return self.url.rstrip("/"), self.token, HttpSection(), Path()
        config = load_config(self.pipeline)
        token = self.token or load_tokens(config.http, config.folder).best(method, path)
        return self.met[0].url, token, config.http, config.folder

    def usual_strategy(self) -> str | None:
        """Return the rescale strategy of the settings; None if only the address is known."""
        return None if self.url is not None else load_config(self.pipeline).layout.strategy

    def home(self) -> Path | None:
        """Return the data folder of the service; None if only the address is known."""
        return None if self.url is not None else load_config(self.pipeline).data_dir

    def _start_hint(self) -> str:
        return f"start it with `dbsp-coordinator {self.pipeline}`; one that was just started answers within a minute"
