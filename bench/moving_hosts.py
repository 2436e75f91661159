#!/usr/bin/env python3
"""Experts that move while ranks on hosts of namespaces serve: the time of steps before, during and after. Needs root.

    bench/moving_hosts.py RANKS RATE [flags of serve]      bench/moving_hosts.py 2 1gbit --quantization int8

It serves shape small with random weights, with HOCKET_BIN or build/release/hocket. A first service counts which experts the
rows choose; the second begins with the busiest experts of each layer on rank 0, the worst place for them, and moves them
while the same requests run. Streams of random tokens keep the number of rows even.
"""

import json
import os
import pathlib
import random
import secrets
import statistics
import sys
import tempfile
import threading
import time
import urllib.error

from serving_hosts import BINARY, SMALL, netns, wait_ready

STREAMS_OF_A_RANK = int(os.environ.get("STREAMS", "16"))
NEW_TOKENS = 400
COUNTED_S = 8
BEFORE_S, AFTER_S, MOST_S = 12, 12, 120
PORT = 30000


def call(host, path, body=None):
    """Returns the JSON, or text, of an answer of the rank on this host."""
    with host.connect(PORT, 120) as socket:
        text = json.dumps(body).encode() if body is not None else b""
        verb = "POST" if body is not None else "GET"
        head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
        socket.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        parts = []
        while part := socket.recv(1 << 16):
            parts.append(part)
    answer = b"".join(parts).split(b"\r\n\r\n", 1)[1]
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode()


class Traffic:
    """Clients that ask each rank for answers of NEW_TOKENS tokens until it is closed."""

    def __init__(self, hosts):
        self.open = True
        self.threads = [threading.Thread(target=self.ask, args=(host, i), daemon=True) for i, host in enumerate(hosts) for _ in range(STREAMS_OF_A_RANK)]
        for thread in self.threads:
            thread.start()

    def ask(self, host, seed):
        draw = random.Random(seed + id(threading.current_thread()))
        while self.open:
            ids = [draw.randrange(10, 30000) for _ in range(32)]
            body = {"input_ids": ids, "sampling_params": {"max_new_tokens": NEW_TOKENS, "ignore_eos": True, "temperature": 1}}
            try:
                call(host, "/generate", body)
            except (OSError, urllib.error.URLError, IndexError):
                time.sleep(0.2)

    def close(self):
        self.open = False


class Service:
    """The ranks, one a host."""

    def __init__(self, hosts, folder, flags):
        token = folder / "token"
        token.write_text(secrets.token_hex(), encoding="utf-8")
        token.chmod(0o600)
        cores = sorted(os.sched_getaffinity(0))
        serve = [BINARY, "serve", "--load-format", "dummy", "--model-path", str(folder), "--nnodes", str(len(hosts))]
        serve += ["--dist-init-addr", "h0:5000", "--cluster-token-file", str(token), "--max-total-tokens", "32768", "--dp-routing", "round-robin"]
        self.ranks = []
        for i, host in enumerate(hosts):
            with open(folder / f"log{i}", "wb") as log:
                command = [*serve, *flags, "--node-rank", str(i), "--cpu-bind", str(cores[i % len(cores)])]
                self.ranks.append(host.start(command, stdout=log, stderr=log))
        wait_ready(hosts[0], folder / "log0")

    def close(self):
        for rank in self.ranks:
            rank.terminate()
        for rank in self.ranks:
            rank.wait()


def metrics(host):
    found = {}
    for line in call(host, "/metrics").splitlines():
        if line.startswith("hocket:"):
            name, value = line.rsplit(" ", 1)
            name, _, labels = name[len("hocket:") :].partition("{")
            if not (name == "num_steps_total" and "idle" in labels):
                found[name] = found.get(name, 0) + float(value)
    return found


def worst_places(counts, ranks):
    """The busiest experts of each layer on rank 0, the next on rank 1 and so on."""
    return [sorted(range(len(layer)), key=lambda e, of=layer: -of[e]) for layer in counts]


def unevenness(counts, places, ranks):
    """Largest / mean load of ranks, as a mean of the layers."""
    each = len(places[0]) // ranks
    loads = [[sum(layer[e] for e in place[r * each : (r + 1) * each]) for r in range(ranks)] for layer, place in zip(counts, places, strict=True)]
    return statistics.mean(max(load) / statistics.mean(load) for load in loads if sum(load))


