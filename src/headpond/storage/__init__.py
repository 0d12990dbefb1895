"""Bytes that survive: disks, frame files and their recovery, journals, and commits that share a sync.

``log`` holds the log of a shard. Only ``os_disk`` and ``folder_lock`` touch the machine.

In reading order::

    disk            The Disk protocol: all that the node asks of storage, small enough for a twin in memory
    os_disk         The real disk: the Disk protocol over a folder of the machine
    memory_disk     The disk's twin in memory: it knows what is durable and what is not, and fails to order
    folder_lock     A folder that one process at a time uses: ``flock`` on the file ``lock`` in it
    frame_file      Frame files: reading and scanning; and finding the way back behind bytes that are no frame
    frame_write     One write of staged frames: the only part of a log or a journal that touches the disk whil
    recovery        The one recovery rule of every frame file that is appended to and synced
    seal            The seal: how long every file was when the node stopped cleanly. Version 1
    journal         Journals: small records that say what changed, replayed when a node starts
    commit_journal  The commit journal: writes of many files, durable with one sync. Version 1
    commit_lane     A lane: one journal and those who wait for its sync
    commit_rounds   Rounds: what many busy logs have staged becomes durable with one sync
    journal_table   Something small that is kept whole in memory and in a journal of its own: opened, changed,
    long_work       Work on files that takes long: done in steps by a worker thread, so that no sync has to wa
"""
