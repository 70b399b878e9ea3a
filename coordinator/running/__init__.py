"""The execution of decisions: the event loop, which carries out the machine's commands on one thread, and its status.

| module | contents |
| --- | --- |
| `event_loop`, `command_runner` | the loop; the execution of one command |
| `moves`, `warmups` | the progress of a migration or a warm-up |
| `control` | the durable ledger |
| `blame` | the input offsets of rows that failed |
| `clock` | the time, and waiting |
| `notices`, `observers` | events in the service, and their receivers: metrics, `events_log` |
| `status`, `progress`, `time_text`, `live_line` | the texts and values for users |
"""
