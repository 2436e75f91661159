"""Runs `hocket serve` as several processes, in hosts of their own or on this machine, with the bundled model.

    with Cluster(2) as ranks:                         two processes here
    with Hosts(2) as hosts, Cluster(2, hosts) as ranks:     one a host

The binary is that of HOCKET_BIN, else build/release/hocket. All processes are killed at the end; their logs are in
`folder`, which is kept if a case failed.
"""

import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import client
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("HOCKET_BIN", ROOT / "build/release/hocket"))
MODEL = ROOT / "models/hocket-tiny-qwen3-moe"
HTTP_PORT, CLUSTER_PORT = 30000, 5000  # in hosts of their own
READY_S = 60
LISTENS, CLOSED_BY_PEER = "0A", "08"  # states in /proc/net/tcp
# Small, so that many ranks fit on a machine. With round-robin every port passes requests to every rank.
COMMON = {"--model-path": MODEL, "--max-total-tokens": 32768, "--max-running-requests": 16, "--num-threads": 1}
COMMON |= {"--cpu-bind": "none", "--dp-routing": "round-robin"}
ANIMALS = ("cat", "dragon", "small bear", "bird", "fox", "dog", "old owl", "mouse")
QUESTIONS = [f"{'Once upon a time, ' * (i % 3)}there was a {animal} who" for i, animal in enumerate(ANIMALS)]


