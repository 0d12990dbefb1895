"""The log of one shard: its bytes, and how it is written, read, recovered and compacted.

In reading order::

    format        the bytes of the files of a log
    book          the ledger's counts of each block
    marks         which segments of each block the shard has admitted
    incarnations  which runs of the node wrote which entries
    index         sparse index of a file: entry and time to offset
    read          checked reads of durable records: walk, View, FileView, LogReader
    segments      finds an admitted segment that a sender sends again; lists segments for links between nodes
    rewrite       writes closed files again: without superseded rows, with small segments packed
    recover       opens a log: replays the last file, reads the heads of the others
    batch         the records of one write, with what undoes them
    shard_log     ShardLog: append, take, committed or failed, read
    latest_rows   the latest row of every key
    pack          packs the small segments of one closed file
    compact       one pass of compaction over a shard of a state topic
    retention     decides which files of a log may be deleted
"""
