"""A story on the terminal, or as one JSON object."""

from collections.abc import Iterator
from datetime import UTC, datetime

from dejamq_cli.history.story import GroupEnd, MessageStory


def lines_of(story: MessageStory) -> Iterator[str]:
    """The story for people, line by line: what it comes to first, then who and where, then each step."""
    yield f"{story.message_id}  topic {story.topic or 'unknown'}"
    yield from _outcome(story)
    yield ""
    yield from _aligned([[one.name, one.role, ", ".join(one.groups), one.process] for one in story.processes])
    yield ""
    yield from _aligned(
        [
            [f"copy {one.number}", f"{one.broker} {one.topic}:{one.queue_id} @{one.queue_offset}",
             one.offset_message_id or "id unknown", one.origin]
            for one in story.copies
        ]
    )  # fmt: skip
    yield ""
    yield from _steps(story)
    if story.missing:
        yield ""
        yield "What the journals do not say:"
        yield from (f"  {text}" for text in story.missing)


def _outcome(story: MessageStory) -> Iterator[str]:
    if not story.groups:
        yield "Delivered to nobody, as far as these journals tell."
    for end in story.groups:
        yield f"{end.group}: {_of_group(end)}"
    if any(end.unasked for end in story.groups):
        yield "Delivered again without having been asked for: `dejamq audit` with the same folders names the cause."


def _of_group(end: GroupEnd) -> str:
    if not end.deliveries:
        return f"no delivery is told of here; committed past {_copies(end.committed_past)}"
    results = ", ".join(status.replace("_", " ") or "no result" for status in end.results)
    committed = f"committed past {_copies(end.committed_past)}" if end.committed_past else "nothing committed past it"
    return f"{end.deliveries} {'deliveries' if end.deliveries > 1 else 'delivery'} ({results}); {committed}"


def _copies(numbers: list[int]) -> str:
    if not numbers:
        return "none of its copies"
    return f"{'copies' if len(numbers) > 1 else 'copy'} {', '.join(map(str, numbers))}"


def _steps(story: MessageStory) -> Iterator[str]:
    if not story.steps:
        return
    start = story.steps[0].wall_us
    yield _clock(start).partition("T")[0] + " UTC"
    width = max(len(step.actor) for step in story.steps)
    for step in story.steps:
        time = _clock(step.wall_us).rpartition("T")[2]
        yield f"{time}  {_since(step.wall_us - start):>10}  {step.actor:<{width}}  {step.text}"


def _clock(wall_us: int) -> str:
    try:
        return datetime.fromtimestamp(wall_us / 1e6, UTC).isoformat(timespec="milliseconds")[:-6]
    except (ValueError, OverflowError, OSError):
        return f"1970+{wall_us}us"  # a clock, or a line, that is out of its mind


def _since(us: int) -> str:
    return f"+{us / 1000:.1f} ms" if us < 1_000_000 else f"+{us / 1e6:.3f} s"


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
