"""Stage 2: the queue had two owners at once. A disagreement made the second one open it (R1 to R6, R13).

A mere lag of a hand-over is no disagreement: the older owner's next round agreed with the newer one and gave it up, or
the members of one broker had changed by then. Those pairs go on to the stages of one owner after the other. Where the
newer owner delivered first, it had asked before the older one had anything to tell (O8).
"""

from dejamq_analytics.frames import Column
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.evidence import first_of, line, text, without_journal
from dejamq_analytics.rules.stage import Stage, later

CAUSES = ("R1", "R2", "R3", "R4", "R5", "R6", "R13")
CHOSEN = ("manual", "by_config")
"""Strategies by which a program says itself which queues it takes."""
SETTLED_US, LASTING_US = 5_000_000, 25_000_000
"""Clients of RocketMQ are told of new members at once, and allocate every 20 s in any case."""


def stages() -> list[Stage]:
    """In this order: an owner that could not know of the other explains any difference between their rounds."""
    two, held, took, kept = sf.col("contest").isNotNull(), _of("held"), _of("took"), _of("kept")
    older, newer = _of("older"), _of("newer")
    lag, apart = two & _gave_up(), two & ~_gave_up()
    changed = apart & _changed()
    known = held.isNotNull() & took.isNotNull()
    keeps = sf.array_contains(kept["queues"], _of("queue"))
    # an owner that had not heard of the other might have given the queue up when it had
    heard = apart & (kept.isNotNull() | (held["members"] == took["members"]))
    routes = (held["route_digest"] != took["route_digest"]) & ~(changed & _same_route())
    unknown = text(
        "no ASSIGN of %s in force when both had the queue",
        sf.when(held.isNull(), older["process"]).otherwise(newer["process"]),
    )
    silent = text("no ASSIGN of %s after %s had opened the queue", older["process"], newer["process"])
    agree = later("stage 2, two owners whose rounds agree")
    return [
        *_alone(two, older, newer),
        Stage("2", two & ~known, missing=unknown),
        *_told_by_logs(two & known),
        *_overtaken(lag),
        Stage("2", heard & routes, "R1", trigger=_routes()),
        Stage("2", apart & ~changed & keeps & (kept["members"] != took["members"]), "R2", trigger=_members()),
        Stage("2", heard & (held["strategy"] != took["strategy"]), "R3", trigger=_strategies()),
        *_overtaken(changed),
        Stage("2", apart & kept.isNull(), missing=silent),
        Stage("2", apart & ~changed, missing=agree),
    ]  # fmt: skip


def overtook() -> Column:
    """Whether the newer owner delivered first."""
    return sf.coalesce(_of("turned"), sf.lit(False))


def _overtaken(handed_over: Column) -> list[Stage]:
    """The older owner delivered the record after the newer one had, from what it held until its next round.

    Times of logs do not tell who delivered first.
    """
    opened, turned = sf.col("first_queue.opened"), handed_over & overtook()
    asked = text(
        "%s began at %s (%s) before %s was done with it", _of("newer")["process"], opened["start_offset"],
        opened["source"], _of("older")["process"],
    )  # fmt: skip
    faster = later("stage 2, the new owner was faster than the one that was giving up the queue")
    return [
        Stage("f", turned & ~_logged() & (opened["start_offset"] <= sf.col("first.queue_offset")), "O8", trigger=asked),
        Stage("2", turned, missing=faster),
    ]


def _told_by_logs(two: Column) -> list[Stage]:
    """A log has only rounds that changed something, and how many queues and members there were.

    So the owners must have kept the queue through later rounds, and differ in one of these things alone. A later round
    of the older one that keeps it says best how it sees the group.
    """
    took, logged = _of("took"), _logged()
    kept = sf.coalesce(_of("kept")["wall_us"] - _of("newer")["opened_us"] > SETTLED_US, sf.lit(False))
    kept &= sf.array_contains(_of("kept")["queues"], _of("queue"))
    own = sf.when(kept, _of("kept")).otherwise(_of("held"))
    apart = two & logged & (_lasting() | ~_gave_up())
    differ = {
        "R1": own["route_digest"] != took["route_digest"],
        "R2": own["members"] != took["members"],
        "R3": own["strategy"] != took["strategy"],
    }
    alone = sum((each.cast("int") for each in differ.values()), sf.lit(0)) == 1
    said = {"R1": (own["route_digest"], took["route_digest"]), "R2": (_list(own["members"]), _list(took["members"])),
            "R3": (own["strategy"], took["strategy"])}  # fmt: skip
    unknown = text(
        "for long enough that %s and %s differ in one thing alone: their queues (R1), members (R2) or strategies (R3)",
        _of("older")["process"], _of("newer")["process"],
    )  # fmt: skip
    return [
        *[
            Stage("2", apart & (_lasting() | kept) & alone & differs, cause, trigger=_both_said(*said[cause]))
            for cause, differs in differ.items()
        ],
        Stage("2", apart, missing=unknown),
    ]


