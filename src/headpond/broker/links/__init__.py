"""Links: one node copies topics and subscriptions of another. ``node/links`` dials and carries the records.

In reading order::

    link_table     What a node remembers of its links on disk, and how far each shard is copied
    source         The source of a link: its topics, and the heads of their records
    stream         One shard from a source to a sink: heads to read, records to copy, when to rewind
    sink           The sink of a link: admits records by the marks that producers have too
    positions      The entries of segments that another node names
    follow_source  The source of copied subscriptions: what became of their entries
    follow_sink    The sink of copied subscriptions: passive copies, promoted by hand
    status         What people see of a link
    requests       Links created, shown and removed, and the operations of both ends
"""
