"""Pipes under faults: a deterministic run of any route from a seed, compared with the calculus.

In reading order::

    faults   What goes wrong in a run: on the links between workers, and to the workers themselves
    link     Packets on their way: what a link makes of each message in them
    route    The workers of a route and who talks to whom
    world    The event queue: simulated time, who acts when, and crashes
    measure  What came out of a run: R, UR, orders, latency, with what the run's size allows to say about them
    run      One run of a route under faults, from a seed: ``run(route, faults, messages, seed)``
    predict  What the calculus expects of a run, and whether what was measured agrees
"""
