"""Frame files: how bytes stay true on a disk that tears, lies and rots.

Reading order: disk (the protocol that real disks and their twin implement), frame_file (read, scan),
frame_write (one write and its sync), salvage (reading around bad sectors), seal (what a clean stop leaves),
recovery (the one rule for what a crash leaves), journal and journal_file (records of the catalog and of
settlements, compacted when long), commit_journal (writes of many files, durable with one sync).
"""
