"""The log of one shard: its bytes, and how it is written, read, recovered and compacted.

In reading order::

    format        The bytes of a log's files. Version 1
    book          The producers' side of the ledger, for one shard: what each block announced, and what came o
    marks         Marks: which segments of each block a shard has admitted
    incarnations  Which runs of a node wrote a log: an incarnation each, with the first entry that is its own
    index         Where entries stand in a log file: a sparse list of (entry, stored_at, offset), a binary sea
    walk          Walking through the records of a log file, every checksum checked, around damage where there
    append        What was appended to a log and is not on its disk yet; and the write that takes it there
    read          Checked reads of what is durable in a log
    heads         What stands in a log, without its rows: who sent which segment, and its checksum
    segments      Finding an admitted segment in a log's files, for a sender that sends it again
    replay        Replaying one file of a log onto what is known so far: the marks, the next entry, what is lo
    recover       What a log is when it is opened: its last file read through, the heads of the others, nothin
    shard_log     The log of one topic shard: what was admitted, in order, on disk before anyone hears of it
    latest_rows   Which row of every key is the latest: record batches in, in any order, a set of entries out
    rewrite       Compacting closed files of a state topic's log: one new file with the rows that are still wa
    compact       One pass of compaction over a shard of a state topic: what goes is decided, then files are r
    retention     Which files of a log may go: a decision, made from facts alone
"""
