"""Commands that move messages.

In reading order::

    produce       ``headpond produce``: each line of stdin is a message
    consume       ``headpond consume``: messages on stdout, acknowledged once they are printed
    refill        ``headpond refill``: messages that producers spilled to this disk
    refill_files  which refill files an argument means, and what each of them holds
"""
