"""A Spark session that starts anywhere: its Java, its packages, its class cache.

In reading order::

    session         ``headpond.spark.session()``, which starts where only pip was used and knows the format
    java            the Java that runs Spark: the machine's, else the one that pip installed
    packages        checks of the Python packages, here and in the workers
    class_cache     ``headpond spark prepare``: Spark's classes in a file that Java maps into memory
    class_recorder  the program that records which classes a session loads
"""
