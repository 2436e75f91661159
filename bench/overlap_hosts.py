#!/usr/bin/env python3
"""bench overlap --real between two hosts of namespaces, a core each, at several link rates. Needs root.

    bench/overlap_hosts.py [--link-gbit 0.2,1,2.5,10] [flags of bench overlap]      HOCKET_BIN or build/release/hocket

    bench/overlap_hosts.py --json > real.jsonl; bench/overlap_plot.py real.jsonl docs/img
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import netns

BINARY = str(pathlib.Path(os.environ.get("HOCKET_BIN", ROOT / "build/release/hocket")).resolve())
HOSTS = 2
LINKS = "0.2,1,2.5,10"


def play(gbit, flags):
    cores = sorted(os.sched_getaffinity(0))
    with netns.Hosts(HOSTS, f"{gbit * 1000:.0f}mbit") as hosts:
        bench = [BINARY, "bench", "overlap", "--real", "--num-ranks", HOSTS, "--addr", "h0:7000", "--own-gbit", gbit, *flags]
        ranks = []
        for i, host in enumerate(hosts):
            ranks.append(host.start(["taskset", "-c", cores[i % len(cores)], *bench, "--rank", i]))
        return max(rank.wait() for rank in ranks)


def main(flags):
    if netns.why_not():
        sys.exit(f"no hosts here: {netns.why_not()}")
    links = LINKS
    if "--link-gbit" in flags:
        at = flags.index("--link-gbit")
        links = flags[at + 1]
        del flags[at : at + 2]
    return max(play(float(gbit), flags) for gbit in links.split(","))


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
