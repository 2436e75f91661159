#!/usr/bin/env python3
"""Makes the map of rooms in docs/architecture.md from tools/floors.txt and the folders under each room.

    tools/docs_map.py            rewrites the block between the two marks in docs/architecture.md (`./hocket docs map`)
    tools/docs_map.py --check    changes nothing; exit 1 if the block differs from what would be written
"""

import sys
from pathlib import Path

import check_floors

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/architecture.md"
BEGIN = "<!-- The map of rooms: written by ./hocket docs map -->"
END = "<!-- The end of the map -->"
FIX = "./hocket docs map"
COLUMN = 24  # least column of the line between the sides; the left one is as wide


def levels(rooms):
    """Returns the level of each room: 0 if it includes no other, else one more than the highest room it includes."""
    found = {}
    for room in rooms.values():  # floors.txt lists them from the ground up
        found[room.name] = 1 + max((found[name] for name in room.direct), default=-1)
    return found


def rows(rooms, level):
    """Returns a line for each level with the names of its rooms, the highest level first."""
    return ["  ".join(room.name for room in rooms if level[room.name] == n) for n in sorted({level[r.name] for r in rooms}, reverse=True)]


def drawing(rooms, sides):
    """Draws the rooms: above, those that see both sides; then the two sides beside each other; below, the rooms under both.

        engine
        ----------------------------
        policy        |  compute
        ----------------------------
        base
    """
    level = levels(rooms)
    inside = {side: [r for r in rooms.values() if check_floors.under(r.folder, side)] for side in sides}
    above = [r for r in rooms.values() if all(any(x.name in r.sees for x in inside[side]) for side in sides)]
    ground = [r for r in rooms.values() if r not in above and not any(r in inside[side] for side in sides)]
    left, right = (rows(inside[side], level) for side in sides)
    height = max(len(left), len(right))
    left, right = ([""] * (height - len(side)) + side for side in (left, right))  # the lowest rooms of both are in the same line
    heads = [side.rsplit("/", 1)[-1] for side in sides]
    column = max([COLUMN] + [len(names) + 3 for names in left])
    between = [f"{heads[0]:<{column}}|  {heads[1]}"] + [f"  {a:<{column - 2}}|    {b}".rstrip() for a, b in zip(left, right)]
    line = "-" * (2 * column)
    return [*rows(above, level), line, *between, line, *rows(ground, level)]


def sub_folders(root, room, rooms):
    """Returns the folders with sources under a room, as paths inside it, without those of rooms of their own."""
    paths = [Path(path) for path in check_floors.source_files(root, {room.name: room})]
    own = [path.parent for path in paths if check_floors.room_of(path.as_posix(), rooms) is room]
    return sorted({folder.relative_to(room.folder).as_posix() for folder in own} - {"."})


def block(root):
    """Returns the lines of the map, without the marks."""
    rooms, walls, _ = check_floors.parse_floors((root / "tools/floors.txt").read_text(encoding="utf-8"))
    lines = ["", "```", *("  " + line for line in drawing(rooms, walls[0])), "```", ""]
    lines += ["| Room | Holds | May include, with all that these may |", "|---|---|---|"]
    for room in reversed(rooms.values()):
        below = ", ".join(room.direct) or "nothing"
        lines.append(f"| [{room.name}](../{room.folder}/README.md) | {room.holds} | {below} |")
    lines += ["", "Sub-folders:", ""]
    for room in reversed(rooms.values()):
        if folders := sub_folders(root, room, rooms):
            lines.append(f"* `{room.folder}/`: {', '.join(folders)}")
    return [*lines, ""]


def rewritten(root, text):
    """Returns `text` with the map that the present tree gives, or None if the marks are missing."""
    before, begin, rest = text.partition(BEGIN + "\n")
    _, end, after = rest.partition(END + "\n")
    return "".join([before, begin, *(line + "\n" for line in block(root)), end, after]) if begin and end else None


def check(root):
    rooms, _, faults = check_floors.parse_floors((root / "tools/floors.txt").read_text(encoding="utf-8"))
    if faults:
        return []  # check_floors reports them
    unsaid = [f"tools/floors.txt: no comment behind {room.name} says what it holds" for room in rooms.values() if not room.holds]
    text = (root / PAGE).read_text(encoding="utf-8")
    made = rewritten(root, text)
    if made is None:
        return [*unsaid, f"{PAGE}: lacks the line {BEGIN} or {END}"]
    return unsaid + ([f"{PAGE}: the map of rooms is out of date; {FIX}"] if made != text else [])


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not sys.argv[1:]:
        page = ROOT / PAGE
        text = page.read_text(encoding="utf-8")
        made = rewritten(ROOT, text)
        if made is not None and made != text:
            page.write_text(made, encoding="utf-8")
    faults = check(ROOT)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
