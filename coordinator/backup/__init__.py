"""Backups of a pipeline: made while it runs or is stopped, listed, checked, and restored.

The modules:

    manifests       the content of a backup, the list of backups, and the check of every checksum
    making          pin every file at one moment, copy the pinned files, check the copy, name it
    process, child  make a backup while a service runs, in a process of its own
    restoring       make a data folder out of a backup
    copied          list, check and delete checkpoints among the copies
    from_copies     make a data folder out of a checkpoint among the copies
    commands        `coordinator backup`, `backups`, `restore`
"""
