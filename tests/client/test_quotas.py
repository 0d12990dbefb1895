"""A rate over a real node: the producer is slowed down, and nothing is lost or refused."""

from __future__ import annotations

import time

import headpond
from tests.client.reading import values_at
from tests.fire.real_node import RealNode


async def test_a_producer_over_its_rate_is_slowed_down_and_delivers_all(node: RealNode) -> None:
    async with headpond.connect(node.url) as client:
        await client.admin.create_tenant("acme", settings={"tenant_bytes_s": "1MiB"})
        async with client.producer("acme/a/b/c", refill=None, batch_bytes=20_000) as producer:
            began = time.monotonic()
            for number in range(200):
                producer.post(b"%03d" % number + bytes(10_000))
            await producer.flush()
            took_s = time.monotonic() - began
        # Of 2 MB all but what one read of the socket brings is waited for; a slow machine only adds to it.
        assert took_s > 0.5
        tenant = await client.admin.show_tenant("acme")
        assert tenant.quota_slowed > 0 and tenant.quota_refused == 0
        assert (producer.stats.stored, producer.stats.rejected) == (200, 0)
    assert [int(value[:3]) for value in await values_at(node.url, "acme/a/b/c")] == list(range(200))
