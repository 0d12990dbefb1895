"""The audit: the messages sent compared with those received, one by one.

In reading order::

    figures  both inputs in one form, each message with how often it came, and the sums and shares
    orders   which orders held from the messages sent to those received
    audit    ``audit``, which compares two topics, folders or DataFrames, and its folder of results
    ledger   ``audit_ledger``, which takes a topic's ledger as the sent side
    follow   ``follow``, which audits two topics while they grow
"""
