"""Counts the data members of classes: names that end in `_`, which clang-tidy demands of private ones. Structs of plain data may have
any number. It reads text, not C++, and counts too few rather than too many: no member of a type with parentheses, if it has braces."""

import re

MAX_MEMBERS = 25
IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
CLASS = re.compile(r"(?<!enum )\bclass (?:alignas\([^)]*\) )?([\w:]+)(?: final)?(?: *:[^:][^;{}]*)?\s*$")
MEMBER = re.compile(r"\b(\w+_)(?=\s*(?:$|,|\[|\{|HOCKET_GUARDED_BY))")


def members_of(statement):
    """Returns the members that a statement of a class declares."""
    while "(" in statement and statement != (less := re.sub(r"\([^()]*\)", "", statement)):
        statement = less
    return MEMBER.findall(re.sub(r"=[^,]*", "", statement))


def members(text):
    """Returns the classes of a file with their data members: [(name, [member])]."""
    found, scopes, statement = [], [], ""
    for piece in re.split(r"([{};])", IGNORED.sub(" ", text)):
        inside = scopes[-1][0] if scopes else None  # the members of the class around it; None: another scope
        if piece == "{":
            named = CLASS.search(statement)
            own = [] if named else None
            if named:
                found.append((named[1], own))
            scopes.append((own, statement))
            statement = ""
        elif piece == "}":
            own, before = scopes.pop() if scopes else (None, "")
            statement = "" if own is not None or ")" in before else before + "{}"  # "{}": a member's value
        elif piece == ";":
            if inside is not None:
                inside += members_of(statement)
            statement = ""
        else:
            statement += piece
    return found


def check(files, root):
    faults = []
    for name in files:
        if name.endswith((".h", ".cc")) and name.split("/")[0] in ("src", "apps", "bench") and not name.endswith("_test.cc"):
            for one, its in members((root / name).read_text(encoding="utf-8", errors="replace")):
                if len(its) > MAX_MEMBERS:
                    faults.append(f"{name}: class {one} has {len(its)} data members; the limit is {MAX_MEMBERS}")
    return faults
