"""Pages that are made from the flags, and the site to which they belong."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BINARY, ROOT, run


def test_the_page_of_flags_is_what_the_program_says():
    made, kept = run(BINARY, "docs", "flags"), (ROOT / "docs/flags.md").read_text(encoding="utf-8")
    assert made == kept, "the flags have changed: build/release/hocket docs flags > docs/flags.md"


def test_a_page_without_the_program_that_measures_is_refused_and_not_cut(tmp_path):
    shutil.copy(BINARY, tmp_path / "hocket")
    for page in ("flags", "man", "completion"):
        done = subprocess.run([tmp_path / "hocket", "docs", page], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stdout == "", page
        assert f"{tmp_path}/hocket-bench cannot be started" in done.stderr and "./hocket build makes it" in done.stderr
    fields = subprocess.run([tmp_path / "hocket", "docs", "fields"], capture_output=True, text=True, timeout=60)
    assert fields.returncode == 0 and json.loads(fields.stdout)  # it asks no other program


@pytest.fixture(scope="module")
def serve_flags():
    return {flag["name"]: flag for flag in json.loads(run(BINARY, "serve", "--help=json"))["flags"]}


def test_help_says_the_same_as_the_page(serve_flags):
    shown = set(re.findall(r"^  (?:-\w,)?--([a-z0-9-]+)", run(BINARY, "serve", "--help"), re.M))
    assert shown - {"config", "help"} == set(serve_flags)
    assert serve_flags["port"]["default"] == "30000"
    assert serve_flags["context-length"]["variable"] == "HOCKET_CONTEXT_LENGTH"


def test_an_unknown_form_of_help_is_refused():
    done = subprocess.run([BINARY, "serve", "--help=html"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "json, markdown, man or words" in done.stderr


def test_every_bench_is_on_the_page():
    names = run(BINARY, "bench", "--help").split("hocket bench ")[1].split(", or")[0].split(" | ")
    page = (ROOT / "docs/flags.md").read_text(encoding="utf-8")
    for name in names:
        assert f"## hocket bench {name}\n" in page


def test_the_fields_of_every_path_that_takes_a_body_are_told():
    fields = {one["path"]: one["fields"] for one in json.loads(run(BINARY, "docs", "fields"))}
    assert fields["/v1/chat/completions"]["n"] == {"kind": "integer", "low": 1, "high": 64}
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8").split("## Rules for all requests")[0]
    posts = {path for names in re.findall(r"^\| (`/[^|]*) \| [A-Z, ]*POST", page, re.M) for path in re.findall(r"`([^`]+)`", names)}
    without = {"/tokenizer_info", "/flush_cache", "/stop_profile", "/stop_...", "/dump_expert_distribution_record"}
    without |= {"/sessions/{id}/save", "restore", "delete", "/slots/{n}?action=..."}  # their paths have parts that vary
    assert posts - without == fields.keys()


def complete(line):
    """Returns the words that bash offers after `line`."""
    words = line.split(" ")
    script = (
        f"source <({BINARY} docs completion); COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1};"
        " _hocket; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    return set(run("bash", "-c", script).split())


def test_bash_completes_commands_and_flags(serve_flags):
    assert complete("hocket se") == {"serve"}
    assert {"serve", "run", "docs", "help"} <= complete("hocket ")
    assert complete("hocket serve --context-l") == {"--context-length"}
    assert {f"--{name}" for name in serve_flags} <= complete("hocket serve --")
    assert "one-batch" in complete("hocket bench one")


def compared():
    """Yields for each row of the tables in docs/comparison.md: its topic, hocket's cell, and the tests it names as (file, names)."""
    for line in (ROOT / "docs/comparison.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 9 or cells[0].startswith("-") or cells[8] == "Test":
            continue
        named = re.findall(r"`([^`]+)`([^`;]*)", cells[8])
        yield cells[0], cells[1], [(file, re.findall(r"\btest_\w+|\b[A-Z]\w+[A-Z]\w*", names)) for file, names in named]


def sources():
    """Returns all files of the project but those that a build makes, relative to its root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - {".git", "build", "node_modules"})
        found += [str((Path(folder) / name).relative_to(ROOT)) for name in sorted(names)]
    return found


def test_every_claim_of_the_comparison_has_its_test():
    """Each feature that the comparison claims for hocket names a test, and a test of that name exists."""
    files = sources()
    rows = list(compared())
    assert len(rows) > 60
    for about, ours, named in rows:
        assert named or not ours.startswith(("●", "◐")), f"{about}: which test?"
        for file, names in named:
            if file.startswith("hocket "):
                continue  # a command
            there = [f for f in files if f"/{f}".endswith(f"/{file}") or f.startswith(f"{file}/")]
            assert there, f"{about}: there is no {file}"
            text = "".join((ROOT / f).read_text(encoding="utf-8", errors="ignore") for f in there) if names else ""
            assert all(name in text for name in names), f"{about}: not all of {names} are in {file}"


def site_links():
    spec = importlib.util.spec_from_file_location("site_links", ROOT / "tools/site_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "written, shown",
    [
        ("[`deploy.sh`](../deploy/deb.sh)", "`deploy.sh` (`deploy/deb.sh`)"),
        ("[`deploy/deb.sh`](../deploy/deb.sh)", "`deploy/deb.sh`"),
        ("[a page](api.md#errors)", "[a page](api.md#errors)"),
        ("[nothing](../deploy/nothing)", "[nothing](../deploy/nothing)"),
        ("![a picture](../hocket)", "![a picture](../hocket)"),
        ("[away](https://example.com/a)", "[away](https://example.com/a)"),
    ],
)
def test_links_out_of_the_site_become_names(written, shown):
    assert site_links().rewrite(written, "install.md") == shown


def test_the_site_builds_strictly(tmp_path):
    """The site has no broken link or anchor, and no page loads anything from another host."""
    environment = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    said = run(sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", tmp_path, cwd=ROOT, env=environment)
    assert "WARNING" not in said
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        loads = re.findall(r'<(?:script|link|img)[^>]*?(?:src|href)="(https?://[^"]+)"', page.read_text(encoding="utf-8"))
        assert not [url for url in loads if "rel=\"canonical\"" not in url], f"{page.name} loads {loads}"
