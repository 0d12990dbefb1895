"""What Spark looks for: a package named ``pyspark_*`` whose ``DefaultSource`` it registers by itself.

With penstock installed, ``format("penstock")`` works in any session, also one that penstock did not make.
"""

from penstock.spark.format import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