class Process:
    """One `hocket serve`, which may start more ranks of its host; all of them print to the file `log`."""

    def __init__(self, log, host, flags, variables):
        self.log_path, self.host, self.flags, self.variables = log, host, flags, variables
        self.running, self.num_starts = None, 0

    def start(self):
        self.num_starts += 1
        # The kernel kills it when this program ends, however that happens.
        command = ["setpriv", "--pdeathsig", "KILL", "--", BINARY, "serve"]
        command += [word for name, value in self.flags.items() for word in ([name] if value is True else [name, value])]
        command = (self.host.inside() if self.host else []) + [str(word) for word in command]
        variables = os.environ | {name: str(value) for name, value in self.variables.items()}
        with open(self.log_path, "ab") as log:
            self.running = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=variables
            )

    def signal(self, number):
        self.running.send_signal(number)

    def kill(self):
        """Sends SIGKILL and waits for its end."""
        self.running.kill()
        self.running.wait(10)

    def alive(self):
        return self.running.poll() is None

    def exit_status(self, limit_s):
        return self.running.wait(limit_s)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def rss_bytes(self):
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def open_files(self):
        """Counts open files without connections that the peer has closed: those are kept for a while and then closed."""
        return len(self._open()) - len(self._sockets(CLOSED_BY_PEER))

    def listens_at(self):
        """Returns the (host, port) pairs on which it listens."""
        return {(socket.inet_ntoa(int(host, 16).to_bytes(4, sys.byteorder)), int(port, 16)) for host, port in self._sockets(LISTENS)}

    def _open(self):
        targets = []
        for entry in os.scandir(f"/proc/{self.running.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                targets.append(os.readlink(entry.path))
        return targets

    def _sockets(self, state):
        """Returns the local addresses, in hex, of this process's TCP sockets in `state`."""
        rows = [line.split() for line in Path(f"/proc/{self.running.pid}/net/tcp").read_text().splitlines()[1:]]
        own = set(self._open())
        return [row[1].split(":") for row in rows if row[3] == state and f"socket:[{row[9]}]" in own]


class Cluster:
    """Ranks that serve as one, started together. `style` is "flags" or "variables", by which each learns its rank.

    With `store`, an address for --cluster-store, no rank is told where rank 0 is.
    """

    def __init__(self, num_ranks, hosts=None, ranks_per_node=1, flags=None, style="flags", start=True, store=""):
        self.num_ranks, self.hosts, self._start = num_ranks, hosts, start
        self.folder = Path(tempfile.mkdtemp(prefix="hocket_ranks_"))
        self.token_file = self.folder / "token"
        self.token_file.write_text(secrets.token_hex(16) + "\n")
        self.token_file.chmod(0o600)
        self.cluster_port = CLUSTER_PORT if hosts else free_port()
        self.address = f"h0:{CLUSTER_PORT}" if hosts else f"127.0.0.1:{self.cluster_port}"
        self._per_node, self._store = ranks_per_node, store
        nodes = num_ranks // ranks_per_node
        self._ports = [HTTP_PORT if hosts else free_port(ranks_per_node) for _ in range(nodes)]
        self.processes = [self.process(node, flags, style) for node in range(nodes)]

    def process(self, node, flags=None, style="flags", name=""):
        """Makes a process that is not started yet. `flags` by name are added to the usual ones or replace them."""
        nodes, variables = self.num_ranks // self._per_node, {}
        words = COMMON | {"--port": self._ports[node], "--cluster-token-file": self.token_file}
        if style == "flags":
            words |= {"--nnodes": nodes, "--node-rank": node}
            words |= {"--cluster-store": self._store} if self._store else {"--dist-init-addr": self.address}
            words |= {"--ranks-per-node": self._per_node} if self._per_node > 1 else {}
        else:
            host, port = self.address.split(":")
            variables = {"RANK": node, "WORLD_SIZE": nodes, "MASTER_ADDR": host, "MASTER_PORT": port}
        host = self.hosts[node] if self.hosts else None
        return Process(self.folder / f"{name or f'node{node}'}.log", host, words | (flags or {}), variables)

    def __enter__(self):
        try:
            if self._start:
                for process in self.processes:
                    process.start()
                self.wait_ready()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, failed=None, *_):
        for process in self.processes:
            if process.running and process.alive():
                process.signal(signal.SIGCONT)
                process.kill()
        if failed and issubclass(failed, Exception):
            self._print_logs()
        else:
            shutil.rmtree(self.folder)

    def _print_logs(self):
        print(f"logs: {self.folder}")
        for path in sorted(self.folder.glob("*.log")):
            lines = [line for line in path.read_text(errors="replace").splitlines() if " batch, " not in line]
            print(f"-- {path.name}", *lines[-40:], sep="\n")

    def http_ports(self):
        return [port + local for port in self._ports for local in range(self._per_node)]

    def connect(self, rank, timeout):
        node, local = divmod(rank, self._per_node)
        port = self._ports[node] + local
        if self.hosts:
            return self.hosts[node].connect(port, timeout)
        return socket.create_connection(("127.0.0.1", port), timeout)

    def call(self, rank, path, body=None, timeout=30):
        return client.call(functools.partial(self.connect, rank), path, body, timeout)

    def stream(self, rank, prompt, max_tokens, limit_s=60, more=None):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True} | (more or {})
        return client.Stream(functools.partial(self.connect, rank), body, limit_s)

    def readiness(self, rank):
        """Returns status and text of /readyz; status 0 if the rank does not answer."""
        try:
            status, _, text = self.call(rank, "/readyz", timeout=2)
            return status, text
        except (OSError, client.http.client.HTTPException) as error:
            return 0, str(error)

    def wait_ready(self, limit_s=READY_S):
        """Waits until every rank is ready; returns the seconds that it took."""
        began = time.monotonic()
        for rank in range(self.num_ranks):
            while (state := self.readiness(rank))[0] != 200:
                process = self.processes[rank // self._per_node]
                assert process.alive(), f"rank {rank} ended with status {process.running.returncode}"
                assert time.monotonic() - began < limit_s, f"rank {rank} is not ready after {limit_s} s: {state}"
                time.sleep(0.02)
        return time.monotonic() - began

    def wait_listening(self, rank, limit_s=10):
        """Waits until a rank answers, ready or not."""
        deadline = time.monotonic() + limit_s
        while (state := self.readiness(rank))[0] == 0:
            assert time.monotonic() < deadline, f"rank {rank} does not listen after {limit_s} s: {state}"
            time.sleep(0.02)

    def wait_doors(self, limit_s=10):
        """Waits until every rank knows the addresses to which it passes requests."""
        deadline = time.monotonic() + limit_s
        for rank in range(self.num_ranks):
            while any(peer["address"] is None for peer in self.info(rank)["peers"] if peer["rank"] != rank):
                assert time.monotonic() < deadline, f"rank {rank} knows only {self.info(rank)['peers']}"
                time.sleep(0.05)

    def info(self, rank):
        status, _, text = self.call(rank, "/get_server_info")
        assert status == 200, text
        return json.loads(text)

    def wait_lost(self, name, ranks, limit_s):
        """Waits until /readyz of each of `ranks` is 503 and names `name`. Returns the seconds until the last, and each rank's text."""
        began, said = time.monotonic(), {}
        while len(said) < len(ranks):
            for rank in ranks:
                status, text = self.readiness(rank)
                if rank not in said and status == 503 and name in text:
                    said[rank] = text
            waited = time.monotonic() - began
            missing = [rank for rank in ranks if rank not in said]
            assert not missing or waited < limit_s, f"after {waited:.1f} s {missing} do not say {name}: {self.readiness(missing[0])}"
            time.sleep(0.02)
        return time.monotonic() - began, said

    def metric(self, rank, name):
        status, _, text = self.call(rank, "/metrics")
        assert status == 200, text
        values = re.findall(rf"^hocket:{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
        assert values, f"rank {rank} has no hocket:{name}"
        return sum(map(float, values))

    def check_pages(self, rank, limit_s=5):
        """Waits until no request runs or waits at the rank, and everything in its pools is free or cached: pages, and those of window layers and states where the model has them."""
        deadline = time.monotonic() + limit_s
        while True:
            running, waiting = (self.metric(rank, f"num_{kind}_reqs") for kind in ("running", "queue"))
            pools = {pool: [self.metric(rank, f"num_{kind}{pool}") for kind in ("", "free_", "cached_")] for pool in ("pages", "window_pages", "states")}
            if running + waiting == 0 and all(total == free + cached for total, free, cached in pools.values()):
                return
            told = f"{running} running, {waiting} waiting; all, free and cached: {pools}"
            assert time.monotonic() < deadline, f"rank {rank} after {limit_s} s: {told}"
            time.sleep(0.1)

    def generate(self, rank, text):
        """Returns tokens and log-probabilities of a greedy answer, and of one sampled with a seed."""
        told = []
        for sampling in ({"temperature": 0}, {"temperature": 0.8, "sampling_seed": 5}):
            body = {"text": text, "return_logprob": True, "sampling_params": {"max_new_tokens": 24, "ignore_eos": True, **sampling}}
            status, _, answer = self.call(rank, "/generate", body)
            assert status == 200, answer
            told.append((json.loads(answer)["output_ids"], json.loads(answer)["meta_info"]["output_token_logprobs"]))
        return told

    def answers(self, rank, questions=QUESTIONS):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda text: self.generate(rank, text), questions))


class OneRank(Cluster):
    """One process without a network."""

    def __init__(self, flags=None):
        super().__init__(1)
        self.processes[0].flags = COMMON | {"--port": self._ports[0]} | (flags or {})


@functools.cache
def answers_of_one_rank():
    with OneRank() as one:
        return one.answers(0)


def texts_of_one_rank(prompts, max_tokens, more=None):
    """Returns the texts of streams; `more` has the further fields of each."""
    return _texts_of_one_rank(prompts, max_tokens, json.dumps(more or [{}] * len(prompts)))


@functools.cache
def _texts_of_one_rank(prompts, max_tokens, more):
    with OneRank() as one:
        streams = [one.stream(0, prompt, max_tokens, more=fields) for prompt, fields in zip(prompts, json.loads(more))]
        texts = [stream.finish(60).text for stream in streams]
        assert all(stream.done for stream in streams), [stream.tells() for stream in streams]
        return texts