def main(count, rate, *flags):
    if netns.why_not():
        sys.exit(f"no hosts here: {netns.why_not()}")
    ranks = int(count)
    with tempfile.TemporaryDirectory() as name, netns.Hosts(ranks, rate) as hosts:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        service = Service(hosts, folder, [*flags, "--expert-distribution-recorder-mode", "stat"])
        traffic = Traffic(hosts)
        time.sleep(COUNTED_S)
        records = [call(host, "/dump_expert_distribution_record", {}) for host in hosts]
        traffic.close()
        service.close()
        counts = [[sum(of) for of in zip(*layers, strict=True)] for layers in zip(*(record["logical_count"] for record in records), strict=True)]
        places = worst_places(counts, ranks)
        inside = list(range(len(counts[0])))
        print(f"busiest rank / mean: {unevenness(counts, [inside] * len(counts), ranks):.2f} in order, {unevenness(counts, places, ranks):.2f} at worst")
        (folder / "places.json").write_text(json.dumps({"physical_to_logical_map": places}), encoding="utf-8")
        moving = ["--enable-eplb", "--eplb-rebalance-num-iterations", os.environ.get("ITERATIONS", "300")]
        service = Service(hosts, folder, [*flags, "--init-expert-location", str(folder / "places.json"), *moving])
        traffic = Traffic(hosts)
        samples = []  # (time, steps, step seconds, layers moved, rebalances)
        begin = time.monotonic()
        moved_at = None
        while time.monotonic() - begin < MOST_S and (moved_at is None or time.monotonic() - moved_at < AFTER_S):
            now = metrics(hosts[0])
            info = call(hosts[0], "/get_server_info")["expert_moves"]
            samples.append((time.monotonic(), now["num_steps_total"], info["layers"], info["rebalances"], info["layers_left"]))
            if info["rebalances"] > 0 and info["layers_left"] == 0:
                moved_at = moved_at or time.monotonic()
            time.sleep(0.2)
        traffic.close()
        info = [call(host, "/get_server_info")["expert_moves"] for host in hosts]
        service.close()
        report(samples, info)
        log = (folder / "log0").read_text()
        print("\n".join(line for line in log.splitlines() if "experts move" in line or "have moved" in line or "could not" in line))
    return 0


def rates(samples, inside):
    """Milliseconds of a step in each interval between two samples for which `inside` holds."""
    found = []
    for (t0, n0, *a), (t1, n1, *b) in zip(samples, samples[1:], strict=False):
        if inside(a, b) and n1 > n0:
            found.append((t1 - t0) / (n1 - n0) * 1e3)
    return found


def report(samples, info):
    first = samples[0][0] + 3  # streams begin
    samples = [s for s in samples if s[0] >= first]
    before = rates(samples, lambda a, b: b[1] == 0)
    during = rates(samples, lambda a, b: a[1] > 0 and a[2] > 0 or (a[1] == 0 and b[1] > 0))
    after = rates(samples, lambda a, b: a[1] > 0 and a[2] == 0 and b[2] == 0)
    base = statistics.median(before) if before else float("nan")
    for name, times in (("before", before), ("during", during), ("after", after)):
        if times:
            print(f"{name:7} step {statistics.median(times):.2f} ms, {statistics.median(times) / base:.3f} x before, {len(times)} samples, worst {max(times):.2f} ms")
        else:
            print(f"{name:7} no samples")
    print(f"moved   {sum(one['experts'] for one in info)} experts, {sum(one['bytes'] for one in info) / 1e6:.1f} MB, {sum(one['load_seconds'] for one in info):.2f} s of cores; checks {info[0]['checks']}, rebalances {info[0]['rebalances']}")
    if info[0]["steps"]:
        print(f"ledger  {info[0]['steps']} steps while experts moved, {info[0]['step_seconds'] / info[0]['usual_seconds']:.3f} x like steps before")
    last = info[0]["last_check"]
    print(f"work    mean / largest {last['balancedness_before']:.3f} -> {last['balancedness_after']:.3f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
