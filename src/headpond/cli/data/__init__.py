"""Commands that move messages.

In reading order::

    produce       ``headpond produce TOPIC``: a line of stdin a message
    consume       ``headpond consume TOPIC --subscription S``: messages on stdout, settled once they are print
    refill_place  Which refill files a person means: a path, a slot, a file's name, or the beginning of a bloc
    refill        ``headpond refill list|show|send|drop``: what producers keep on this disk for destinations t
    refill_send   ``headpond refill send``: slot by slot, with progress on a terminal
"""