def _logged() -> Column:
    return without_journal(sf.col("first_owner")) | without_journal(sf.col("second_owner"))


def _lasting(least_us: int = LASTING_US) -> Column:
    """Whether both had the queue for longer than that: it takes no more to hear of one another."""
    older, newer = _of("older"), _of("newer")
    return sf.least(older["ended_us"], newer["ended_us"]) - newer["opened_us"] > least_us


def _both_said(older: Column, newer: Column) -> Column:
    """In what the rounds of both differ."""
    return text("%s had %s, %s had %s", _of("older")["process"], older, _of("newer")["process"], newer)


def _alone(two: Column, older: Column, newer: Column) -> list[Stage]:
    """The older owner's own state says all: another process has its name, or it did not look.

    A pause that nobody noticed explains only what ended with it: an owner that goes on claiming the queue disagrees.
    """
    twice = (older["client_id"] == newer["client_id"]) & (older["boot_id"] != newer["boot_id"])
    name = text("two processes are the client %s", older["client_id"])
    suspended = text("%s was suspended", older["process"])
    frozen = text("%s did not run for %s ms", older["process"], _of("gap")["missing_ms"])
    paused = text("%s was stopped (fault: %s)", older["process"], _of("paused")["kind"])
    left = text("no broker had %s as a member; the last one dropped it by %s", older["process"], _of("left")["reason"])
    both = text("%s and %s chose the queue themselves", older["process"], newer["process"])
    slept, silent = _of("gap").isNotNull(), _of("kept").isNull()
    in_doubt = text("whether a broker still had %s as a member when it stood still (R6)", older["process"])
    settled = ~_logged() | _lasting()
    return [
        Stage("2", two & twice, "R4", trigger=name),
        Stage("2", two & _chosen("held") & _chosen("took"), "R13", trigger=both),
        Stage("2", two & (~_logged() | _lasting(SETTLED_US)) & _of("suspended").isNotNull(), "R5", trigger=suspended),
        Stage("2", two & _of("paused").isNotNull(), "R6", trigger=paused),
        Stage(
            "2", two & (settled | slept) & _of("left").isNotNull(), "R6", trigger=sf.when(slept, frozen).otherwise(left)
        ),
        Stage("2", two & _logged() & slept, missing=in_doubt),
        Stage("2", two & ~_logged() & slept & (_gave_up() | _changed() | silent), "R6", trigger=frozen),
    ]


def _chosen(name: str) -> Column:
    return sf.coalesce(_of(name)["strategy"].isin(*CHOSEN), sf.lit(False))


def _same_route() -> Column:
    return _of("kept")["route_digest"] == _of("took")["route_digest"]


def _gave_up() -> Column:
    """The older owner's next round saw the same queues and left this one to others."""
    return sf.coalesce(_same_route() & ~sf.array_contains(_of("kept")["queues"], _of("queue")), sf.lit(False))


def _changed() -> Column:
    """The members changed between the newer owner's round and the next one of the older: one start of a broker told
    both. Either it had the newer as a member and no more later, or it had both each time and others came or went.
    """
    told, later_told = _of("list_took"), _of("list_kept")
    older, newer = _of("older"), _of("newer")
    left = _has(told, newer) & ~_has(later_told, newer)
    stayed = _has(told, older) & _has(told, newer) & _has(later_told, older) & _has(later_told, newer)
    others = stayed & (told["members"] != later_told["members"])
    return sf.coalesce((told["boot_id"] == later_told["boot_id"]) & (left | others), sf.lit(False))


def _has(told: Column, owner: Column) -> Column:
    return sf.array_contains(told["members"], owner["client_id"])


