"""Frame files: how bytes stay true on a disk that tears, lies and rots.

Reading order: disk (the protocol that real disks and their twin implement), frame_file (append, read,
recover), journal (records of the catalog and of settlements, compacted when long).
"""
