"""The node's rules, with no sockets, threads or clocks: bytes and completions in, effects out.

In the order a message meets them: session (one connection), producing, admission (duplicate, gap, conflict),
typed_blocks and decoders (a typed topic's rows), marks and log (what is stored), commits (nothing is said
before its sync), consuming, subscription and cursor (who gets what), unacked_log and schedule (when refused
ones come again), settlement (what became of it). book and entry_tally count it all, ledger draws it up. Of
state topics: state_starts and state_scan (what is current), compacting, compaction and log_rewrite (what was is
taken out), in steps of long_work. fetching reads by position. topics and requests are the administration; node
holds them together.
"""
