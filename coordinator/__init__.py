"""The service around the engine: it decides when to step, checkpoint, rescale, recover and stop, and serves the results.

decisions       what is decided, apart from what is done: events in, commands out; no clock, no I/O
running         the loop that carries the commands out, one at a time, on one thread; the ledger; what is told of it all
service, serving, serve  the loop with its circuit, logs and runtime: the Python interface, and `dbsp-coordinator`
rows_in         what is pushed to it; admission: how much may wait; answers: what it returns
address         where it listens, written for commands to find
http, query     how others look in
config, worker_resources, build, layouts, limits, strategies   from pipeline.toml to a service
preflight, upgrades, upgrading     which version of dbsp may go on from here; another one under a running pipeline
evolving        a changed circuit over the state of the one before
doctor          reads every file and says what is broken; `backup`, a folder of its own, copies them and puts them back
cli, commands, exits     `coordinator`, the two commands, what they end with
children        processes for a task
"""

if __name__ != "dbsp.coordinator":
    raise ImportError(
        f"this package is dbsp.coordinator, but was imported as {__name__}: a second copy of every class would be made"
    )
