#!/usr/bin/env python3
"""Checks tools/floors.txt against every #include, every type that is only declared, the links of CMakeLists.txt, and the rooms' READMEs.

    tools/check_floors.py [ROOT]      prints one line for each fault; exit 1 if there is one
"""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

DECLARED = re.compile(r"^(?:struct|class) (\w+);", re.MULTILINE)  # in a namespace, not in a class
DEFINED = re.compile(r"^(?:struct|class) ([^;{}=]*)\{", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
CMAKE_ROOM = re.compile(r"hocket_room\(\s*(\w+)\s+DIR\s+(\S+)([^)]*)\)")
LINK_NAMES = {"hocket_rs": "rust"}  # libraries of CMake that are not named after their room
SOURCES = (".h", ".cc", ".cpp", ".inc")


@dataclass
class Room:
    name: str
    folder: str
    direct: list
    holds: str = ""  # the comment at the end of its line
    sees: set = field(default_factory=set)  # itself and everything below it


def parse_floors(text):
    """Returns (rooms by name, walls, faults) of the text of a floors.txt."""
    rooms, walls, faults = {}, [], []
    for number, line in enumerate(text.splitlines(), 1):
        line, _, comment = (part.strip() for part in line.partition("#"))
        if not line:
            continue
        kind, _, rest = line.partition(" ")
        if kind == "wall" and "|" in rest:
            walls.append(tuple(side.strip() for side in rest.split("|")))
            continue
        head, _, below = rest.partition(":")
        words = head.split()
        if kind != "room" or len(words) != 2:
            faults.append(f"tools/floors.txt:{number}: neither a room nor a wall: {line}")
            continue
        room = Room(words[0], words[1], below.split(), comment)
        room.sees = {room.name}
        for name in room.direct:
            if name in rooms:
                room.sees |= rooms[name].sees
            else:
                faults.append(f"tools/floors.txt:{number}: {room.name} names {name}, which is not below it")
        rooms[room.name] = room
    return rooms, walls, faults


def check_walls(rooms, walls):
    faults = []
    for left, right in walls:
        for room in rooms.values():
            for name in sorted(room.sees):
                pair = (room.folder, rooms[name].folder)
                for a, b in ((left, right), (right, left)):
                    if under(pair[0], a) and under(pair[1], b):
                        faults.append(f"tools/floors.txt: {room.name} sees {name} through the wall {left} | {right}")
    return faults


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def room_of(path, rooms):
    """Returns the room with the longest folder that holds `path`, or None."""
    holders = [room for room in rooms.values() if under(path, room.folder)]
    return max(holders, key=lambda room: len(room.folder), default=None)


def source_files(root, rooms):
    files = set()
    for room in rooms.values():
        for folder, _, names in os.walk(root / room.folder):
            if "target" in Path(folder).parts:
                continue
            files |= {(Path(folder) / n).relative_to(root).as_posix() for n in names if n.endswith(SOURCES)}
    return sorted(files)


def includes_of(root, path):
    """Returns (text as written, path in the repository or None) of each quoted include."""
    found = []
    for name in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
        places = [Path("src") / name, Path(path).parent / name, Path(name), Path("rust") / name]
        hit = next((place for place in places if (root / place).is_file()), None)
        found.append((name, os.path.normpath(hit.as_posix()) if hit else None))
    return found


def check_includes(root, rooms):
    faults, graph = [], {}

    def edges(path):
        if path not in graph:
            graph[path] = includes_of(root, path)
        return graph[path]

    for path in source_files(root, rooms):
        room = room_of(path, rooms)
        came_from = {path: None}
        todo = [path]
        while todo:
            here = todo.pop()
            for name, target in edges(here):
                if target is None:
                    if here == path:
                        faults.append(f'{path}: "{name}" is not in this repository')
                    continue
                if target in came_from:
                    continue
                came_from[target] = here
                todo.append(target)
                seen = room_of(target, rooms)
                if seen is None or seen.name not in room.sees:
                    chain = [target]
                    while came_from[chain[-1]] is not None:
                        chain.append(came_from[chain[-1]])
                    where = seen.name if seen else "no room"
                    faults.append(f"{path}: {room.name} may not see {where}: " + " <- ".join(chain))
    return faults


def defined_type(head):
    """Returns the name in the text between `struct` and its brace: `alignas(64) Row final : Base` is Row."""
    words = re.sub(r"\([^()]*\)", "", re.split(r"(?<!:):(?!:)", head)[0]).split()
    return next((word for word in reversed(words) if word != "final"), "")


def check_declarations(root, rooms):
    """Returns a fault for each type that is declared in a room, but defined only in rooms that it may not see: a declaration
    would let a lower floor know an upper one without an #include."""
    declared, defined = [], {}
    for path in source_files(root, rooms):
        text, room = (root / path).read_text(encoding="utf-8"), room_of(path, rooms)
        declared += [(path, room, name) for name in DECLARED.findall(text)]
        for head in DEFINED.findall(text):
            defined.setdefault(defined_type(head), {}).setdefault(room.name, path)
    return [
        f"{path}: {room.name} may not see {there}: {name} is defined in {where}"
        for path, room, name in declared
        if name in defined and not room.sees & defined[name].keys()
        for there, where in [next(iter(defined[name].items()))]
    ]


def check_cmake(text, rooms):
    """Checks that the links of hocket_room() in CMakeLists.txt are those of floors.txt."""
    faults, linked = [], {}
    text = re.sub(r"#.*", "", text)
    for name, folder, rest in CMAKE_ROOM.findall(text):
        links = {LINK_NAMES.get(w, w.removeprefix("hocket_")) for w in rest.split() if w.startswith("hocket_")}
        linked[name] = ("src/" + folder, links)
    for name, (folder, links) in linked.items():
        if name not in rooms:
            faults.append(f"CMakeLists.txt: the room {name} is missing in tools/floors.txt")
        elif (folder, links) != (rooms[name].folder, set(rooms[name].direct)):
            faults.append(
                f"CMakeLists.txt: {name} is {folder} and links {sorted(links)}; "
                f"tools/floors.txt has {rooms[name].folder} and {sorted(rooms[name].direct)}"
            )
    for room in rooms.values():
        if room.folder.startswith("src/") and room.name not in linked:
            faults.append(f"CMakeLists.txt: no hocket_room({room.name} ...)")
    return faults


def check_readmes(root, rooms):
    """Checks that every room with a source has a README.md of at most 60 lines."""
    faults = []
    for room in rooms.values():
        if not any(room_of(path, rooms) is room for path in source_files(root, {room.name: room})):
            continue
        readme = root / room.folder / "README.md"
        if not readme.is_file():
            faults.append(f"{room.folder}: no README.md (what lives here, what may enter, owner, thread)")
        elif len(readme.read_text(encoding="utf-8").splitlines()) > 60:
            faults.append(f"{room.folder}/README.md: longer than a screen (60 lines)")
    return faults


def check_strays(root, rooms):
    """Returns a fault for each source under src/ that belongs to no room, since no check would cover it."""
    everything = source_files(root, {"src": Room("src", "src", [])})
    return [f"{path}: lies in no room of tools/floors.txt" for path in everything if room_of(path, rooms) is None]


def folder_cycles(root, rooms):
    """Returns a fault for each circle of includes between folders of one room; tests may close one."""
    sources = [path for path in source_files(root, rooms) if not is_test(path)]
    sees = {}
    for path in sources:
        here = os.path.dirname(path)
        for _, target in includes_of(root, path):
            if target and not is_test(target) and os.path.dirname(target) != here:
                sees.setdefault(here, {}).setdefault(os.path.dirname(target), (path, target))

    def reaches(start):
        found, todo = set(), [start]
        while todo:
            for folder in sees.get(todo.pop(), {}):
                if folder not in found:
                    found.add(folder)
                    todo.append(folder)
        return found

    below = {folder: reaches(folder) for folder in sees}
    return [
        f"{path}: includes {target}, and {there} includes {here}, directly or not"
        for here, edges in sorted(sees.items())
        for there, (path, target) in sorted(edges.items())
        if here < there and here in below.get(there, ())
    ]


def is_test(path):
    return path.endswith(("_test.cc", "_testing.h", "_testing.cc", "/testing.h")) or "tests" in Path(path).parts


def check(root):
    rooms, walls, faults = parse_floors((root / "tools/floors.txt").read_text(encoding="utf-8"))
    if faults:
        return faults
    cmake = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    return (
        check_walls(rooms, walls)
        + check_includes(root, rooms)
        + check_declarations(root, rooms)
        + check_cmake(cmake, rooms)
        + check_readmes(root, rooms)
        + check_strays(root, rooms)
        + folder_cycles(root, rooms)
    )


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
