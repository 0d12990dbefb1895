"""What exists: tenants, products, components and topics, their settings, retention and compaction.

In reading order::

    changes        The records of the catalog journal: msgpack by position, the tag first. Version 1
    tree           The tree of places: tenants, products and components, and what each says about the topics b
    topics         Topics: what the catalog journal says exists, and the open logs of each
    topic_changes  A change of a topic that is durable, and everybody in memory who has to hear of it
    requests       Administration of the tree: places created, shown, given settings, deleted with everything
    retain         Retention at work: files are dropped, subscriptions told, abandoned ones removed, old block
    compact        Compaction at work: which shards of state topics are due, one look at them every few second
"""
