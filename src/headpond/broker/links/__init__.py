"""Links between nodes: both ends' decisions about records, subscriptions and positions.

In reading order::

    link_table     What a node remembers of its links, in a journal of its own
    status         What a link does now, for people: its state, its topics, what it carried. Kept in memory al
    stream         One shard of a topic on its way from a source to a sink: what to ask next, what to fetch, w
    source         A node that others take from: which topics there are, how far they reach, and what stands i
    sink           A node that takes what stands in another's log: stored records, admitted by the marks that
    positions      Where segments that another node names stand in the own log: block and number in, entries o
    follow_source  A node whose subscriptions are followed: which there are, and what became of their entries,
    follow_sink    A node that has passive copies of another's subscriptions: made, kept up to date, promoted
    requests       Links between nodes: made and removed, asked about, and what both ends of one have to decid
"""
