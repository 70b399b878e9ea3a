"""The service around the engine: it decides when to step, checkpoint, rescale, recover and stop, and serves the results.

machine     decides: events in, commands out; no clock, no I/O
recovery    which version every worker can go back to
cutting     which rows the next step takes
control     the coordinator's own durable ledger
shell       carries the commands out, one at a time, on one thread
service     the shell with its circuit, logs and runtime: the Python interface
http, query, metrics, progress, events_log, answers     how others look in
doctor      reads every file and says what is broken; `backup`, a folder of its own, copies them and puts them back
engines, preflight, upgrades     which version of dbsp may go on from here; another one under a running pipeline
config, site, build     from pipeline.toml to a service
serve, cli, exits       `dbsp-coordinator` and `coordinator`
children, query_process, query_child     processes for a task, and queries in them
address, shown, limits, strategies      what the command line needs of all this, without the engine
"""

if __name__ != "dbsp.coordinator":
    raise ImportError(
        f"this package is dbsp.coordinator, but was imported as {__name__}: a second copy of every class would be made"
    )
