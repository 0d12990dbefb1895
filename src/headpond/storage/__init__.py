"""Makes bytes survive: disks, frame files and their recovery, journals, and commits that share one sync.

``log`` is the log of a shard. Only ``os_disk`` and ``folder_lock`` touch the machine.

In reading order::

    disk            the Disk protocol: everything that the node asks of storage; reads around bad sectors
    os_disk         the real disk: a folder of the machine
    memory_disk     the disk in memory: knows which bytes are durable, and fails on request
    folder_lock     lets one process at a time use a folder
    frame_file      scans a file of frames, and finds the next frame behind bad bytes
    append          the append engine: a batch of frames, its write and sync, the durable end, failure
    recovery        the recovery rule of every frame file: what is damaged, what is a torn tail
    seal            the length of every file at a clean stop
    commit_journal  the bytes of writes to many files, durable with one sync
    commit_lane     the queue of waiters of one log or journal: group commit
    commit_rounds   decides which logs share a sync, and checkpoints the commit journal
    journal         records that say what changed, replayed at the start; tables with a journal behind them
    long_work       long jobs on files, run in steps by a worker thread
"""
