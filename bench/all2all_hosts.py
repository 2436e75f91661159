#!/usr/bin/env python3
"""bench all2all on this machine, and between two hosts of namespaces, for each rate of their link. Needs root for the second.

    bench/all2all_hosts.py [build/release/hocket] [--link-gbit 1,10] [flags of bench all2all]
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "hosts"))
import netns

LINKS = "1"


def between_hosts(bench, gbit):
    with netns.Hosts(2, f"{gbit}gbit") as hosts, tempfile.NamedTemporaryFile("w", suffix=".sh") as reach:
        # mpirun starts its daemons with `reach h1 command...`.
        reach.write('#!/bin/sh\nhost=$1; shift\ncase $host in\n')
        for host in hosts:
            reach.write(f'{host.name}) exec {shlex.join(host.inside())} sh -c "$*" ;;\n')
        reach.write("esac\n")
        reach.flush()
        mpirun = (
            f"mpirun --allow-run-as-root --host {','.join(host.name for host in hosts)} --mca plm_rsh_agent 'sh {reach.name}'"
            " --mca plm_rsh_no_tree_spawn 1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"
        )
        flags = ["--addr", "h0:7000", "--link-gbit", gbit, "--mpirun", mpirun]
        ranks = [host.start([*bench, *flags, "--rank", i]) for i, host in enumerate(hosts)]
        return max(rank.wait() for rank in ranks)


def main(arguments):
    binary = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "build/release/hocket"
    links = LINKS
    if "--link-gbit" in arguments:
        at = arguments.index("--link-gbit")
        links = arguments[at + 1]
        del arguments[at : at + 2]
    bench = [str(pathlib.Path(binary).resolve()), "bench", "all2all", *arguments]
    print("one machine", flush=True)
    status = subprocess.run(bench).returncode
    if netns.why_not():
        sys.exit(f"no hosts here: {netns.why_not()}")
    for gbit in links.split(","):
        print(f"two hosts, {gbit} Gbit/s", flush=True)
        status = max(status, between_hosts(bench, gbit))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
