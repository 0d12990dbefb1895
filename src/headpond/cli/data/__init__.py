"""Commands that move messages.

In reading order::

    produce       ``headpond produce``: a message, or each line of stdin or of a file
    input         what it reads: lines, JSON messages or CSV records, as Arrow batches
    consume       ``headpond consume``: messages on stdout, acknowledged once they are printed
    peek          ``headpond peek``: messages by position, without a subscription
    refill        ``headpond refill``: messages that producers spilled to this disk
    agent         ``headpond agent``: delivers such messages whenever their producers do not run
    refill_files  which refill files an argument means, and what each of them holds
"""
