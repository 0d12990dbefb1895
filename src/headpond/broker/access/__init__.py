"""Who may do what: rights, tokens, quotas, and the log of administration.

In reading order::

    rights     Whether a token allows an operation or a frame
    groups     Whether an operation is for topics of another group of a cluster
    tokens     Tokens, and the journal that has them
    admin_log  The log of administration: who did what, when, with which outcome
    quotas     Quotas of tenants: rates slow a connection down, limits refuse
    guard      Greets clients, ends connections when their token ends, checks every operation
    requests   Tokens created, listed, shown and revoked; the rights of a client
"""
