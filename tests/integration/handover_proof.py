"""What the journals have against a graceful hand-over: two owners at once, or a queue given away too early."""

from collections.abc import Iterable
from pathlib import Path

from journalled import Line, journalled


def lines_of(directory: Path) -> list[Line]:
    """Everything journalled there by processes of one host, in the order of its clock."""
    return sorted(journalled(directory), key=lambda line: line["mono_us"])


def given_too_early(lines: Iterable[Line], life_ms: float) -> list[str]:
    """Claims that a broker granted before the one before was released, or had lived for ``life_ms``.

    A broker that has just started takes an owner's word, so an owner keeps its claim over its restarts.
    """
    owners: dict[object, tuple[str, int]] = {}
    wrong = []
    for line in lines:
        place = _place(line)
        if line["event"] == "RELEASE" and line["granted"]:
            owners.pop(place, None)
        elif line["event"] == "CLAIM" and line["granted"]:
            owner, mine = owners.get(place), (line["client_boot_id"], line["generation"])
            if owner not in (None, mine) and line.get("age_ms", 0) <= life_ms:
                wrong.append(f"{place} went from {owner} to {mine}")
            owners[place] = mine
    return wrong


def owned_twice(lines: Iterable[Line]) -> list[str]:
    """Queues that were opened while another member's ownership had not ended, or by a claim that was not the newest."""
    open_: dict[object, Line] = {}
    newest: dict[object, int] = {}
    wrong = []
    for line in lines:
        place = _place(line)
        if line["event"] == "PQ_DROP":
            if (here := open_.get(place)) and (here["boot_id"], here["pq_id"]) == (line["boot_id"], line["pq_id"]):
                del open_[place]
        elif line["event"] == "PQ_OPEN":
            if place in open_ or line["generation"] <= newest.get(place, 0):
                wrong.append(f"{place} was opened by {line['boot_id']} beside {open_.get(place)}")
            open_[place], newest[place] = line, line["generation"]
    return wrong


def _place(line: Line) -> object:
    return line.get("group"), line.get("broker_name"), line.get("topic"), line.get("queue_id")
