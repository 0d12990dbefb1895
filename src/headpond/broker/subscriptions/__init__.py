"""Messages out, settlements in: who gets which entry, when it comes again, and what became of it.

In reading order::

    entry_tally   The subscription's side of the ledger, for one shard: how entries were settled, and how many
    unacked_log   The unacked log of one shard: refused entries, and what each of them waits for before it is
    cursor        A subscription's place in one shard: which entries are settled, which are out, which come ag
    attachment    A consumer that is attached to a subscription: what it can take, what it holds, how long its
    dispatch      Who gets what: the part of a subscription that its kind decides. This file: everything goes
    shared        Shared subscriptions: several consumers, each message to one of them
    key_shared    Key-shared subscriptions: as shared, but a key has one consumer at a time, and its messages
    subscription  A subscription: a named reader of a topic, durable whether anyone is connected or not
    records       The records of the settlement journal: msgpack by position, told apart by a tag, each of the
    journal       What the settlement journal holds: which subscriptions there are and what became of their en
    settle        What a consumer says became of entries: checked as a whole, then applied as a whole
    subscribe     What a consumer may ask for when it comes, and may say when it leaves; checked before anythi
    losses        Entries that a subscription will not get: damaged, dropped by retention, or expired. It is t
    dead_letters  Messages that were tried too often: a copy goes to the dead-letter topic, and only then they
    consume       Offers out, settlements in: what subscriptions decide becomes frames and journal records
    requests      Administration of subscriptions: created, shown, moved, paused, removed; dead entries offere
"""
