#!/usr/bin/env python3
"""Checks the project's rules that a machine can check; exit 1 if one is broken, 2 if there is no such part.

    tools/lint.py            runs all checks. Passed files are remembered in build/lint by content, so a second run is short. Headers and
                             sources that have not changed since the commit in tools/tidied.txt, with all they include, are skipped
    tools/lint.py PART...    runs only these checks; --help lists them
    tools/lint.py --all      checks the skipped files too; if all checks ran and passed and nothing is uncommitted, it writes HEAD to
                             tools/tidied.txt: commit that file
    tools/lint.py --fix      reformats files instead
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check_floors
import check_members
import check_words
import docs_map

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/single"  # CMakePresets.json: configured only; its compile commands are one for each file
SEEN = ROOT / "build/lint"
CLANG, FORMAT = "clang++-19", "clang-format-19"
TIDY = ROOT / "build/venv-lint/bin/clang-tidy"  # version 23, which skips system headers and takes a third of the time of 19
TIDIED = ROOT / "tools/tidied.txt"
TIDY_RULES = (".clang-tidy", "tools/requirements.txt", "cmake/toolchain.cmake")
CODE_FOLDERS = ("src", "include", "apps", "bench", "fuzz", "tests")
COLUMNS, LINES, KERNEL_LINES = 100, 400, 700
PAGE_COLUMNS = 120  # in Markdown; its tables and images may be wider
PROGRESS_S = 10
FUZZER = "_fuzz.cc"
# Paths of the machine on which a file was written may not stay in it. The words are cut in two, so that this file passes too.
PLACE = re.compile("/" + "work/|/" + r"home/\w|/" + r"root/|\b" + r"shared/(design|specs|golden|models|tools|prototypes)")
MERGE_MARKS = ("<" * 7 + " ", ">" * 7 + " ")
LOOSE_END = re.compile(r"\b(TO" + "DO|FIX" + r"ME|X{3})\b")
# A comment that opens so lacks its noun: the reader would have to find it in the code.
NO_SUBJECT = {
    "//": re.compile(r"//[/!<]*\s+(what|of|who|whose|whom)\b", re.IGNORECASE),
    "#": re.compile(r'(?:(?:^|\s)#\s+|^\s*"{3})(what|of|who|whose|whom)\b', re.IGNORECASE),
}
# The same for a later sentence of a comment.
NO_SUBJECT_WITHIN = {mark: re.compile(rf"(?:^|\s){mark}.*[.?!:;] +(What|Of|Who|Whose|Whom)\b") for mark in NO_SUBJECT}
# A number or a time without a name; "so many that" is no such thing.
NO_NAME = re.compile(r"\b(so many|so long each)\b(?! that\b)", re.IGNORECASE)
# A help of a flag that has to be completed from the flag's name.
NO_NOUN = re.compile(r'\{"([\w-]+)",\s*&[^",]+,\s*"(of|what|who|whose|so many)\b', re.IGNORECASE)
STD_MUTEX = re.compile(r"\bstd::(recursive_|shared_|timed_)?mutex\b")
MUTEX = "src/base/mutex.h"
PAGE = re.compile(r"\bdocs/[\w/]+\.md\b")
GUIDES = ("CONTRIBUTING.md", "src/README.md", "docs/architecture.md")  # pages for newcomers; all files that they name must exist
FILE = re.compile(r"(?<![\w./-])[\w.-]+(?:/[\w.-]+)+\.(?:h|cc|rs|py|sh|txt|md|mjs|json)\b")
BARE_FILE = re.compile(r'(?<![\w./*<"-])[a-z]\w*\.(?:h|cc)\b(?![\w(/])')  # a source in a comment, without its folder
PAGE_SOURCES = tuple(f"web/{name}" for name in ("index.html", "package.json", "package-lock.json", "vite.config.js", "public/", "src/"))
TIDY_ARGUMENTS = ("--quiet", f"-p={BUILD}", "--extra-arg=-Wno-error", "--extra-arg=-Wthread-safety") + tuple(
    f"--extra-arg=-Wno-{name}" for name in ("unknown-warning-option", "ignored-optimization-argument", "deprecated-declarations")  # the last is for libstdc++
)
# Clippy need not ask for safety comments: the conditions of C functions are in rust/hocket_rs.h.
CLIPPY_ARGUMENTS = ["--locked", "--quiet", "--", "-D", "warnings", "-A", "clippy::missing_safety_doc"]


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    names = listing.stdout.decode().split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


def tidied_commit():
    return TIDIED.read_text(encoding="utf-8").strip() if TIDIED.is_file() else ""


def changed_since_tidied():
    """Returns the files changed since the commit in which all passed; None if there is no such commit, or rules or flags changed."""
    commit = tidied_commit()
    status, output = run(["git", "diff", "--name-only", "--no-renames", commit, "--"]) if commit else (1, "")
    if status:
        return None
    _, untracked = run(["git", "ls-files", "--others", "--exclude-standard"])
    changed = set(output.splitlines()) | set(untracked.splitlines())
    return None if changed & set(TIDY_RULES) else changed


def is_code(name):
    return name.split("/")[0] in CODE_FOLDERS and name.endswith((".h", ".cc"))


def guards_data(name):
    """True for the code of the product, whose mutexes clang checks; tests and fuzzers may use the standard library's."""
    is_test = re.search(r"(_test|_testing|_fuzz)\.(cc|h)$|(^|/)tests/", name)
    return is_code(name) and name != MUTEX and not is_test


