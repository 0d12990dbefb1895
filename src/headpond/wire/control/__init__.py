"""The conversation between a client and a node: one struct per message, msgpack by position.

In reading order::

    operation  what an operation declares: fields, answer, rights
    greeting   HELLO, WELCOME, PING, PONG and ERROR
    catalog    topics, the places that hold them, and their settings
    producing  producers: registration, leases, and the answers to segments
    consuming  subscriptions: consuming from them and administering them
    reading    reading by position, without a subscription
    staging    staged writes
    access     tokens, rights, and the audit log of administration
    ledger     the ledger of a topic
    status     the node's counters, and totals for rates
    backup     backups of a running node
    links      links between nodes, and the subscriptions that they copy
    codec      the table of frame types, encoding and decoding
"""
