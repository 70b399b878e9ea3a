"""The service around the engine: it decides when to step, checkpoint, rescale, recover and stop, and serves the results.

The modules and packages:

    decisions                 decisions, apart from actions: events in, commands out; no clock, no I/O running
    the loop that carries out the commands, one at a time, on one thread; ledger, status, notices service, serving,
    serve   the loop with its circuit, logs and runtime: the Python interface, and `dbsp-coordinator` rows_in
    pushed rows admission                 the bound on waiting rows answers                   the results that the
    service returns address                   the address that the service writes for commands to find http, query
    the interfaces for others config, worker_resources, build, layouts, limits, strategies   from pipeline.toml to a
    service preflight                 check which version of dbsp may continue from here upgrades, upgrading
    another version of dbsp under a running pipeline standby, successor, launcher   a second process that takes over
    from the coordinator: after its end, or in an upgrade evolving                  a changed circuit over the state of
    the previous one systemd                   notices to systemd doctor                    read every file, and report
    the broken ones backup                    copy the files of a pipeline, and restore them cli, commands, exits
    `coordinator`, the two console scripts, their exit codes children                  processes for a task
"""

if __name__ != "dbsp.coordinator":
    raise ImportError(
        f"this package is dbsp.coordinator, but was imported as {__name__}: a second copy of every class would be made"
    )
