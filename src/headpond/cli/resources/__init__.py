"""Commands about the things that a node keeps.

In reading order::

    settings  ``SETTING=VALUE`` on the command line, and the table of settings with their origin
    topic     ``headpond topic``
    places    ``headpond tenant|product|component``: the same commands for three levels
    producer  ``headpond producer``: names registered at a topic; ``headpond writer``: writers of staged batches
    sub       ``headpond sub``: subscriptions; ``headpond dead``: messages that failed too often
    token     ``headpond token``: who may do what at a node; ``headpond log``: who did what
    peer      ``headpond peer``: links to other nodes
    context   ``headpond context``: URL and token of a node under a name, on this machine
"""
