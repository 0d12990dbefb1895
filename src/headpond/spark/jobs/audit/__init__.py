"""The audit: the messages sent compared with those received, one by one.

In reading order::

    sides    both inputs in one form, and each message with how often it was sent and received
    figures  sums and shares, in all and by producer, shard and time
    orders   which orders held from the messages sent to those received
    audit    ``audit``, which compares two topics, folders or DataFrames, and its folder of results
    ledger   ``audit_ledger``, which takes a topic's ledger as the sent side
    follow   ``follow``, which audits two topics while they grow
"""
