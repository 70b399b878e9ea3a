"""Backups of a pipeline: made while it runs or is stopped, listed, checked, and gone back to.

manifests   what a backup holds, which there are, whether every checksum is right
making      pin every file at one moment, copy what was pinned, check it, name it
process, child      making one beside a running service, in a process of its own
restoring   a data folder out of a backup
commands    `coordinator backup`, `backups`, `restore`
"""
