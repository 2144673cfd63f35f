"""Draws docs/rooms.svg from the data of the layers test, and docs/processes.svg: who talks with whom.

``python tools/pictures.py`` writes both, with ``--check`` it says whether the committed ones are today's.
"""

import argparse
import sys
from html import escape
from pathlib import Path

from rooms import HOUSE, ROOMS, arrows, full_name, modules, room_of

DOCS = HOUSE / "docs"
FONT = "font-family='system-ui, sans-serif'"
INK, PALE, LINE, PAPER = "#1f2933", "#52606d", "#9aa5b1", "#ffffff"
COLOURS = {
    "dejamq_cli": "#8a5a00", "dejamq_lab": "#7a3e9d", "dejamq": "#0b6e4f", "dejamq_broker": "#1357a6",
    "dejamq_namesrv": "#1d7a8c", "dejamq_analytics": "#a61b4a", "dejamq_proto": "#52606d",
}  # fmt: skip
STOREYS = (
    ("dejamq_cli", "dejamq_lab"),
    ("dejamq", "dejamq_broker", "dejamq_namesrv", "dejamq_analytics"),
    ("dejamq_proto",),
)
"""Packages from the top down: each imports from storeys below its own."""

CARD, GAP, ROW, HEAD, ARCS = 290, 26, 19, 58, 96
"""Widths and heights in pixels: a card, the gap between cards, a room's row, a card's head, space for arcs."""
GROUND_HEIGHT = 170


