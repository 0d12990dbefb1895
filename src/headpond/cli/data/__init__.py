"""Commands that move messages.

In reading order::

    produce       ``headpond produce``: each line of stdin is a message
    consume       ``headpond consume``: messages on stdout, acknowledged once they are printed
    refill        ``headpond refill``: messages that producers spilled to this disk
    refill_place  which refill files an argument means: a path, a slot, a name, or the first digits of a block
    refill_send   ``headpond refill send``: slot by slot, with progress on a terminal
"""