def run(command, **options):
    done = subprocess.run([str(w) for w in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    return done.returncode, done.stdout


class Seen:
    """Remembers passed checks by a hash of everything they depend on, and knows which files passed in a commit."""

    def __init__(self, root, folder, changed=None):
        self.root, self.folder, self.closures = root, folder, {}
        self.changed = changed  # files changed since a commit in which all passed; None: there is no such commit

    def is_untouched(self, path):
        return self.changed is not None and not self.changed & self.closure(path)

    def key(self, path, *more):
        digest = hashlib.sha256()
        for name in sorted(self.closure(path)):
            digest.update(name.encode() + b"\0" + (self.root / name).read_bytes() + b"\0")
        for text in more:
            digest.update(text.encode() + b"\0")
        return digest.hexdigest()

    def closure(self, path):
        """Returns the file and all files of the repository that it includes, at any depth."""
        found, todo = {path}, [path]
        while todo:
            here = todo.pop()
            if here not in self.closures:
                self.closures[here] = [target for _, target in check_floors.includes_of(self.root, here) if target]
            fresh = set(self.closures[here]) - found
            found |= fresh
            todo += fresh
        return found

    def passed(self, key):
        return (self.folder / key).exists()

    def remember(self, key):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / key).touch()


def each(name, jobs, work):
    """Runs work(job) for all jobs on all cores and returns their faults. Prints the progress every PROGRESS_S seconds, and faults
    once they are found, since a run that is stopped before its end would otherwise show none."""
    found, printed = [], time.monotonic()
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        for done, faults in enumerate(pool.map(work, jobs), 1):
            fresh = [fault for fault in faults if fault not in found]
            found += fresh
            if fresh or time.monotonic() - printed > PROGRESS_S:
                print("".join(f"{fault}\n" for fault in fresh), end="")
                printed = time.monotonic()
                print(f"{name:<9} {done} of {len(jobs)} files", flush=True)
    return found


def check_format(files):
    code = [f for f in files if is_code(f)]
    if not code:
        return []
    status, output = run([FORMAT, "--dry-run", "-Werror", *code])
    wrong = sorted(set(re.findall(r"^([^:\s]+):\d+:\d+: error:", output, flags=re.MULTILINE)))
    if status and not wrong:
        return [output.strip()]
    return [f"{path}: not formatted; ./hocket fmt" for path in wrong]


def wide_lines(lines):
    """Numbers and lengths of the lines of Markdown that are wider than PAGE_COLUMNS and could be wrapped."""
    for number, line in enumerate(lines, 1):
        if len(line) > PAGE_COLUMNS and not line.startswith(("|", "![")) and " " in re.sub("`[^`]*`", "", line):
            yield number, len(line)


def comment_mark(name):
    """The mark that begins comments in a file that we wrote; None if they are not checked."""
    if is_code(name) or name.endswith((".js", ".jsx", ".mjs")) and not name.startswith("web/dist/"):
        return "//"
    return "#" if name.endswith((".py", ".sh")) or name == "hocket" else None


def comment_of(line, mark):
    """The comment of a line; empty if it has none, or if the mark may be part of a text."""
    begin = line.find(mark)
    return line[begin:] if begin >= 0 and line[:begin].count('"') % 2 == 0 else ""


def comments_without_subject(lines, mark="//"):
    """Numbers of the lines on which such a comment opens, in a block or behind code, or a later sentence of one."""
    in_block = False
    for number, line in enumerate(lines, 1):
        is_comment = line.lstrip().startswith(mark)
        found = None if is_comment and in_block else NO_SUBJECT[mark].search(line)
        found = found or NO_SUBJECT_WITHIN[mark].search(line)
        if found and line[: found.start()].count('"') % 2 == 0:  # not within a text
            yield number
        in_block = is_comment


def source_names(root):
    """The names, without their folders, of all C++ files of the repository."""
    return {path.name for folder in CODE_FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc")}


def check_text(files, root=ROOT):
    faults, sources = [], source_names(root)
    for name in files:
        path = root / name
        if path.is_symlink() or path.stat().st_size > 1 << 20:
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if PLACE.search(line):
                faults.append(f"{name}:{number}: names the place where it was written: {line.strip()[:80]}")
            if line.startswith(MERGE_MARKS):
                faults.append(f"{name}:{number}: a mark of a merge")
            if is_code(name) and LOOSE_END.search(line):
                faults.append(f"{name}:{number}: a loose end: {line.strip()[:80]}")
            for page in PAGE.findall(line):
                if not (root / page).is_file():
                    faults.append(f"{name}:{number}: there is no {page}")
            named = line if name in GUIDES else line[line.find("//") :] if is_code(name) and "//" in line else ""
            for file in FILE.findall(named):
                if not any((root / place / file).is_file() for place in ("", "src", path.parent, path.parent.parent)):
                    faults.append(f"{name}:{number}: there is no {file}")
            for file in BARE_FILE.findall(comment_of(line, "//")) if is_code(name) else ():
                if file not in sources:
                    faults.append(f"{name}:{number}: there is no {file}")
            if comment_mark(name) and NO_NAME.search(comment_of(line, comment_mark(name))):
                faults.append(f"{name}:{number}: a number without a name: {line.strip()[:80]}")
            if guards_data(name) and STD_MUTEX.search(line):
                faults.append(f"{name}:{number}: base/mutex.h has the mutex that clang can check")
            if is_code(name) and len(line) > COLUMNS:
                faults.append(f"{name}:{number}: {len(line)} columns; the limit is {COLUMNS}")
        mark = comment_mark(name)
        for number in comments_without_subject(lines, mark) if mark else ():
            faults.append(f"{name}:{number}: a comment begins with its subject: {lines[number - 1].strip()[:80]}")
        if is_code(name):
            faults += [f"{name}: the help of --{flag} begins with its noun, not with '{word}'" for flag, word in NO_NOUN.findall("\n".join(lines))]
        for number, length in wide_lines(lines) if name.endswith(".md") else ():
            faults.append(f"{name}:{number}: {length} columns; the limit of pages is {PAGE_COLUMNS}")
        limit = KERNEL_LINES if "/kernels/" in name else LINES
        if is_code(name) and len(lines) > limit:
            faults.append(f"{name}: {len(lines)} lines; the limit is {limit}")
        if is_code(name) and name.endswith(".h") and "#pragma once" not in lines:
            faults.append(f"{name}: no #pragma once")
    return faults


def check_commits(since, root=ROOT):
    """Checks that the commits behind `since`, merges too, have a body that says why. If that commit is not there, as in a clone without
    its history or a release without git, there is nothing to check."""
    listing = subprocess.run(["git", "log", "-z", "--format=%h %s%n%b", f"{since}..HEAD"], cwd=root, capture_output=True, text=True)
    found = [commit.strip().partition("\n") for commit in listing.stdout.split("\0")] if since and not listing.returncode else []
    return [f"commit {subject}: its body says nothing; git commit --amend" for subject, _, body in found if subject and not body.strip()]


def check_scripts(files):
    faults = []
    for name in files:
        with open(ROOT / name, "rb") as file:
            first = file.readline()
        if first.startswith(b"#!") and first.rstrip().endswith(b"sh"):
            status, output = run(["bash" if b"bash" in first else "sh", "-n", name])
            faults += [output.strip()] if status else []
        if name.endswith(".py"):
            try:
                compile((ROOT / name).read_text(encoding="utf-8"), name, "exec")
            except SyntaxError as error:
                faults.append(f"{name}:{error.lineno}: {error.msg}")
    return faults


def check_page(files, root=ROOT):
    """Checks that the page in web/dist was built from its source: web/tools/stamp.mjs writes the hashes of both to web/dist.sha256."""

    def sha(name):
        return hashlib.sha256((root / name).read_bytes()).hexdigest()

    sources = sorted(f for f in files if f.startswith(PAGE_SOURCES))
    all_sources = hashlib.sha256("".join(f"{f.removeprefix('web/')}\0{sha(f)}\n" for f in sources).encode()).hexdigest()
    built = sorted(f for f in files if f.startswith("web/dist/"))
    now = {"sources": all_sources} | {f.removeprefix("web/"): sha(f) for f in built}
    lines = (root / "web/dist.sha256").read_text(encoding="utf-8").splitlines()
    stamped = {name: value for value, name in (line.split("  ", 1) for line in lines)}
    fix = "cd web && npm ci && npm run build"
    return [f"web: {name} is not what web/dist.sha256 says; {fix}" for name in sorted(now | stamped) if now.get(name) != stamped.get(name)]


def commands():
    """Returns the compile command of each source file in a build of single files."""
    file = BUILD / "compile_commands.json"
    if not file.is_file():
        return {}
    entries = json.loads(file.read_text(encoding="utf-8"))
    return {os.path.relpath(e["file"], ROOT): e["command"] for e in entries}


def flags_of(command):
    """Returns the flags of a compile command that clang needs to read a header of the same room."""
    words = shlex.split(command)
    pairs = [f"-isystem{path}" for flag, path in zip(words, words[1:]) if flag == "-isystem"]
    return pairs + [w for w in words if w.startswith(("-I", "-D", "-std=", "-m", "-isystem/"))]


def check_headers(files, seen):
    """Checks that each header and each fuzzer, which no usual preset builds, compiles alone. Headers that their own .cc includes first
    are skipped: clang-tidy reads that .cc."""
    by_file = commands()

    def work(name):
        body = name.removesuffix(".h") + ".cc"
        if body in by_file:
            includes = check_floors.includes_of(ROOT, body)
            if includes and includes[0][1] == name:
                return []
        if seen.is_untouched(name):
            return []
        near = max(by_file, key=lambda f: len(os.path.commonprefix([f, name])), default=None)
        if near is None:
            return [f"{name}: nothing is built yet; ./hocket build"]
        flags = flags_of(by_file[near])
        if name.endswith(FUZZER):
            flags.append('-DBUNDLED_MODEL=""')  # fuzz/CMakeLists.txt
        key = seen.key(name, "header", *flags)
        if seen.passed(key):
            return []
        command = [CLANG, "-fsyntax-only", "-Wall", "-Wno-pragma-once-outside-header", "-x", "c++", *flags, name]
        status, output = run(command)
        if status:
            return [f"{name}: does not compile alone\n{output.strip()}"]
        seen.remember(key)
        return []

    return each("headers", [f for f in files if is_code(f) and f.endswith((".h", FUZZER))], work)


def check_tidy(files, seen):
    by_file = commands()
    rules = (ROOT / ".clang-tidy").read_text(encoding="utf-8")
    version = (ROOT / "tools/requirements.txt").read_text(encoding="utf-8")
    # Tests are not tidied, since clang-tidy would report GoogleTest's macros; the compiler's warnings apply to them.
    sources = [f for f in files if is_code(f) and f in by_file and not f.endswith("_test.cc")]
    sources = sorted((f for f in sources if not seen.is_untouched(f)), key=lambda f: -(ROOT / f).stat().st_size)

    def work(name):
        key = seen.key(name, rules, version, by_file[name], *TIDY_ARGUMENTS)
        if seen.passed(key):
            return []
        status, output = run([TIDY, *TIDY_ARGUMENTS, name])
        if not status:
            seen.remember(key)
            return []
        text = re.sub(r"^\d+ warnings? .*\n?", "", output, flags=re.MULTILINE).strip()
        return [text.replace(f"{ROOT}/", "")]

    return each("tidy", sources, work)


def check_rust(_):
    cargo, manifest = shutil.which("cargo"), ROOT / "rust/Cargo.toml"
    if not cargo or not manifest.is_file():
        return []
    faults = []
    for tool, arguments in (("fmt", ["--check"]), ("clippy", CLIPPY_ARGUMENTS)):
        if run([cargo, tool, "--version"])[0]:
            print(f"          cargo {tool} is not installed here: skipped")
            continue
        environment = dict(os.environ, CARGO_TARGET_DIR=str(ROOT / "build/rust-clippy"))
        status, output = run([cargo, tool, "--manifest-path", manifest, *arguments], env=environment)
        faults += [output.strip()] if status else []
    return faults


def fix(files):
    code = [f for f in files if is_code(f)]
    status, output = run([FORMAT, "-i", *code]) if code else (0, "")
    cargo = shutil.which("cargo")
    if cargo and (ROOT / "rust/Cargo.toml").is_file() and not run([cargo, "fmt", "--version"])[0]:
        run([cargo, "fmt", "--manifest-path", ROOT / "rust/Cargo.toml"])
    print(output, end="")
    return status


CHECKS = {  # by the name of the part: its line of help, and its work
    "floors": ("rooms include only what tools/floors.txt allows", lambda files, seen: check_floors.check(ROOT)),
    "text": ("widths, lengths, comments, cited files", lambda files, seen: check_text(files)),
    "words": ("names of types and files mean what docs/words.md says", lambda files, seen: check_words.check(files)),
    "members": (f"classes have at most {check_members.MAX_MEMBERS} data members", lambda files, seen: check_members.check(files, ROOT)),
    "map": ("the map of rooms in docs/architecture.md", lambda files, seen: docs_map.check(ROOT)),
    "scripts": ("shell and Python scripts can be parsed", lambda files, seen: check_scripts(files)),
    "page": ("web/dist was built from the source beside it", lambda files, seen: check_page(files)),
    "format": ("clang-format would change nothing", lambda files, seen: check_format(files)),
    "commits": ("commits since the one in tools/tidied.txt say why", lambda files, seen: check_commits(tidied_commit())),
    "headers": ("each header compiles alone", check_headers),
    "rust": ("cargo fmt and clippy", lambda files, seen: check_rust(files)),
    "tidy": ("clang-tidy", check_tidy),
}


def parse(words):
    """Returns the options. Exits with the status 2 and an error if a word is none."""
    parts = "\n".join(f"  {name:<9} {about}" for name, (about, _) in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="./hocket lint",
        usage="%(prog)s [--all] [PART...]",
        description="Checks the project's rules that a machine can check.",
        epilog=f"parts, of which all run if none is named:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # ./hocket reads these words too
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="the only checks to run")
    parser.add_argument("--all", action="store_true", help="check files too that have not changed since all passed")
    parser.add_argument("--fix", action="store_true", help="reformat files instead")
    options = parser.parse_args(words)
    for part in options.parts:
        if part not in CHECKS:
            parser.error(f"{part} is not a part of lint; there are {', '.join(CHECKS)}")
    if options.fix and options.parts:
        parser.error("--fix only reformats files, so name no parts")
    return options


def main(words):
    options = parse(words)
    files = tracked_files()
    if options.fix:
        return fix(files)
    chosen = {name: work for name, (_, work) in CHECKS.items() if not options.parts or name in options.parts}
    seen = Seen(ROOT, SEEN, None if options.all else changed_since_tidied())
    broken = 0
    for name, work in chosen.items():
        began = time.monotonic()
        faults = list(dict.fromkeys(work(files, seen)))
        broken += len(faults)
        for fault in faults:
            print(fault)
        verdict = "ok" if not faults else f"{len(faults)} faults"
        print(f"{name:<9} {verdict:<22} {time.monotonic() - began:.1f} s", flush=True)
    if options.all and len(chosen) == len(CHECKS) and not broken and not run(["git", "status", "--porcelain"])[1]:
        TIDIED.write_text(run(["git", "rev-parse", "HEAD"])[1], encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
