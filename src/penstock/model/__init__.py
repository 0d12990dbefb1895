"""Values that everyone shares. They hold no IO and know nothing above them.

Reading order: errors, address, topic, identity, ranges, message, receipt.
"""
