"""The interfaces of a service, one module for each kind of caller; `dbsp.coordinator.service.Service` has all of them.

core         settings, event loop, live status: what the interfaces share
ingest       rows in
reads        results out
decisions    checkpoint, back up, pause, skip rows, upgrade
rescales     the layout and its changes
"""
