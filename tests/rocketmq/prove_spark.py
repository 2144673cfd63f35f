"""``python tests/rocketmq/prove_spark.py``: the Spark source of topics reads a real RocketMQ 5.3.3 as it reads dejamq.

Both get the same messages in the same places by RocketMQ's protocol. A batch in many parts, a batch by time, and a
stream that is stopped and started again must have each message once and as it was sent. Afterwards neither server may
have a group, an offset or an event more than before. Part of ``make prove``; needs a JDK and Maven.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "integration"))
sys.path.append(str(Path(__file__).parents[1] / "analytics"))

from dejamq_analytics.spark.session import make_session
from dejamq_analytics.topics import RocketMQDataSource
from dejamq_lab.machines.rocketmq import RocketMQ
from dejamq_lab.rocketmq.programs import server_jars
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.remoting import requests as r
from pyspark.sql import DataFrame, SparkSession
from remoting_wire import a_send, remoting
from topic_cluster import served

TOPIC, QUEUES, READY_S = "lake", 4, 60
COLUMNS = ("queue_id", "queue_offset", "message_id", "keys", "tags", "body", "reconsume_times", "born_timestamp")


async def broker_of(namesrv: str) -> str:
    """Its address, once it has registered."""
    deadline = time.monotonic() + READY_S
    async with remoting(namesrv) as names:
        while time.monotonic() < deadline:
            table = loads_loose((await names.ask(r.GET_CLUSTER_INFO)).body.decode())["brokerAddrTable"]
            if table:
                return str(next(iter(table.values()))["brokerAddrs"]["0"])
            await asyncio.sleep(0.2)
    raise SystemExit(f"no broker has registered at {namesrv} within {READY_S} s")


async def filled(namesrv: str, first: int, count: int) -> None:
    """Messages with numbers from ``first``, queue after queue, one at a time."""
    async with remoting(await broker_of(namesrv)) as broker:
        settings = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "perm": 6, "order": "false"}
        queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicSysFlag": 0}
        assert (await broker.ask(r.UPDATE_TOPIC, topic=TOPIC, **queues, **settings)).code == 0
        for number in range(first, first + count):
            properties = f"UNIQ_KEY\x01K{number}\x02TAGS\x01t{number % 3}\x02KEYS\x01key-{number}\x02"
            body = f"body {number} ".encode() * (1 + number % 50)
            fields = a_send(TOPIC, number % QUEUES, i=properties, j=number % 4, g=1_700_000_000_000 + number)
            answer = await broker.ask(r.SEND_MESSAGE_V2, body, **fields)
            assert answer.code == 0, answer.remark


async def state_of(namesrv: str) -> dict[str, Any]:
    """What somebody would see if the reading left a trace."""
    async with remoting(await broker_of(namesrv)) as broker:

        async def table(request: Any) -> Any:
            return loads_loose((await broker.ask(request)).body.decode())

        moved = await broker.ask(r.GET_MAX_OFFSET, topic="OFFSET_MOVED_EVENT", queueId=0)
        return {
            "groups": sorted((await table(r.GET_ALL_GROUPS))["subscriptionGroupTable"]),
            "offsets": (await table(r.GET_ALL_CONSUMER_OFFSET))["offsetTable"], "events": moved.ext.get("offset"),
        }  # fmt: skip


def rows(table: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.select(*COLUMNS).collect())


def read(spark: SparkSession, namesrv: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(namesrv=namesrv, topic=TOPIC, **options).load()


def streamed(spark: SparkSession, namesrv: str, folder: Path) -> list[tuple[Any, ...]]:
    """What the table has after one more run of the query, to the present end."""
    source = spark.readStream.format("rocketmq").options(namesrv=namesrv, topic=TOPIC, startingOffsets="earliest")
    limited = source.option("maxOffsetsPerTrigger", "300").load().select(*COLUMNS)
    writer = limited.writeStream.format("parquet").option("path", str(folder / "table"))
    writer.option("checkpointLocation", str(folder / "at")).trigger(availableNow=True).start().awaitTermination()
    return rows(spark.read.parquet(str(folder / "table")))


def told(spark: SparkSession, namesrv: str, count: int, folder: Path) -> list[Any]:
    """All that is compared between the servers."""
    asyncio.run(filled(namesrv, 0, count))
    before = asyncio.run(state_of(namesrv))
    began_s = time.monotonic()
    every = rows(read(spark, namesrv, maxRecordsPerPartition="100"))
    print(f"  {len(every)} messages in a batch, {time.monotonic() - began_s:.1f} s", flush=True)
    first = streamed(spark, namesrv, folder)
    middle_ms = int(time.time() * 1000)
    asyncio.run(filled(namesrv, count, count // 2))
    later = rows(read(spark, namesrv, startingTimestamp=str(middle_ms)))
    earlier = rows(read(spark, namesrv, endingTimestamp=str(middle_ms)))
    second = streamed(spark, namesrv, folder)
    assert earlier == first == every, "a batch, a batch by time and a stream differ"
    assert second == sorted(every + later), "the stream did not go on where it was"
    assert [len(every), len(later)] == [count, count // 2], (len(every), len(later))
    assert asyncio.run(state_of(namesrv)) == before, "the reading left a trace"
    return second


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2000, help="in the first round, half as many in the second")
    count = parser.parse_args().messages
    spark = make_session("local[2]", {"spark.sql.shuffle.partitions": "2"}, quick=True)
    spark.dataSource.register(RocketMQDataSource)
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        with served(work / "ours") as here:
            print("dejamq:", flush=True)
            mine = told(spark, here.namesrv, count, work / "mine")
        with RocketMQ(server_jars(), work / "theirs", work / "real", {}) as real:
            print("RocketMQ 5.3.3:", flush=True)
            other = told(spark, real.namesrv, count, work / "other")
    spark.stop()
    print(json.dumps({"messages": len(mine), "same": mine == other}))
    return 0 if mine == other else 1


if __name__ == "__main__":
    sys.exit(main())
