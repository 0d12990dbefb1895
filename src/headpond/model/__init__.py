"""Values that everyone shares. They hold no IO and know nothing above them.

Reading order: error, errors (with spark_errors), address, topic, identity, ranges, message, receipt.
"""
