"""R, UR, orders and composition: what a route promises, computed in exact fractions.

In reading order::

    orders        The four orders of received indices, and how they relate
    delivery      R and UR, the delivery modes, and the laws by which deliveries combine
    declaration   What a pipe says about itself: the tables of the pipes directory as data
    declarations  One declaration for each pipe, taken from the pipes directory
    route         The text of a route: pipes from the innermost out, ``resend_many(window=64) | dedup | index`
    composition   Which pipes can stand over which: what cannot be built is refused before anything is promise
    channel       The channel beneath a route: what it does to one packet, as rates, and what else may happen
    copies        How many copies a hop makes of one message: the whole distribution, as its generating functi
    carried       What a route carries up to some pipe, and what one more pipe makes of it
    promise       The end-to-end promise of a composed route: declarations and copies folded pipe by pipe
    chain         Routes in a row, ``A -> B``: a relay between them is the receiver of the one and the sender
    interval      What a measured run says about R and UR, and whether it agrees with what was computed
"""
