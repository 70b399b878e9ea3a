"""The decisions of the coordinator, separate from their execution: no clock, no disk, no network.

| module | contents |
| --- | --- |
| `machine` | the state machine, from events to commands; `rescaling` and `migrating` handle its states while state moves |
| `states` | the states and the facts they carry; `events` and `commands` are the inputs and outputs of the machine |
| `recovery` | the choice of the version that every worker can return to |
| `engines` | the versions of dbsp that may replay a logged step |
| `cutting` | the choice of the rows that the next step reads |
| `limits` | the bounds of one step |
| `strategies` | the ways in which state moves to its new owners |
| `autoscale` | the number of workers |
| `fills` | the backfill step of a changed circuit |
| `lost_hosts`, `moved_workers` | new hosts for the workers of lost hosts and disks |
| `alarms` | the alarms of a service, from the condition of its parts |
"""
