"""PostgreSQL's protocol: psql, JDBC, SQLAlchemy, Grafana and other clients read the views of a running service.

- `messages`, `connection`: the wire. `scram`: passwords. `rows`, `parameters`: values as bytes.
- `statements`, `copying`, `variables`: the parts of a statement's text. `session`, `running`: the conversation of a
  connection.
- `listen`, `backend`: the sockets, and the service as sessions see it. `catalog`: the relations that tools read.

Statements run by `dbsp.coordinator.query`, as those of HTTP do.
"""
