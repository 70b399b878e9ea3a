"""The interfaces of a service, one module for each kind of caller; `dbsp.coordinator.service.Service` combines them.

| module | contents |
| --- | --- |
| `core` | settings, event loop, live status: the parts that the interfaces share |
| `ingest` | pushing rows |
| `letters` | dead letters: listing and replaying them |
| `reads` | reading results |
| `decisions` | checkpoint, backup, pause, skipping rows, upgrade |
| `rescales` | the layout and its changes |
"""
