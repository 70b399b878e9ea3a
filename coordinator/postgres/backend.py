"""Run the statements of PostgreSQL sessions on separate threads, with the bounds of HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from dbsp.coordinator.http.access_log import AccessLog
from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.http.rates import RateLimiter
from dbsp.coordinator.http.tokens import ADMIN, READ, Tokens
from dbsp.coordinator.postgres.catalog import relations_of
from dbsp.coordinator.postgres.dialect_parts import dialect_parts, readable_relations
from dbsp.coordinator.postgres.follow import SharedReads
from dbsp.coordinator.postgres.query_rows import SentRows, keep
from dbsp.coordinator.postgres.scram import Verifiers
from dbsp.coordinator.postgres.sources import RowSource
from dbsp.coordinator.query.held import HELD_RESULTS, HeldBytes
from dbsp.coordinator.query.process import Stop
from dbsp.coordinator.query.statement import PARAMETERS
from dbsp.coordinator.service import Service


class Backend:
    """The service's interface for PostgreSQL sessions."""

    def __init__(self, service: Service, tokens: Tokens, log: AccessLog | None) -> None:
        """Make the catalogs from the circuit."""
        self.service, self.log = service, log
        config = service.config
        self.database, self.http = config.pipeline.name, config.http
        self.relations: Mapping[str, pa.Table] = relations_of(self.database, readable_relations(service))
        self.held = HeldBytes(HELD_RESULTS * config.query.result_mb_max << 20)
        self.shared = SharedReads(service, self.held)
        self.rates = RateLimiter(config.http.requests_per_s_max)
        at_once = config.query.at_once_max
        hint = "ask again, or raise `at_once_max` in [query]"
        self._queries = Lane("queries", threads=at_once, waiting_max=16 * at_once, hint=hint)
        self.encoders = Lane("results", threads=2, waiting_max=1 << 16)
        self._known: tuple[Tokens, Verifiers | None] = (Tokens(), None)
        self.use(tokens)

    def use(self, tokens: Tokens) -> None:
        """Use these tokens as passwords from now on."""
        if tokens.known != self._known[0].known:
            distinct = tuple(dict.fromkeys(token for token, _ in tokens.known))
            self._known = tokens, Verifiers(distinct) if distinct else None

    @property
    def verifiers(self) -> Verifiers | None:
        """Return the tokens as SCRAM verifiers; None if no password is needed."""
        return self._known[1]

    def may_read(self, token: bytes) -> bool:
        """Return whether a token has a scope that may read."""
        return bool(self._known[0].scopes(token) & {READ, ADMIN})

    async def query(
        self,
        sql: str,
        values: Sequence[tuple[str | None, str | None]],
        session: Mapping[str, str],
        variables: Mapping[str, str],
        *,
        timeout_s: float | None,
        stop: Stop,
        tag: str = "SELECT",
    ) -> SentRows:
        """Return the rows of a SELECT; the caller closes them."""
        action = partial(
            self.service.open_in_dialect, sql, self._dialect(session, variables, values), self.relations,
            timeout_s=timeout_s, stop=stop,
        )  # fmt: skip
        result = await self._queries.run_within(self.service.config.query.timeout_s, action)
        return SentRows(result, self._queries, self.held, tag)

    async def keep(self, rows: RowSource | None) -> None:
        """Read the rest of a query's result into memory, because its client pauses."""
        section = self.service.config.query
        await keep(rows, section.rows_max, section.result_mb_max)

    async def describe(
        self,
        sql: str,
        types: Sequence[str | None],
        session: Mapping[str, str],
        variables: Mapping[str, str],
        stop: Stop,
    ) -> tuple[pa.Schema, list[str]]:
        """Return the columns of a SELECT, and the type names of its parameters."""
        dialect = self._dialect(session, variables, [(each, None) for each in types]) | {"describe": True}
        found = await self._ask(dialect, sql, None, stop)
        metadata = found.schema.metadata or {}
        return found.schema.remove_metadata(), list(json.loads(metadata.get(PARAMETERS, b"[]")))

    def _dialect(
        self, session: Mapping[str, str], variables: Mapping[str, str], values: Sequence[tuple[str | None, str | None]]
    ) -> dict[str, object]:
        return dialect_parts(self.database, self.relations, session, variables, values)

    async def _ask(self, dialect: Mapping[str, object], sql: str, timeout_s: float | None, stop: Stop) -> pa.Table:
        patience_s = self.service.config.query.timeout_s
        action = partial(
            self.service.query_in_dialect, sql, dialect, self.relations, timeout_s=timeout_s, stop=stop
        )  # fmt: skip
        return await self._queries.run_within(patience_s, action)
