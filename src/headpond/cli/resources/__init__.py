"""Commands about things that a node keeps: topics, subscriptions, tokens and the like.

In reading order::

    settings  Settings on the command line: ``NAME=VALUE`` read, and shown with where they come from
    topic     ``headpond topic create|alter|list|show|set|unset|compact|delete``
    places    ``headpond tenant|product|component create|list|show|set|unset|delete``: the same for three leve
    producer  ``headpond producer create|list|show|delete``: names registered at a topic, and who holds them
    sub       ``headpond sub create|list|show|unacked|skipped|seek|pause|resume|promote|delete``
    dead      ``headpond dead list|show|redrive``: messages that were tried too often
    token     ``headpond token bootstrap|create|list|show|revoke``: who may do what at a node
    peer      ``headpond peer add|list|show|remove``: the links of a node to other nodes
    writer    ``headpond writer list|show|delete``: who commits staged batches, and what is staged
    context   ``headpond context add|use|list|show|remove``: nodes by name
"""
