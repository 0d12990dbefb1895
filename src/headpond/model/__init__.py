"""Values that every layer shares: names, messages, identities, ranges, and the catalogue of errors. No IO.

In reading order::

    identity        Who a message is: assigned by its producer, the same on every path and every node
    message         A message as a consumer sees it
    receipt         What became of a message that was sent, per destination
    names           Topic names: ``tenant/product/component/topic``; a bare name lives in ``default/default/de
    address         Where a node listens: ``headpond://HOST:PORT``, several with commas between, or a list of
    ranges          A set of whole numbers kept as sorted, disjoint, half-open ranges
    entry_set       A set of entries as a compressed bitmap: a million of them, in any pattern, cost a few hun
    policy          The redelivery policy of a subscription: one object, whose effective values are echoed to
    topic_settings  The settings of topics, and how they are inherited: topic, else component, product, tenant
    grant           What somebody may do: rights, over scopes, perhaps under one name alone
    ledger          The ledger's arithmetic: accounts of producers and subscriptions, whether they balance, R
    bounds          Bounds of what comes from outside, declared once, as the types of the fields that hold it
    errors          The catalogue of errors: what happened, to what, and what to do next
"""
