"""What a route promises: R, UR and order, computed in exact fractions.

In reading order::

    orders        the four orders of received indices, and how they relate
    delivery      how many copies a hop makes of one message, R and UR, and the channel beneath a route
    declarations  what each pipe needs, keeps, gives and tolerates
    route         the text of a route, ``resend_many(window=64) | dedup``, and which pipes can stand over which
    flow          the flow of copies up to some pipe, and the effect of one more pipe
    promise       the promise of a route end to end, and of routes in a row with a relay between them
    interval      what a measured run says about R and UR, and whether it agrees with the promise
"""
