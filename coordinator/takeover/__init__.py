"""Another process takes over a pipeline between two steps.

| module | contents |
| --- | --- |
| `standby`, `lease` | a process that waits until the coordinator is gone; the heartbeats that show it is there |
| `upgrades`, `successor`, `launcher` | another version of dbsp that is ready before the running one stops |
| `proving`, `proof_copies` | finished steps run again by the other version, and compared |
"""
