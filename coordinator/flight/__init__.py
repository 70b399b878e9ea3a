"""Arrow Flight SQL: ADBC and JDBC clients read the views of a running service as Arrow batches.

- `section`: the settings. `gate`: the socket, TLS and the bound on connections. `access`: tokens. `server`: the calls.
- `messages`: the protocol's messages. `statements`: SQL with its parameters, as clients hold it. `metadata`: catalogs.
- `results`: the rows of a statement.

Statements run by `dbsp.coordinator.query` in PostgreSQL's dialect, as those of `dbsp.coordinator.postgres` do.
"""
