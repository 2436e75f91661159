#!/usr/bin/env python3
"""Prints the licences of other people's work in a built hocket: of the given libraries, and of what is compiled in.

    deploy/licences.py BUILD [LIBRARY...]      wants dpkg-query, and the crates that `./hocket build` fetched
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ("/usr/include/nlohmann/json.hpp", "/usr/include/CLI/CLI.hpp")  # Boost's licence asks nothing of a program
CRATE_LICENCES = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)
COMMON = re.compile(r"/usr/share/common-licenses/[\w.+-]*\w")


def output(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def debian_package(file):
    """Yields name and licence of the Debian package that owns the file. /lib may be a link to /usr/lib, and packages name either."""
    real = str(Path(file).resolve())
    owner = output("dpkg-query", "-S", real, real.removeprefix("/usr")).split(":")[0]
    if not owner:
        raise SystemExit(f"error: no package owns {file}, so its licence is unknown\n  fix: take the library of a Debian package")
    version = output("dpkg-query", "-W", "-f=${Version}\n", owner).splitlines()[0]
    yield f"{owner} {version}, from Debian", Path(f"/usr/share/doc/{owner}/copyright").read_text(encoding="utf-8")


def crates(cargo):
    """Yields name and licence of each crate in the lock file, as cargo has unpacked it."""
    words = ("--offline", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu", "--manifest-path", ROOT / "rust/Cargo.toml")
    listed = output(cargo, "metadata", *words)
    if not listed:
        raise SystemExit("error: cargo does not find the crates here\n  fix: ./hocket build")
    for crate in json.loads(listed)["packages"]:
        if crate["source"] is None:
            continue
        folder = Path(crate["manifest_path"]).parent
        files = sorted(file for file in [*folder.iterdir(), *folder.glob("oniguruma/*")] if CRATE_LICENCES.match(file.name) and file.is_file())
        for text in [file.read_text(encoding="utf-8", errors="replace") for file in files] or [crate["license"]]:
            yield f"{crate['name']} {crate['version']}, a crate under {crate['license']}", text


def page_packages():
    """Yields name and licence of each package in the page."""
    texts = (ROOT / "web/licences.txt").read_text(encoding="utf-8").split("\n=== ")[1:]
    for text in texts:
        name, _, licence = text.partition("\n")
        yield name, licence


def main():
    build, *libraries = sys.argv[1:] or [ROOT / "build/release"]
    cargo = re.search(r"^CARGO:\w+=(.+)$", (Path(build) / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE).group(1)
    found = {}  # names by licence: many share one
    for source in (*map(debian_package, sorted(libraries)), *map(debian_package, HEADERS), crates(cargo), page_packages()):
        for name, text in source:
            names = found.setdefault(text.strip(), [])
            if name not in names:
                names.append(name)
    print("hocket is under the Apache License 2.0. It contains the work of others, under these licences.")
    for text, names in found.items():
        print("\n\n=== " + "\n=== ".join(names) + "\n\n" + text)
    for file in sorted({file for text in found for file in COMMON.findall(text)}):
        print(f"\n\n=== {file}\n\n{Path(file).read_text(encoding='utf-8').strip()}")


if __name__ == "__main__":
    main()
