"""The pipes as machines without IO: one input and the time go in, effects come out.

In reading order::

    packet      what travels between the two sides of a pipe, and its bytes
    machine     the shape of every machine: inputs, effects, counts, and the step that all sides share
    timeout     how long a sender waits for a confirm before it sends again
    bare        no pipe: send once, pass on every copy; also the sender of index and dedup
    resend      re-send, with one or many unconfirmed messages: at least once
    stream      re-send into a storage, from which the receiver reads: at least once, over restarts
    sequential  each message is confirmed before the next is sent: continuous order
    index       strict monotonic index: late messages and repeats are dropped
    continuous  continuous index: every message once and in order, gaps are asked for
    dedup       each message at most once, by its id
    compose     which machines a route is made of; pipes over pipes, and pipes in a row
"""
