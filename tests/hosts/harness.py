"""Runs cases, each a function, and prints a line for each in the form that tools/run_tests.py reads."""

import argparse
import subprocess
import sys
import time
import traceback

import netns
from cluster import BINARY


class Skip(Exception):
    """The case cannot run on this machine; the text says why."""


def need_hosts():
    if reason := netns.why_not():
        raise Skip(reason)


def need_ucx():
    told = subprocess.run([BINARY, "version"], capture_output=True, text=True, check=True).stdout
    ucx = next(line for line in told.splitlines() if line.startswith("ucx "))
    if not ucx[4:5].isdigit():
        raise Skip(ucx)


def run(cases, given):
    """Runs cases (name, function). A case fails by any exception and may return a remark. Returns True if none failed.

    Exits with an error if there is no such piece, or no case in it: nothing would be tested.
    """
    piece, pieces = map(int, given.piece.split("/"))
    if not 0 <= piece < pieces:
        sys.exit(f"error: --piece {given.piece}: I is 0 to N - 1")
    chosen = [(name, case) for name, case in cases if given.only in name][piece::pieces]
    if not chosen:
        sys.exit(f"error: --piece {given.piece} --only {given.only!r} holds no case; take fewer pieces, or a part of a name")
    passed = True
    for name, case in chosen:
        began = time.monotonic()
        try:
            need_ucx()
            remark = case()
        except Skip as reason:
            print(f"skipped {name}  {reason}", flush=True)
        except Exception:
            passed = False
            traceback.print_exc()
            print(f"FAILED  {name}  {time.monotonic() - began:.1f} s", flush=True)
        else:
            print(f"ok      {name}  {time.monotonic() - began:.1f} s{f', {remark}' if remark else ''}", flush=True)
    return passed


def arguments(description, table=False):
    """Parses --only WORD, --piece I/N, and --table if the program has a table."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their name")
    parser.add_argument("--piece", default="0/1", metavar="I/N", help="cases I, I + N, I + 2 N, ... of these, from 0")
    if table:
        parser.add_argument("--table", action="store_true", help="every fault, at its full length, as a table")
    return parser.parse_args()
