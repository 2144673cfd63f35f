"""Makes the Spark session of an audit that runs by itself: quiet, local unless told otherwise, few partitions."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dejamq_analytics.sources.interrupts import held_back
from dejamq_analytics.spark import class_archive
from dejamq_analytics.spark.java import java_home

FUNCTIONS = (
    "col", "lit", "coalesce", "struct", "format_string", "when", "not", "array", "get", "hex", "lpad", "max", "min",
    "concat", "concat_ws", "array_max", "filter", "size", "broadcast",
)  # fmt: skip
NAMES_ASKED_FOR = {
    "functions": FUNCTIONS,
    "org.apache.spark.sql.functions": FUNCTIONS,
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": ("unresolvedNamedLambdaVariable", "lambdaFunction", "fn"),
}  # fmt: skip
"""Names that PySpark asks Java for anew with each expression. To find one, Java searches all its archives."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
SETTINGS = {
    "spark.app.name": "dejamq audit",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # an older version of Spark might have left a checkpoint under an encoded name; ours never did
    "spark.sql.streaming.checkpoint.escapedPathCheck.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # else five more calls into Java for each expression
}
JAVA_OPTIONS = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",  # its extra planning rounds cost more than they save on a laptop's journals
}
QUICK_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.files.openCostInBytes": "65536",  # else each small journal is a task of every job
}
QUICK_JAVA_OPTIONS = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""For a few hundred MB of journals the compilers, Spark's and Java's, take longer than the work: 28 s of CPU for the
demo's journals instead of 48 s. With one compiler Java would keep room for 48 MiB of code, which some hundred audits in
one process fill; then it ends. So it has the room that Java keeps for both."""


MAY_BE_ONE = "dejamq.audit.may_be_in_one_place"
LITTLE_AT_ONCE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",  # without a compiler, looking up what is shared takes longer
}
LITTLE_LOCALLY = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # it is written for each step, and nobody reads it
    MAY_BE_ONE: "true",
}


@contextmanager
def for_journals(spark: SparkSession, stores: Sequence[str]) -> Iterator[None]:
    """For the many small steps that the rules are: Spark's compiler takes longer for each than the step.

    Of large journals ``survey`` leaves little to them; commit logs are read whole, so with ``stores`` nothing changes.
    Settings are put back afterwards.
    """
    if stores:
        yield
        return
    local = (spark.sparkContext.master or "").startswith("local")
    wanted = LITTLE_AT_ONCE | (LITTLE_LOCALLY if local else {})
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.unset(name) if earlier is None else spark.conf.set(name, earlier)


def in_one_place(spark: SparkSession) -> None:
    """Of so little, Spark takes longer to hand rows from one partition to another than to work on them. So from here to
    the end of ``for_journals`` there is one (``facts.in_one``). Elsewhere, or on a cluster, nothing changes.
    """
    if spark.conf.get(MAY_BE_ONE, "") == "true":
        spark.conf.set("spark.sql.shuffle.partitions", "1")


def make_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, quick: bool = False
) -> SparkSession:
    """A session on ``master``: spark-submit's own when there is one, else ``local[*]``. Raises NoJava.

    ``quick`` is for small inputs: it starts sooner and computes slower.
    """
    submitted = "SPARK_ENV_LOADED" in os.environ  # spark-submit started the JVM and chose its master
    where = master or (None if submitted else "local[*]")
    local = where is not None and where.startswith("local")
    java_options = JAVA_OPTIONS + (QUICK_JAVA_OPTIONS if local and quick else "")
    if not submitted:
        home = java_home()
        os.environ["JAVA_HOME"] = str(home)
        starts_java = local and SparkContext._gateway is None
        java_options += class_archive.java_options(home, conf or {}) if starts_java else ""
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {**SETTINGS}
    settings["spark.driver.extraJavaOptions"] = java_options
    settings |= {**(LOCAL_SETTINGS if local else {}), **(QUICK_SETTINGS if quick else {}), **(conf or {})}
    if where:
        settings["spark.master"] = where
    if not submitted and SparkContext._gateway is None:
        _start_java(settings)
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    _find_once(spark)
    return spark


def _start_java(settings: Mapping[str, bool | float | int | str | None]) -> None:
    """As PySpark does, but in a session of its own: Ctrl-C in a terminal would end Java's Python workers too, amid
    their tasks. Java ends when this process does, but not when that ends before Java has told of itself: Ctrl-C waits.
    """
    conf = SparkConf(loadDefaults=False).setAll([(name, str(value)) for name, value in settings.items()])
    with held_back():
        java = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=java)


def _find_once(spark: SparkSession) -> None:
    """Names that were found are kept: 30,000 questions fewer an audit."""
    for name, members in NAMES_ASKED_FOR.items():
        found = getattr(spark._jvm, name)
        setattr(spark._jvm, name, found)
        for member in members:
            setattr(found, member, getattr(found, member))
