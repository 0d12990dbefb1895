"""How long the node takes: four histograms of the whole node, for Prometheus.

None has a label for the topic: a histogram is 21 series, so 1,000 topics would make 84,000 of every reading.
Which topic or subscription is slow is seen from its lag and from the age of its oldest message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headpond.model.histogram import Histogram


@dataclass(slots=True)
class Timings:
    sync: Histogram = field(default_factory=Histogram)
    """A write and its sync, of one file or of a round of many logs; in a cluster until the stream has it."""
    publish: Histogram = field(default_factory=Histogram)
    """From the arrival of a segment to its acknowledgement."""
    delivery: Histogram = field(default_factory=Histogram)
    """From the arrival of a segment to its first delivery to a consumer of a subscription."""
    end_to_end: Histogram = field(default_factory=Histogram)
    """From a message's sent_at to its acknowledgement by a consumer, for a sample of the messages. It includes
    the difference between the producer's clock and the node's."""
