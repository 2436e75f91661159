#!/usr/bin/env python3
"""Checks the names of types and files against docs/words.md: one word, one meaning.

    tools/check_words.py    prints the faults; exit 1 if there are any. tools/lint.py runs it too

The second table of docs/words.md names the folders, of `src` or beside it, in which types, files and functions may have a word in their
names; in another folder a name with that word would give it a second meaning. Tests obey too, those in Python by their classes and files.
Each term of the first table is in the second one, or in the list of words that are not checked. RIDDLES are words that say nothing about
what a type or a file does.
Limits, preconditions and the flags that errors name are spelled in one way each. Two files that the product links may not define a type of one name in one
namespace: the linker would keep the functions of only one of them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = "docs/words.md"
FLAGS = "docs/flags.md"  # made from the flag table
TERM = re.compile(r"^\| \*\*([^*]+)\*\*", re.MULTILINE)
ROW = re.compile(r"^\| ([\w ]+) \| ((?:`[\w/]+` ?)+)\|((?: `[\w/]+`)*) \|$", re.MULTILINE)
UNCHECKED = re.compile(r"^Not checked,.*?:\s+(.*?)\.\s*\Z", re.MULTILINE | re.DOTALL)
# A function that a header declares: a type and a name at the beginning of a line.
FUNCTION = re.compile(r"^ *(?:(?:static|virtual|inline|constexpr|friend) )*(?!return\b|throw\b|else\b|new\b|delete\b|co_)"
                      r"[A-Za-z_][\w:<>,*& ]*[ &*>](\w+)\(", re.MULTILINE)
TYPE = re.compile(r"^[ \t]*(?:template <.*> *)?(?:pub )?(?:class|struct|union|enum(?: class)?) (?:alignas\(.*\) )?(\w+)(?! *;)\b", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)  # a class in Python
COMMENT = re.compile(r"//.*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
LIMIT = re.compile(r"\b(?:k(?:Most|Least|Longest|Shortest|Fewest|Slowest)[A-Z]?\w*|k[A-Z]\w*(?:Max|Min|Least|Most))\b")
FLAG = re.compile(r'with_param\("([^"]*-[^"]*)"')
DEFINED = re.compile(r"^(?:(?:inline )?namespace ([\w:]+) \{|(namespace \{)|(\}  // namespace)|"
                     r"(?:template <.*>\s+)?(?:class|struct|union|enum(?: class)?) (?:alignas\(.*\) )?(\w+)(?: final)?(?=\s*(?:\{|:[^:][^;{]*\{)))",
                     re.MULTILINE)
PRECONDITION = re.compile(r"//.*?\b(Pre|pre|Requires|REQUIRES|Preconditions|precondition):")
RIDDLES = set("wish manner beside voice fate shadow burst streak tell told teller news story look looker heard outside meanwhile door farewell liar prospect glance "
              "interlude coming spared worth wishes dial asker talker pulse mortal".split())


def terms_of(text):
    """Returns the terms of the second table: {term: (folders of all names, more folders of functions)}."""
    return {term: tuple(re.findall(r"`([\w/]+)`", cell) for cell in cells) for term, *cells in ROW.findall(text)}


def check_terms(text, terms):
    """Finds terms of one table that lack their row in the other."""
    listed = UNCHECKED.search(text)
    unchecked = set(re.split(r",\s+", re.sub(r"\s+", " ", listed[1]))) if listed else set()
    known = TERM.findall(text)
    faults = [f"{WORDS}: '{term}' has no meaning there" for term in [*terms, *sorted(unchecked)] if term not in known]
    faults += [f"{WORDS}: '{term}' needs a row in the table of names, or a place in the list behind it" for term in known if term not in terms and term not in unchecked]
    return faults + [f"{WORDS}: '{term}' is both checked and not" for term in terms if term in unchecked]


def parts_of(name):
    return [part.lower() for part in PART.findall(name)]


def has_term(name, term):
    """True if the words of the term stand side by side in the name, the last one perhaps in the plural."""
    return bool(re.search(rf"\b{term}s?\b", " ".join(parts_of(name))))


def types_defined(text):
    """Returns the full names of the types that a file defines at namespace scope, none of an anonymous namespace."""
    scopes, names = [], set()
    for named, anonymous, end, name in DEFINED.findall(text):
        if named or anonymous:
            scopes.append(named)
        elif end:
            del scopes[-1:]
        elif all(scopes):
            names.add("::".join([*scopes, name]))
    return names


def defined_twice(files, root=ROOT):
    """Finds types of one name that two files define."""
    faults, first = [], {}
    for name in sorted(files):
        if not name.endswith((".h", ".cc")) or name.endswith("_test.cc") or name.split("/")[0] not in ("src", "apps", "bench"):
            continue
        for one in sorted(types_defined((root / name).read_text(encoding="utf-8", errors="replace"))):
            other = first.setdefault(one, name)
            faults += [f"{name}: {other} defines the type {one} too"] if other != name else []
    return faults


def check(files, root=ROOT):
    text = (root / WORDS).read_text(encoding="utf-8")
    terms = terms_of(text)
    flags = set(re.findall(r"^\| `--([\w-]+)`", (root / FLAGS).read_text(encoding="utf-8"), re.MULTILINE)) if (root / FLAGS).is_file() else set()
    faults = check_terms(text, terms)
    for name in files:
        is_python = name.endswith(".py")
        if not name.endswith((".h", ".cc", ".rs", ".py")) or name.split("/")[0] not in ("src", "apps", "bench", "fuzz", "rust", "tests"):
            continue
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        names = [Path(name).stem] + [found[1] for found in (CLASS if is_python else TYPE).finditer(text)]
        faults += [f"{name}: {limit} is a limit, which begins with kMax or kMin" for limit in sorted(set(LIMIT.findall(text)))]
        faults += [f"{name}: '{word}:' is written 'Precondition:'" for word in PRECONDITION.findall(text)]
        faults += [f"{name}: an error names '{flag}', which is no flag of {FLAGS}; it has no dashes" for flag in FLAG.findall(text) if flag not in flags and not name.startswith("src/capi/")]
        folder = name.removeprefix("src/")
        for one in names:
            riddles = [part for part in parts_of(one) if part in RIDDLES or part.removesuffix("s") in RIDDLES]
            faults += [f"{name}: '{word}' in the name {one} does not say what it is" for word in sorted(riddles)]
        is_test = name.endswith(("_test.cc", "_testing.h")) or "/tests/" in name
        functions = sorted(set(FUNCTION.findall(COMMENT.sub("", text)))) if name.endswith(".h") and not is_test else []
        for term, (folders, more) in terms.items() if not name.startswith("rust/") else ():
            if not any(folder.startswith(f"{room}/") for room in folders):
                may_call = any(folder.startswith(f"{room}/") for room in more)
                faults += [f"{name}: {one} gives '{term}' another meaning than {WORDS}" for one in names + (functions if not may_call else []) if has_term(one, term)]
    return faults + defined_twice(files, root)


if __name__ == "__main__":
    import lint

    found = check(lint.tracked_files())
    print("\n".join(found))
    sys.exit(1 if found else 0)
