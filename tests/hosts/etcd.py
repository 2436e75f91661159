#!/usr/bin/env python3
"""Ranks that find each other by etcd: any rank is lost, also the one that coordinates, and any server of etcd.

    tests/hosts/etcd.py [--only WORD]      needs etcd (Debian: etcd-server); its servers run in folders of their own
"""

import base64
import contextlib
import functools
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import client
import faults
import harness
from cluster import Cluster, answers_of_one_rank
from faults import Fault, FaultResult, kill, start
from ports import free_port

TAKEN_OVER_S = 7  # from the end of the coordinator to the next one; the tests' machine is shared
AT_ONCE_S = 2.5  # the same if a process ends: less than what is left of its lease
AWAY_S = 8  # longer than any lease
READY_S = 30


class Etcd:
    """Servers of one etcd on this machine, or all on one host of namespaces."""

    def __init__(self, count, host=None):
        if not shutil.which("etcd"):
            raise harness.Skip("etcd is not installed: etcd-server")
        self.folder = Path(tempfile.mkdtemp(prefix="hocket_etcd_"))
        self._ports = [(free_port(), free_port()) for _ in range(count)]
        self._running = [None] * count
        self._host, self._address = host, host.address if host else "127.0.0.1"

    def __enter__(self):
        for i in range(len(self._ports)):
            self.start(i)
        deadline = time.monotonic() + READY_S
        while self.read("") is None:
            assert time.monotonic() < deadline, (self.folder / "0.log").read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        for i in range(len(self._ports)):
            self.kill(i)
        shutil.rmtree(self.folder)

    def start(self, i):
        here, peer = (f"http://{self._address}:{port}" for port in self._ports[i])
        members = ",".join(f"e{j}=http://{self._address}:{peer}" for j, (_, peer) in enumerate(self._ports))
        command = [*(self._host.inside() if self._host else ()), "setpriv", "--pdeathsig", "KILL", "--", "etcd", "--name", f"e{i}", "--data-dir", str(self.folder / f"e{i}")]
        command += ["--listen-client-urls", here, "--advertise-client-urls", here]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", members]
        with open(self.folder / f"{i}.log", "ab") as log:
            self._running[i] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, i):
        if self._running[i]:
            self._running[i].send_signal(signal.SIGKILL)
            self._running[i].wait(10)
            self._running[i] = None

    def place(self):
        return "etcd://" + ",".join(f"{self._address}:{port}" for port, _ in self._ports) + "/tests"

    def read(self, key):
        """Returns the value of a key of the service, "" if it is not there, None if etcd does not answer."""
        name = base64.b64encode(f"/hocket/tests/{key}".encode()).decode()
        for port, _ in self._ports:
            with contextlib.suppress(OSError, http.client.HTTPException):
                _, _, text = client.call(functools.partial(self._connect, port), "/v3/kv/range", {"key": name}, 5)
                found = json.loads(text).get("kvs")
                return base64.b64decode(found[0]["value"]).decode() if found else ""
        return None

    def _connect(self, port, timeout):
        if self._host:
            return self._host.connect(port, timeout, self._address)
        return socket.create_connection((self._address, port), timeout)

    def coordinator(self):
        """Returns the rank that has the seat; None if nobody has."""
        value = self.read("coordinator")
        return int(value.split()[1]) if value else None

    def epoch(self):
        return int((self.read("epoch") or "0").split()[0])

    def wait_coordinator(self, not_rank, limit_s):
        deadline = time.monotonic() + limit_s
        while (rank := self.coordinator()) in (None, not_rank):
            assert time.monotonic() < deadline, f"after {limit_s} s {rank} coordinates"
            time.sleep(0.05)
        return rank


@contextlib.contextmanager
def ranks_by_etcd(num_ranks, num_servers=1, flags=None):
    with Etcd(num_servers) as etcd, Cluster(num_ranks, store=etcd.place(), flags=flags) as ranks:
        yield ranks, etcd


def one_fault(fault, num_servers=1):
    """Tries a fault of faults.py: the same is asked of the ranks, whoever coordinates."""
    flags = faults.OVERLAPPED if fault.overlapped else None
    with ranks_by_etcd(fault.num_ranks, num_servers, flags) as (ranks, etcd):
        first = etcd.coordinator()
        row = faults.try_fault(fault, ranks, "one machine", 0)
        return f"{row}; rank {first} coordinated, then rank {etcd.coordinator()}"


