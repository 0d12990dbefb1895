"""Links between nodes: both ends' decisions about records, subscriptions and positions.

In reading order::

    link_table     What a node remembers of its links, in their journal
    progress       How far the shards of this node have those of others; how long logs remember blocks
    status         What a link does now, for people
    stream         One shard of a topic on its way from a source to a sink: what to ask and to fetch next
    source         A node that others take from: its topics, how far they reach, the heads of their records
    sink           A node that takes records from another's log
    positions      Where segments that another node names stand in this node's log
    follow_source  A node whose subscriptions are followed: what became of their entries
    follow_sink    A node that has passive copies of another's subscriptions
    requests       Links created, shown and removed; the operations of both ends
"""
