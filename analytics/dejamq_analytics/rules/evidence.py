"""Words and small expressions that the rules share."""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.schema import EVIDENCE


def line(
    event: str | Column, summary: Column, *, process: str | Column = "process", boot_id: str | Column = "boot_id",
    seq: str | Column = "seq",
) -> Column:  # fmt: skip
    """One line of evidence: where in the journals it stands and what it says. Null when there is no such line."""
    name = sf.lit(event) if isinstance(event, str) else event
    named = sf.struct(
        _column(process).alias("process"), _column(boot_id).alias("boot_id"), _column(seq).alias("seq"),
        name.alias("event"), summary.alias("summary"),
    )  # fmt: skip
    return sf.when(_column(seq).isNotNull(), named).cast(EVIDENCE)


def line_of(event: str | Column, summary: Column, told: str | Column) -> Column:
    """As ``line``, of a journal line that is there as a struct with ``process``, ``boot_id`` and ``seq``."""
    whose = _column(told)
    return line(event, summary, process=whose["process"], boot_id=whose["boot_id"], seq=whose["seq"])


def lines(*evidence: Column) -> Column:
    """All that exist, in the order given."""
    return sf.filter(sf.array(*evidence), lambda each: each.isNotNull())


def text(pattern: str, *columns: str | Column) -> Column:
    """``format_string`` that stays readable when a part is null."""
    return sf.format_string(pattern, *[sf.coalesce(_column(c).cast("string"), sf.lit("?")) for c in columns])


def _column(name: str | Column) -> Column:
    return sf.col(name) if isinstance(name, str) else name


def timestamp(wall_us: str | Column) -> Column:
    """Microseconds since 1970 as a timestamp; the session's time zone is UTC."""
    return sf.timestamp_micros(_column(wall_us))


def offset_message_id(host: str | Column, log_offset: str | Column) -> Column:
    """The broker-made id from ``a.b.c.d:port`` and the log offset; null for any other kind of host."""
    parts = sf.regexp_extract_all(_column(host), sf.lit(r"(\d+)"), sf.lit(1))
    octets = sf.concat(*[_hex(sf.get(parts, sf.lit(i)), 2) for i in range(4)], _hex(sf.get(parts, sf.lit(4)), 8))
    is_ipv4 = _column(host).rlike(r"^(\d{1,3}\.){3}\d{1,3}:\d{1,5}$")
    return sf.when(is_ipv4, sf.concat(octets, _hex(_column(log_offset), 16)))


def _hex(number: Column, width: int) -> Column:
    return sf.lpad(sf.hex(number.cast("bigint")), width, "0")


def first_of(*choices: tuple[Column, Column]) -> Column:
    """The value of the first condition that holds, else null."""
    (condition, value), *rest = choices
    chosen = sf.when(condition, value)
    for condition, value in rest:
        chosen = chosen.when(condition, value)
    return chosen


def without_journal(owner: Column) -> Column:
    """Whether the process of these facts has no journal: its lines were made of logs, traces and stores."""
    return sf.coalesce(owner["made_of"] != "", sf.lit(False))
