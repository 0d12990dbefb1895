"""What exists: tenants, products, components and topics, their settings, retention and compaction.

In reading order::

    changes         The records of the catalog journal
    tree            Tenants, products and components, and the settings that topics below them inherit
    topics          Topics: what the catalog journal says exists, and the open logs of each
    pages           Pages of a list: what a search finds, a limited number at a time
    topic_requests  Topics opened, created, altered, deleted, and the parts that hear of it
    place_requests  Tenants, products and components created, shown, given settings, deleted
    retain          Retention: which files and subscriptions go, and who hears of it
    pack            Small segments of closed files, packed in the background
    compact         Compaction of state topics: which shards are due, and by hand
"""
