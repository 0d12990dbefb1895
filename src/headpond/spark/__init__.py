"""Headpond and Spark: a session that starts anywhere, and the lab's grid.

Reading order: java (which Java runs Spark), packages (what Python needs), registration (which Python plans and
which runs tasks), session, causes (why something failed); prepared, preparing and rehearsal (a faster start);
format (what Spark knows Headpond by), options and connection (what source and sink share), source and its
neighbours (reading), sink and its neighbours (writing); then the lab's sweep: grid (which runs), trial (one
run as a row, in a worker), sweep (all of them on Spark), summary (what they say about each route), surface
(their pictures).

Nothing here loads pyspark before it is used.
"""

from headpond.spark.session import session
from headpond.spark.source_offset import lag

__all__ = ["lag", "session"]
