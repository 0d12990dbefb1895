"""Values that every layer shares: names, messages, identities, ranges, settings, errors. No IO.

In reading order::

    identity        the identity of a message, which its producer assigns
    message         a message as a consumer gets it
    receipt         the outcome of a send, per destination
    names           names of topics and places, scopes of tokens, patterns of topics
    address         the URLs of nodes
    ranges          a set of integers, stored as ranges
    entry_set       a set of entries, stored as a compressed bitmap
    stored_times    when the entries of a log were stored, about
    histogram       how long something took, in Prometheus's buckets
    bounds          the limits of every field that arrives from outside
    policy          the redelivery policy of a subscription
    topic_settings  the settings of topics, and how topics inherit them
    grant           the rights of a token, and their scopes
    ledger          the accounts of producers and subscriptions, and whether they balance
    errors          the catalogue of errors
"""
