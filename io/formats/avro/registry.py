"""Schemas by number, read over HTTP from a schema registry of Confluent's API.

A number means one schema for ever, so schemas are cached. A registry that is away, or does not know a number, is no
property of the message: it may know the number later. So the step is tried again, because each replay must read the
same rows. Source: Confluent's documentation of the Schema Registry API and of the wire format.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from dbsp.errors import AwayError, ConfigError

TIMEOUT_S = 20.0
LOOK_S, LOOK_EVERY_S = 2.0, 1.0
"""In seconds: the longest wait for the check that the registry answers, and the time between two checks."""
SERVER_ERRORS = 500
_HINT = "see that the registry runs, that `registry` in [input] names it, and that it has all schemas of the topic"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, and the schemas that it refers to by name; those precede it."""

    kind: str
    schema: Any
    definitions: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a schema registry; `login` is "name:password"."""

    url: str = field(repr=False)
    login: str | None = field(default=None, repr=False)

    def schema(self, number: int) -> RegisteredSchema:
        """Read the schema of this number.

        **Errors** `AwayError` if the registry does not answer or does not have it; `ConfigError` if it refuses the
        login.
        """
        found = self._ask(f"/schemas/ids/{number}")
        definitions = [part for reference in found.get("references") or () for part in self._referred(reference)]
        kind = found.get("schemaType", "AVRO")
        return RegisteredSchema(kind, json.loads(found["schema"]) if kind == "AVRO" else None, tuple(definitions))

    def _referred(self, reference: dict[str, Any]) -> list[Any]:
        found = self._ask(f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}")
        inner = [part for further in found.get("references") or () for part in self._referred(further)]
        return [*inner, json.loads(found["schema"])]

    def _ask(self, path: str) -> dict[str, Any]:
        import httpx  # noqa: PLC0415 - only who reads Avro needs it

        name, _, password = (self.login or "").partition(":")
        try:
            answer = httpx.get(
                self.url.rstrip("/") + path, auth=(name, password) if self.login else None, timeout=TIMEOUT_S
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AwayError(f"the schema registry cannot be asked: registry={self.url} error={error}", _HINT) from error
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"the schema registry refuses the login: registry={self.url} status={answer.status_code}",
                'set `registry_login = "name:password"` in [input], or DBSP_INPUT_REGISTRY_LOGIN',
            )
        try:
            found = answer.json()
            if answer.is_success and "schema" in found:
                return dict(found)
        except ValueError:
            pass
        raise AwayError(
            f"the schema registry does not have the schema: registry={self.url} path={path} status={answer.status_code}",
            _HINT,
        )


class SchemasAtHand:
    """A check, at most every `LOOK_EVERY_S`, that a registry answers.

    Rows are accepted into a step only while the registry answers, because a logged step needs the schemas of all its
    messages.
    """

    def __init__(self, registry: Registry) -> None:
        """Store the registry; the first check connects."""
        self._registry = registry
        self._client: Any = None
        self._asked_at = 0.0

    def refuse_away(self) -> None:
        """Return if the registry answers, whatever the answer is, except a server error.

        **Errors** `AwayError` if it does not answer.
        """
        import httpx  # noqa: PLC0415 - only who reads Avro needs it

        now = time.monotonic()
        if self._client is not None and now - self._asked_at < LOOK_EVERY_S:
            return
        self._client = self._client or httpx.Client(timeout=LOOK_S)
        try:
            answer = self._client.get(self._registry.url.rstrip("/") + "/schemas/types")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.close()  # the next client reads certificates again
            raise AwayError(
                f"the schema registry does not answer: registry={self._registry.url} error={error}", _HINT
            ) from error
        if answer.status_code >= SERVER_ERRORS:
            raise AwayError(
                f"the schema registry is out of order: registry={self._registry.url} status={answer.status_code}", _HINT
            )
        self._asked_at = now

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
        self._client = None
