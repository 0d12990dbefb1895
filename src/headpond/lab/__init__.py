"""Pipes under faults: a deterministic run of any composed route, and what came out of it.

Reading order: faults (what goes wrong), route (the machines of a route and who talks to whom), link (packets on
their way), world (the event queue), measure (R, UR, orders, latency), predict (what the calculus expects), run.

The same route, faults and seed give the same run to the last byte of its trace: there is no clock here, and
all chance comes from one seeded generator.
"""
