"""The interfaces of a service, one module for each kind of caller; `dbsp.coordinator.service.Service` combines them.

| module | contents |
| --- | --- |
| `core` | settings, event loop, live status: the parts that the interfaces share |
| `ingest` | pushing rows |
| `rows_in`, `admission` | users' rows as pushes; the bound on waiting rows |
| `letters` | dead letters: listing and replaying them |
| `letter_codes` | the kinds and columns of dead letters |
| `reads` | reading results |
| `queries`, `query_parts`, `query_ranges` | one SELECT over the views, and the rows that it needs |
| `leases`, `pages`, `results` | versions of views held for readers; rows read in portions |
| `answers` | the values that the interfaces return |
| `decisions` | checkpoint, backup, pause, skipping rows, upgrade |
| `rescales` | the layout and its changes |
| `skipping` | going on without rows that halt the pipeline |
"""