def hole() -> Column:
    """Rounds of which lines are missing prove nothing: null when none are."""
    held, took, kept, older, newer = (_of(name) for name in ("held", "took", "kept", "older", "newer"))
    first_is_older = ~_of("turned")
    of_older = sf.when(first_is_older, sf.col("first_owner.gaps")).otherwise(sf.col("second_owner.gaps"))
    of_newer = sf.when(first_is_older, sf.col("second_owner.gaps")).otherwise(sf.col("first_owner.gaps"))
    missed = sf.exists(of_older, lambda gap: (gap["last"] > held["seq"]) & (gap["first"] < kept["seq"]))
    blind = sf.exists(of_newer, lambda gap: (gap["last"] > took["seq"]) & (gap["first"] < newer["opened_seq"]))
    lost = (sf.col("decision.cause") == "R6") & _of("left").isNotNull() & ~sf.coalesce("broker.whole", sf.lit(False))
    lost &= ~without_journal(sf.col("broker"))
    return first_of(
        (missed, text("seq gap of %s between its rounds", older["process"])),
        (blind, text("seq gap of %s before it opened the queue", newer["process"])),
        (lost, text("seq gap of %s", "broker.process")),
    )


def evidence() -> list[Column]:
    """Each owner's information and its decision, in order of time; routes and members where they decided."""
    about_routes, about_members = sf.col("decision.cause") == "R1", sf.col("decision.cause") == "R2"
    told = [
        ("ROUTE", _routed("route_held", "older"), _of("route_held"), about_routes),
        ("MEMBER_LIST", _listed("list_held", "older"), _of("list_held"), about_members),
        ("ASSIGN", _round("held", "older"), _of("held"), None),
        ("STATE", text("%s", _of("suspended")["state"]), _of("suspended"), None),
        ("MEMBER", text("%s dropped it: %s", _of("left")["broker_name"], _of("left")["reason"]), _of("left"), None),
        ("ROUTE", _routed("route_took", "newer"), _of("route_took"), about_routes),
        ("MEMBER_LIST", _listed("list_took", "newer"), _of("list_took"), about_members),
        ("ASSIGN", _round("took", "newer"), _of("took"), None),
        ("PQ_OPEN", began(sf.col("first_queue.opened")), _opened_first(), overtook()),
        ("ASSIGN", _round("kept", "older"), _of("kept"), None),
        ("GAP", text("it did not run for %s ms", _of("gap")["missing_ms"]), _of("gap"), None),
        ("FAULT", text("%s", _of("paused")["kind"]), _of("paused"), None),
    ]  # fmt: skip
    return [_line(event, words, fact, when) for event, words, fact, when in told]


def began(opened: Column) -> Column:
    """Where a process queue was opened, in words."""
    return text("begins at %s (%s)", opened["start_offset"], opened["source"])


def _opened_first() -> Column:
    """The line of the newer owner, where it delivered first."""
    opened = sf.col("first_queue.opened")
    return sf.struct(
        opened["process"].alias("process"), sf.col("first.boot_id").alias("boot_id"), opened["seq"].alias("seq")
    )


def _line(event: str, words: Column, fact: Column, when: Column | None) -> Column:
    told = line(event, words, process=fact["process"], boot_id=fact["boot_id"], seq=fact["seq"])
    return told if when is None else sf.when(when, told)


def _of(name: str) -> Column:
    return sf.col("contest")[name]


def _list(names: Column) -> Column:
    return sf.array_join(names, ", ")


def _round(name: str, whose: str) -> Column:
    done = _of(name)
    return text("%s takes %s as one of %s", _of(whose)["process"], _list(done["queues"]), _list(done["members"]))


def _routed(name: str, whose: str) -> Column:
    return text("told %s of the brokers %s", _of(whose)["process"], _list(_of(name)["brokers"]))


def _listed(name: str, whose: str) -> Column:
    return text("told %s that the members are %s", _of(whose)["process"], _list(_of(name)["members"]))


def _routes() -> Column:
    told = (one for name in ("route_held", "route_took") for one in (_list(_of(name)["brokers"]), _of(name)["process"]))
    return text("the routes differ: %s by %s, %s by %s", *told)


def _members() -> Column:
    told = (one for name in ("kept", "took") for one in (_list(_of(name)["members"]), _of(name)["broker_name"]))
    return text("the members differ: %s at %s, %s at %s", *told)


def _strategies() -> Column:
    return text("the strategies differ: %s, %s", _of("held")["strategy"], _of("took")["strategy"])