def text(
    x: float, y: float, words: str, *, size: int = 13, colour: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = " font-weight='600'" if bold else ""
    look = f"font-size='{size}' fill='{colour}' text-anchor='{anchor}'{weight}"
    return f"<text x='{x:g}' y='{y:g}' {look}>{escape(words)}</text>"


def page(width: int, height: int, title: str, body: list[str]) -> str:
    """An SVG with its own paper, so that it reads the same on light and dark pages."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"{FONT} role='img'><title>{escape(title)}</title><rect width='{width}' height='{height}' fill='{PAPER}'/>"
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7' orient='auto'>"
        f"<path d='M0 0 L10 5 L0 10 z' fill='{PALE}'/></marker></defs>"
    )
    return "\n".join([head, *body, "</svg>", ""])


def stories(package: str) -> list[str]:
    """Rooms from the top down; the package's own files are named by its name."""
    return list(reversed(ROOMS[package]))


def card(package: str, x: float, y: float, files: dict[str, int], inside: dict[tuple[str, str], int]) -> list[str]:
    """One package: its rooms from the ground up, an arc for each pair of rooms of which the upper imports the lower."""
    rooms, colour = stories(package), COLOURS[package]
    height = HEAD + ROW * len(rooms) + 12
    drawn = [
        f"<rect x='{x:g}' y='{y:g}' width='{CARD}' height='{height}' rx='8' fill='#f7f9fb' stroke='{colour}'/>",
        text(x + 14, y + 24, package, size=16, colour=colour, bold=True),
        text(x + 14, y + 42, f"{sum(files.values())} files, rooms from the ground up", size=11, colour=PALE),
    ]
    places = {full_name(package, room): y + HEAD + ROW * row + 12 for row, room in enumerate(rooms)}
    for room in rooms:
        name = full_name(package, room)
        drawn.append(text(x + 14, places[name] + 4, room or "(its own face)", size=12))
        drawn.append(
            text(x + CARD - ARCS - 12, places[name] + 4, str(files.get(room, 0)), size=11, colour=PALE, anchor="end")
        )
    left = x + CARD - ARCS
    for (upper, lower), count in sorted(inside.items()):
        if upper not in places or lower not in places:
            continue
        start, end = places[upper], places[lower]
        reach = 12 + (ARCS - 30) * min(1.0, (end - start) / (ROW * 14))
        drawn.append(
            arc(
                f"M{left:g} {start:g} C{left + reach:g} {start:g} {left + reach:g} {end:g} {left:g} {end:g}",
                colour,
                count,
            )
        )
    return drawn


def ground(
    package: str, width: float, y: float, files: dict[str, int], inside: dict[tuple[str, str], int]
) -> list[str]:
    """The package that all others import: as wide as the page, its rooms from left to right."""
    rooms, colour = ROOMS[package], COLOURS[package]
    step = (width - 2 * GAP - 20) / len(rooms)
    base = y + GROUND_HEIGHT - 26
    drawn = [
        f"<rect x='{GAP}' y='{y:g}' width='{width - 2 * GAP:g}' height='{GROUND_HEIGHT}' rx='8' fill='#f7f9fb' "
        f"stroke='{colour}'/>",
        text(GAP + 14, y + 24, package, size=16, colour=colour, bold=True),
        text(GAP + 150, y + 24, f"{sum(files.values())} files, rooms from left to right", size=11, colour=PALE),
    ]
    places = {full_name(package, room): GAP + 10 + step * (number + 0.5) for number, room in enumerate(rooms)}
    for room in rooms:
        x = places[full_name(package, room)]
        drawn.append(text(x, base + 14, f"{room or '(face)'} {files.get(room, 0)}", size=11, anchor="middle"))
    for (upper, lower), count in sorted(inside.items()):
        start, end = places[upper], places[lower]
        reach = 8 + (GROUND_HEIGHT - 66) * min(1.0, abs(start - end) / (step * 12))
        drawn.append(
            arc(
                f"M{start:g} {base:g} C{start:g} {base - reach:g} {end:g} {base - reach:g} {end:g} {base:g}",
                colour,
                count,
            )
        )
    return drawn


def arc(path: str, colour: str, count: int) -> str:
    width = 0.8 if count < 3 else 1.4 if count < 10 else 2.2
    return f"<path d='{path}' fill='none' stroke='{colour}' stroke-opacity='0.45' stroke-width='{width}'/>"


def straight(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"<path d='M{x1:g} {y1:g} L{x2:g} {y2:g}' stroke='{PALE}' stroke-width='1.4' marker-end='url(#tip)'/>"


def rooms_picture(house: Path) -> str:
    files: dict[str, dict[str, int]] = {package: {} for package in ROOMS}
    for module in modules(house):
        package, room = module.partition(".")[0], room_of(module) or ""
        files[package][room] = files[package].get(room, 0) + 1
    counts = arrows(house)
    inside = {
        package: {ends: count for ends, count in counts.items() if {end.partition(".")[0] for end in ends} == {package}}
        for package in ROOMS
    }
    between = {tuple(end.partition(".")[0] for end in ends) for ends in counts}
    width = 4 * CARD + 5 * GAP
    body = [
        text(GAP, 32, "Rooms and arrows", size=20, bold=True),
        text(
            GAP, 52, "A file imports from its own room and from rooms below it. Arcs: imports inside a package. "
            "Arrows: imports between packages; all import dejamq_proto. Numbers: files.", size=12, colour=PALE,
        ),
    ]  # fmt: skip
    at: dict[str, tuple[float, float, float]] = {}
    y = 72.0
    for storey in STOREYS[:-1]:
        x = (width - len(storey) * CARD - (len(storey) - 1) * GAP) / 2
        heights = {package: HEAD + ROW * len(ROOMS[package]) + 12 for package in storey}
        for package in storey:
            lowered = max(heights.values()) - heights[package] if storey is STOREYS[0] else 0
            at[package] = x, y + lowered, heights[package]
            x += CARD + GAP
        y += max(heights.values()) + 84
    top, middle = STOREYS[0], STOREYS[1]
    for upper in top:
        for lower in middle:
            if (upper, lower) in between:
                (x1, y1, h1), (x2, y2, _) = at[upper], at[lower]
                shift = 14 if upper == top[0] else -14
                body.append(straight(x1 + CARD / 2 + (x2 - x1) * 0.12, y1 + h1, x2 + CARD / 2 - shift, y2 - 3))
    if (top[0], top[1]) in between:
        (x1, y1, _), (x2, y2, _) = at[top[0]], at[top[1]]
        body.append(straight(x1 + CARD, max(y1, y2) + 24, x2 - 3, max(y1, y2) + 24))
    for package in middle:
        x, y1, height = at[package]
        body.append(straight(x + CARD / 2, y1 + height, x + CARD / 2, y - 3))
    for package, (x, above, _) in at.items():
        body += card(package, x, above, files[package], inside[package])
    (lowest,) = STOREYS[-1]
    body += ground(lowest, width, y, files[lowest], inside[lowest])
    return page(width, int(y + GROUND_HEIGHT + 24), "Rooms and arrows of dejamq", body)


BOXES = {
    "producer": (40, 110, "Producer", "your program with the SDK"),
    "consumer": (40, 370, "Consumer", "your program with the SDK"),
    "namesrv": (430, 90, "Name servers", "routes in memory, not shared"),
    "master": (430, 240, "Broker, master", "commit log, queues, offsets"),
    "slave": (430, 390, "Broker, slave", "a copy of its master"),
    "journals": (820, 110, "Journals", "each process: a line an event"),
    "audit": (820, 370, "Audit (Spark)", "why was it delivered twice?"),
}
BOX = (220, 78)
LINES = (
    ("producer", "namesrv", "routes", False, 0.45),
    ("consumer", "namesrv", "routes", False, 0.24),
    ("producer", "master", "send", False, 0.72),
    ("consumer", "master", "pull, offsets", False, 0.5),
    ("master", "namesrv", "registers", False, 0.5),
    ("slave", "master", "copies", False, 0.5),
    ("master", "journals", "writes", True, 0.5),
    ("journals", "audit", "reads", True, 0.5),
    ("slave", "audit", "store, if given", True, 0.5),
)
"""From, to, words, dashed or not, and where on the line the words stand."""


def border(name: str, towards: str) -> tuple[float, float]:
    """Where the line to another box leaves this one."""
    (x1, y1), (x2, y2) = ((BOXES[each][0] + BOX[0] / 2, BOXES[each][1] + BOX[1] / 2) for each in (name, towards))
    dx, dy = x2 - x1, y2 - y1
    scale = min(BOX[0] / 2 / abs(dx) if dx else 1e9, BOX[1] / 2 / abs(dy) if dy else 1e9)
    return x1 + dx * scale, y1 + dy * scale


def processes_picture() -> str:
    body = [
        text(40, 32, "Processes of a cluster", size=20, bold=True),
        text(
            40,
            52,
            "Solid: gRPC calls, from the caller to the server. Dashed: files. Clients write journals too.",
            size=12,
            colour=PALE,
        ),
    ]
    for start, end, words, dashed, share in LINES:
        (x1, y1), (x2, y2) = border(start, end), border(end, start)
        dash = " stroke-dasharray='5 4'" if dashed else ""
        body.append(
            f"<path d='M{x1:g} {y1:g} L{x2:g} {y2:g}' stroke='{PALE}' stroke-width='1.5'{dash} marker-end='url(#tip)'/>"
        )
        x, y, half = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, 3.4 * len(words) + 4
        body.append(f"<rect x='{x - half:g}' y='{y - 9:g}' width='{2 * half:g}' height='18' fill='{PAPER}'/>")
        body.append(text(x, y + 4, words, size=12, colour=PALE, anchor="middle"))
    for x, y, title, words in BOXES.values():
        body.append(f"<rect x='{x}' y='{y}' width='{BOX[0]}' height='{BOX[1]}' rx='8' fill='#f7f9fb' stroke='{LINE}'/>")
        body.append(text(x + BOX[0] / 2, y + 32, title, size=16, anchor="middle", bold=True))
        body.append(text(x + BOX[0] / 2, y + 54, words, size=11, colour=PALE, anchor="middle"))
    return page(1080, 500, "Processes of a dejamq cluster", body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a committed picture is not today's"
    )
    check = parser.parse_args().check
    stale = []
    for name, drawn in (("rooms.svg", rooms_picture(HOUSE)), ("processes.svg", processes_picture())):
        path = DOCS / name
        if check and (not path.exists() or path.read_text(encoding="utf-8") != drawn):
            stale.append(name)
        elif not check:
            path.write_text(drawn, encoding="utf-8")
    if stale:
        print(f"docs/{' and docs/'.join(stale)} are not of today's source: run `make pictures`", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
