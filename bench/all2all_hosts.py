#!/usr/bin/env python3
"""bench all2all on this machine, and between two hosts of namespaces with a link of 1 Gbit/s. Needs root for the second.

    bench/all2all_hosts.py [build/release/hocket] [flags of bench all2all]
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "hosts"))
import netns

GBIT = 1


def between_hosts(bench):
    with netns.Hosts(2, f"{GBIT}gbit") as hosts, tempfile.NamedTemporaryFile("w", suffix=".sh") as reach:
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
        flags = ["--addr", "h0:7000", "--link-gbit", GBIT, "--mpirun", mpirun]
        ranks = [host.start([*bench, *flags, "--rank", i]) for i, host in enumerate(hosts)]
        return max(rank.wait() for rank in ranks)


def main(arguments):
    binary = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "build/release/hocket"
    bench = [str(pathlib.Path(binary).resolve()), "bench", "all2all", *arguments]
    print("one machine", flush=True)
    status = subprocess.run(bench).returncode
    if netns.why_not():
        sys.exit(f"no hosts here: {netns.why_not()}")
    print(f"two hosts, {GBIT} Gbit/s", flush=True)
    return max(status, between_hosts(bench))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