def every_rank_in_turn():
    """Each time the rank that coordinates is killed; the others live on, take its role, and take it back."""
    with ranks_by_etcd(3) as (ranks, etcd):
        taken = []
        for _ in range(3):
            gone, epoch = etcd.coordinator(), etcd.epoch()
            streams = faults.start_streams(ranks)
            kill(gone)(ranks)
            began = time.monotonic()
            others = [rank for rank in range(3) if rank != gone]
            ranks.wait_lost(f"rank {gone}", others, faults.KNOWN_WITHIN_S)
            etcd.wait_coordinator(gone, TAKEN_OVER_S)
            taken.append(time.monotonic() - began)
            start(gone)(ranks)
            ranks.wait_ready(faults.BACK_S)
            assert etcd.epoch() > epoch and etcd.coordinator() in others
            row = FaultResult("in turn", "one machine")
            faults.see_whole(streams, [i for i in range(len(streams)) if i % 3 != gone], faults.GREEDY, row)
            for stream in streams:
                stream.finish(faults.CUT_S)
            for rank in range(3):
                assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise"
                ranks.check_pages(rank)
        assert min(taken) < AT_ONCE_S, f"taken over after {taken} s: the lease was waited for"
        return f"taken over after {max(taken):.2f} s at most"


def etcd_is_away():
    """Without etcd the service goes on, says so once, and takes back no rank before etcd is back."""
    with ranks_by_etcd(2) as (ranks, etcd):
        streams = faults.start_streams(ranks)
        etcd.kill(0)
        deadline = time.monotonic() + AWAY_S
        while time.monotonic() < deadline:
            for rank in range(2):
                assert ranks.readiness(rank)[0] == 200, ranks.readiness(rank)
            time.sleep(0.1)
        faults.see_whole(streams, list(range(len(streams))), faults.GREEDY, FaultResult("away", "one machine"))
        for rank in range(2):
            assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise"
            said = re.findall(r"cluster: etcd: .*the ranks continue in their epoch", ranks.processes[rank].log())
            assert len(said) == 1, said
        etcd.start(0)
        deadline = time.monotonic() + READY_S
        while not all("etcd answers again" in process.log() for process in ranks.processes):
            assert time.monotonic() < deadline, "the ranks do not find etcd again"
            time.sleep(0.1)
        # Changes are possible again.
        gone = etcd.wait_coordinator(None, TAKEN_OVER_S)
        kill(gone)(ranks)
        etcd.wait_coordinator(gone, TAKEN_OVER_S)
        start(gone)(ranks)
        ranks.wait_ready(faults.BACK_S)
        assert ranks.answers(0) == answers_of_one_rank()


def a_server_and_the_coordinator():
    """One of three servers of etcd and the rank that coordinates are killed at once."""
    with ranks_by_etcd(2, num_servers=3) as (ranks, etcd):
        gone = etcd.coordinator()
        etcd.kill(0)
        kill(gone)(ranks)
        ranks.wait_lost(f"rank {gone}", [1 - gone], faults.KNOWN_WITHIN_S)
        etcd.wait_coordinator(gone, TAKEN_OVER_S + 3)  # etcd may have to elect its own leader first
        start(gone)(ranks)
        ranks.wait_ready(faults.BACK_S)
        for rank in range(2):
            assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise"


def cases():
    of_0 = Fault("kill -9 of rank 0", kill(0), start(0), lost=0, links=False, num_ranks=3)
    of_1 = Fault("kill -9 of rank 1", kill(1), start(1), lost=1, links=False, num_ranks=3, overlapped=True)
    for fault in (of_0, of_1):
        yield f"etcd: {fault.name} of 3", functools.partial(one_fault, fault)
    yield "etcd: whoever coordinates is killed, three times", every_rank_in_turn
    yield "etcd: a server of three and the coordinator are killed", a_server_and_the_coordinator
    yield "etcd: it is away while the ranks serve", etcd_is_away


if __name__ == "__main__":
    sys.exit(not harness.run(cases(), harness.arguments(__doc__)))
