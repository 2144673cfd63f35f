"""What a lab cluster sees of lite pull: its consumers fit to the cluster, and their journals show what came twice."""

from dejamq import Message
from dejamq_lab import Cluster
from lite_cluster import bodies, poll_count


async def test_what_was_polled_twice_is_found_with_both_deliveries() -> None:
    """Cause O18: handed out, and never committed."""
    async with Cluster(topics={"orders": 1}, time_scale=0.05) as cluster:
        async with cluster.producer("p") as producer:
            for body in (b"a", b"b", b"c"):
                await producer.send(Message("orders", body))
        one = cluster.lite_pull_consumer("g", auto_commit=False)
        one.subscribe("orders")
        async with one:
            assert await poll_count(one, 2) == ["a", "b", "c"]
            await one.commit(dict.fromkeys(one.assignment, 1))
        assert await cluster.duplicates("g") == []
        two = cluster.lite_pull_consumer("g")
        two.subscribe("orders")
        async with two:
            assert await poll_count(two, 2) == ["b", "c"]
            assert bodies(await two.poll(0)) == []
        found = await cluster.duplicates("g")
        assert [(pair.identity, pair.first.boot_id, pair.second.boot_id) for pair in found] == [
            ("I1", one.boot_id, two.boot_id)
        ] * 2
