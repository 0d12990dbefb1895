"""What Spark looks for: a package named ``pyspark_*`` whose ``DefaultSource`` it registers by itself.

With headpond installed, ``format("headpond")`` works in any session, also one that headpond did not make.
"""

from headpond.spark.format import HeadpondSource as DefaultSource

__all__ = ["DefaultSource"]
