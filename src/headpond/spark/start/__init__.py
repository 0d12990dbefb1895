"""A Spark session that starts anywhere: its Java, its packages, its classes prepared.

In reading order::

    java          The Java that runs Spark: the machine's own if it will do, else the one that pip installed
    packages      What Spark needs in Python, here and in its workers, told in one sentence where it is not th
    registration  What a session must know so that ``format("headpond")`` runs in the right Python, here and o
    prepared      What ``headpond spark prepare`` made, found again at the start of a session
    session       ``headpond.spark.session()``: a Spark session that starts where only pip was used, and is qu
    preparing     ``headpond spark prepare``: makes the file that Spark's classes are mapped from (prepared.py
    rehearsal     A session that uses a little of everything, so that Java writes down which classes that take
"""
