#!/usr/bin/env python3
"""Checks the names of types and files against docs/words.md: one word, one meaning.

    tools/check_words.py    prints the faults; exit 1 if there are any. tools/lint.py runs it too

The second table of docs/words.md names the folders of `src` in which types may have a word in their names; in another folder a type
with that word would give it a second meaning. RIDDLES are words that say nothing about what a type or a file does.
Limits and preconditions are spelled in one way each.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = "docs/words.md"
ROW = re.compile(r"\| ([\w ]+) \| ((?:`[\w/]+` ?)+)\|$")
TYPE = re.compile(r"^[ \t]*(?:template <.*> *)?(?:pub )?(?:class|struct|union|enum(?: class)?) (?:alignas\(.*\) )?(\w+)(?! *;)\b", re.MULTILINE)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
LIMIT = re.compile(r"\b(?:k(?:Most|Longest|Fewest|Slowest)[A-Z]?\w*|k[A-Z]\w*Max)\b")
PRECONDITION = re.compile(r"//.*?\b(Pre|pre|Requires|REQUIRES|Preconditions|precondition):")
RIDDLES = set("wish manner beside voice fate shadow burst streak tell tells told teller news story look looks looker heard outside meanwhile door farewell liar prospect glance".split())


def terms_of(text):
    """Returns the terms of the second table with their folders: {term: [folder]}."""
    return {row[1]: re.findall(r"`([\w/]+)`", row[2]) for row in map(ROW.match, text.splitlines()) if row}


def parts_of(name):
    return [part.lower() for part in PART.findall(name)]


def has_term(name, term):
    """True if the words of the term stand side by side in the name, the last one perhaps in the plural."""
    return bool(re.search(rf"\b{term}s?\b", " ".join(parts_of(name))))


def check(files, root=ROOT):
    text = (root / WORDS).read_text(encoding="utf-8")
    terms = terms_of(text)
    faults = [f"{WORDS}: '{term}' has no meaning there" for term in terms if f"| **{term}**" not in text]
    for name in files:
        if not name.endswith((".h", ".cc", ".rs")) or name.split("/")[0] not in ("src", "apps", "bench", "fuzz", "rust"):
            continue
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        names = [Path(name).stem] + [found[1] for found in TYPE.finditer(text)]
        faults += [f"{name}: {limit} is a limit, which begins with kMax or kMin" for limit in sorted(set(LIMIT.findall(text)))]
        faults += [f"{name}: '{word}:' is written 'Precondition:'" for word in PRECONDITION.findall(text)]
        folder = name.removeprefix("src/")
        for one in names:
            riddles = RIDDLES & set(parts_of(one))
            faults += [f"{name}: '{word}' in the name {one} does not say what it is" for word in sorted(riddles)]
        for term, folders in terms.items() if name.startswith("src/") and not name.endswith("_test.cc") else ():
            if not any(folder.startswith(f"{room}/") for room in folders):
                faults += [f"{name}: {one} gives '{term}' another meaning than {WORDS}" for one in names[1:] if has_term(one, term)]
    return faults


if __name__ == "__main__":
    import lint

    found = check(lint.tracked_files())
    print("\n".join(found))
    sys.exit(1 if found else 0)
