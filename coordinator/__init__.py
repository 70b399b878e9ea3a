"""The service around the engine: it decides when to step, checkpoint, rescale, recover and stop, and serves the results.

| modules and packages | contents |
| --- | --- |
| `decisions` | the decisions, separate from actions: events in, commands out; no clock, no I/O |
| `running` | the loop that carries out the commands one at a time, on one thread; ledger, status, notices |
| `service`, `serving`, `serve` | the loop with its circuit, logs and runtime: the Python interface, and `dbsp-coordinator` |
| `rows_in`, `admission` | pushed rows; the bound on waiting rows |
| `answers` | the results that the service returns |
| `address` | the address that the service writes for commands to find |
| `http`, `postgres`, `flight`, `query` | the interfaces for other programs |
| `config`, `build`, `worker_resources`, `layouts`, `limits` | from `pipeline.toml` to a service |
| `preflight` | the check which version of dbsp may continue from here |
| `upgrades`, `upgrading` | another version of dbsp under a running pipeline |
| `standby`, `successor`, `launcher` | a second process that takes over from the coordinator: after its end, or in an upgrade |
| `evolving` | a changed circuit over the state of the previous one |
| `systemd` | notices to systemd |
| `doctor` | the check that reads every file and reports the broken ones |
| `backup` | backups of a pipeline's files, and their restore |
| `cli`, `commands`, `exits` | `coordinator`, the two console scripts, their exit codes |
| `children` | child processes for one task each |
"""

if __name__ != "dbsp.coordinator":
    raise ImportError(
        f"this package is dbsp.coordinator, but was imported as {__name__}: a second copy of every class would be made"
    )
