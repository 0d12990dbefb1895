"""The conversation between a client and a node: one struct per message, msgpack by position.

In reading order::

    greeting   The part of the conversation that begins and ends it: HELLO, WELCOME, and ERROR
    catalog    The part of the conversation that is about the tree of topics, inherited settings and registere
    consuming  The part of the conversation that is about subscriptions: consuming, and looking after them
    reading    The part of the conversation that is about reading by position, without a subscription
    staging    The part of the conversation that is about staged writes
    access     The part of the conversation that is about tokens, rights, and the log of administration
    ledger     The part of the conversation that is about what became of everything: the ledger of a topic
    links      The part of the conversation that is about links between nodes
    following  The part of the conversation in which subscriptions follow their data from one node to another
    codec      The conversation between a client and a node: one struct a frame type, msgpack by position
"""
