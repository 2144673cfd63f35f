"""What Java is told for a session that computes little."""

import pytest
from pyspark.sql import SparkSession

MIB = 1 << 20


@pytest.mark.spark
def test_a_quick_sessions_java_has_room_for_the_code_of_many_audits(spark: SparkSession) -> None:
    """With 48 MiB, what Java keeps for its quick compiler alone, it ended some hundred audits later."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    rooms = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    assert sum(rooms) >= 200 * MIB
