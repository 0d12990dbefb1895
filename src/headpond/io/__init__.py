"""The only sockets, files, clocks and randomness; and their twins in memory.

Disks: os_disk (the real one), memory_disk (the twin that loses, tears and flips bytes to order).
"""
