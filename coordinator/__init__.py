"""The service around the engine: it decides when to step, checkpoint, rescale, recover and stop, and serves the results.

Begin with `service` (a pipeline as a Python object) or `serve` (the same as a process), then `build`, `decisions` and
`running`.

| package | contents |
| --- | --- |
| `decisions` | what to do next: a state machine without clock, disk or network |
| `running` | the event loop, which carries out the decisions on one thread; ledger, status, notices |
| `serving` | the interfaces of the service for other threads: push, read, query, follow, rescale |
| `http`, `postgres`, `flight` | these interfaces over the network |
| `query` | SQL over the views, in processes of its own |
| `settings` | `pipeline.toml` as values |
| `checks` | what is checked before a start or while steps run: settings, stored files, user functions, failing steps |
| `takeover` | another process takes over between two steps: a standby, or another version of dbsp |
| `backup` | copies of a pipeline's files, and a pipeline made again from them |
| `client` | the client of a running service: `dbsp.Client` |
| `commands` | `coordinator`, the command line |

| module | contents |
| --- | --- |
| `service`, `serve` | the pipeline as an object, and as the process `dbsp-coordinator` |
| `build`, `worker_resources` | from settings to circuit, plan, logs, ledger and runtime; the files of each worker |
| `layouts`, `evolving` | layouts as values for users; a changed circuit over the state of the previous one |
| `address`, `systemd` | what the process tells others: where it listens, and when it is ready |
| `preparing`, `garbage` | work once after an installation; garbage collection of the commands |
| `children`, `exits` | child processes; errors as lines and exit codes |
| `resetting` | move or delete what a stopped pipeline has stored |
"""

if __name__ != "dbsp.coordinator":
    raise ImportError(
        f"this package is dbsp.coordinator, but was imported as {__name__}: a second copy of every class would be made"
    )
