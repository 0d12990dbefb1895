"""Who may do what: rights, tokens, quotas, and the log of administration.

In reading order::

    rights     What every operation and every frame asks for, in one table; and the decision
    tokens     Tokens: who may come in, kept in a journal of their own
    admin_log  The log of administration: who did what, when, and what came of it. The latest are kept; older
    quotas     Quotas of tenants: rates slow a connection down; what there are too many of is refused for a wh
    guard      The guard: lets clients in, ends their connections when their token does, and judges what they
    requests   Tokens made, listed, shown and revoked; what a client may do; the log of administration, read
"""
