#!/usr/bin/env python3
"""Times prefixes that are kept in stores or come from another service, on services of this machine with random weights.

    bench/kept_prefixes.py tiers --shape mid
        time to the first token of a known prompt of 8,192 tokens: computed, from the pool, files, a Redis (if redis-server or
        valkey-server is installed) and a peer. The pages of files in memory, and those of the pool in eight bits:
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dir /dev/shm
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dtype int8
    bench/kept_prefixes.py writes
        prompts and answers with files written behind, beside a service that writes none
    bench/kept_prefixes.py agents
        100 conversations of 20 turns that take turns over a pool that holds 10 of them, with files and without
    bench/kept_prefixes.py apart
        prefill apart from decode beside two services that do both, at three loads; on two hosts of 10 Gbit/s:
            bench/kept_prefixes.py apart --link 10gbit

HOCKET_BIN or build/release/hocket is measured; --shape small or mid, in int4. Each service of `apart` has a core of its own,
and with --link a host of namespaces of its own, which needs root.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from serving_hosts import BINARY, SMALL, netns

SHAPES = {
    "small": SMALL,
    "mid": SMALL
    | {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "head_dim": 128,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "intermediate_size": 8192,
    },
}
READY_S = 300
PAGE_TOKENS = 32
# By the figure: tokens of an answer, since all but `tiers` time answers, and limits of each side or load.
OUTPUT_LEN = {"tiers": 1, "writes": 128, "agents": 8, "apart": 128}
SECONDS = {"agents": 270, "apart": 100}
POOL_TOKENS = 65536
AGENTS_IN_POOL = 10


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else 0.0


class Answer:
    def __init__(self):
        self.ttft = 0.0
        self.gaps = []
        self.cached = 0
        self.ids = []


class Service:
    def __init__(self, folder, options, *flags, host=None):
        self.host = host
        self.port = free_port()
        self.log = pathlib.Path(folder, f"log-{self.port}")
        command = [BINARY, "serve", "--load-format", "dummy", "--model-path", folder, "--quantization", "int4", "--port", str(self.port)]
        command += ["--max-total-tokens", str(options.pool_tokens), "--kv-cache-dtype", options.kv_cache_dtype, *flags]
        with open(self.log, "wb") as log:
            start = host.start if host else subprocess.Popen
            self.process = start(command, stdout=log, stderr=log)
        until = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError):
                if self.call("GET", "/readyz")[0] == 200:
                    return
            if time.monotonic() > until or self.process.poll() is not None:
                self.process.kill()
                sys.exit(f"the service is not ready; it says:\n{self.log.read_text()}")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def connect(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        if self.host:
            client.sock = self.host.connect(self.port, 300)
        return client

    def call(self, method, path, body=None):
        client = self.connect()
        client.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = client.getresponse()
        return answer.status, answer.read().decode()

    def metric(self, name):
        text = self.call("GET", "/metrics")[1]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split()[0] == f"hocket:{name}")

    def flush(self):
        until = time.monotonic() + 60
        while self.call("POST", "/flush_cache")[0] != 200:
            assert time.monotonic() < until, "the cache cannot be flushed"
            time.sleep(0.05)

    def ask(self, ids, num_tokens=1, since=None):
        """Returns the answer; `since`: when the request was due, if that was earlier."""
        body = {"input_ids": ids, "stream": True, "sampling_params": {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True}}
        text = json.dumps(body)
        answer = Answer()
        last = since or time.monotonic()
        client = self.connect()
        client.request("POST", "/generate", text, {"Content-Type": "application/json"})
        response = client.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            event = json.loads(line[6:])
            assert "meta_info" in event, event
            answer.cached = event["meta_info"]["cached_tokens"]
            answer.ids = event["output_ids"]
            if answer.ttft:
                answer.gaps.append(now - last)
            else:
                answer.ttft = now - last
            last = now
        client.close()
        return answer


def prompt(seed, num_tokens):
    draw = random.Random(seed)
    return [draw.randrange(100, 31900) for _ in range(num_tokens)]


def wait_for(is_so, what):
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, f"not within 60 s: {what}"
        time.sleep(0.05)


def wait_written(service, least):
    """Waits until that many pages are written or left out, and no more follow."""

    def num_done():
        return service.metric("backuped_pages_total") + service.metric("kv_store_left_out_pages_total")

    wait_for(lambda: num_done() >= least, f"{least} pages are written")
    seen = -1
    while num_done() != seen:
        seen = num_done()
        time.sleep(0.5)


def run_threads(targets):
    """Runs all at once. If any fails, so does this."""
    failures = []

    def guarded(target):
        try:
            target()
        except BaseException as reason:  # also an assertion
            failures.append(reason)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(threads)} clients failed") from failures[0]


def summary(values):
    return f"{statistics.median(values):8.3f} s ({min(values):.3f}-{max(values):.3f})"


@contextlib.contextmanager
def redis_address(folder):
    """Starts a Redis without files; nothing if none is installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if not program:
        yield None
        return
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def answers():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_for(answers, "Redis answers")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def run_tiers(folder, options):
    ids = prompt(1, options.input_len)
    num_pages = options.input_len // PAGE_TOKENS
    peer_flags = ("--kv-cache-dir", options.pages, "--kv-cache-listen", f"127.0.0.1:{free_port()}")
    computed = []

    def show(name, service, want):
        """Times the prompt while memory is empty."""
        got = []
        for _ in range(options.rounds):
            service.flush()
            answer = service.ask(ids)
            left_out = service.metric("kv_store_left_out_pages_total")
            assert answer.cached > options.input_len - 64 and answer.ids == want, (answer.cached, left_out)
            got.append(answer.ttft)
        print(f"{name:<13} {summary(got)} {statistics.median(computed) / statistics.median(got):.0f} x", flush=True)

    with Service(folder, options, *peer_flags) as files:
        computed += [files.ask(prompt(10 + i, options.input_len)).ttft for i in range(options.rounds)]
        first = files.ask(ids)
        computed.append(first.ttft)
        print(f"computed      {summary(computed)}", flush=True)
        pool = [files.ask(ids).ttft for _ in range(options.rounds)]
        print(f"from the pool {summary(pool)}", flush=True)
        wait_written(files, (options.rounds + 1) * num_pages)
        show("from files", files, first.ids)
        with Service(folder, options, "--kv-cache-peers", peer_flags[-1]) as other:
            other.ask(prompt(9, 512))  # the first request of a service sets memory up
            show("from a peer", other, first.ids)
    with redis_address(folder) as address:
        if address:
            with Service(folder, options, "--kv-cache-store", address) as stored:
                assert stored.ask(ids).ids == first.ids
                wait_written(stored, num_pages)
                show("from a Redis", stored, first.ids)
    with Service(folder, options, *peer_flags) as again:
        begin = again.ask(ids)
        assert begin.cached > options.input_len - 64 and begin.ids == first.ids
        print(f"after a start {begin.ttft:8.3f} s, its first request", flush=True)


def run_writes(folder, options):
    with Service(folder, options) as plain, Service(folder, options, "--kv-cache-dir", options.pages) as files:
        ratios, sums = [], {plain: 0.0, files: 0.0}
        for i in range(options.rounds):
            took = {}
            for service in (plain, files) if i % 2 == 0 else (files, plain):
                begin = time.monotonic()
                service.ask(prompt(i, options.input_len), options.output_len)
                took[service] = time.monotonic() - begin
                sums[service] += took[service]
                if service is files:  # the rest of its writes would slow the other one down
                    wait_written(files, (i + 1) * (options.input_len // PAGE_TOKENS))
            ratios.append(took[files] / took[plain])
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
        print(
            f"{options.input_len} + {options.output_len} tokens, {options.rounds} times | without files {sums[plain]:.2f} s | "
            f"with files {sums[files]:.2f} s | ratio of pairs {statistics.mean(ratios):.4f} +- {error:.4f} (standard error), median "
            f"{statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f}) | "
            f"pages written {files.metric('backuped_pages_total'):.0f}, left out {files.metric('kv_store_left_out_pages_total'):.0f}"
        )


def run_agents(folder, options):
    """Sessions whose turns come round robin, a number of them at once."""
    first, step, output = options.first_tokens, options.step_tokens, options.output_len
    for name, flags in (("files", ("--kv-cache-dir", options.pages)), ("memory alone", ())):
        if options.only and options.only != name:
            continue
        with Service(folder, options, *flags) as service:
            history = [prompt(1000 + i, first) for i in range(options.sessions)]
            known = [0] * options.sessions
            begin, again, asked, ttft, lock = time.monotonic(), 0, 0, [], threading.Lock()
            turns = iter([i for _ in range(options.turns) for i in range(options.sessions)])

            def client(service=service, history=history, known=known, turns=turns, lock=lock, ttft=ttft):
                nonlocal again, asked
                while True:
                    with lock:
                        i = next(turns, None)
                    if i is None or time.monotonic() - begin > options.seconds:
                        return
                    answer = service.ask(history[i], output)
                    with lock:
                        ttft.append(answer.ttft)
                        asked += len(history[i])
                        again += max(0, known[i] - answer.cached)
                    known[i] = len(history[i]) + len(answer.ids) - 1
                    history[i] += answer.ids + prompt(len(history[i]) * 1000 + i, step)

            run_threads([client] * options.clients)
            took = time.monotonic() - begin
            print(
                f"{name:<12} | {len(ttft)} of {options.sessions * options.turns} turns in {took:.1f} s, {len(ttft) / took:.1f} a second | prompts {asked} tokens, "
                f"{again} of them computed again | first token p50 {1000 * quantile(ttft, 0.5):.0f} ms, p99 {1000 * quantile(ttft, 0.99):.0f} ms | "
                f"evicted pages {service.metric('num_evicted_pages_total'):.0f}, read {service.metric('kv_store_read_pages_total'):.0f}, "
                f"left out {service.metric('kv_store_left_out_pages_total'):.0f}",
                flush=True,
            )


def put_load(services, options, rate):
    """Sends requests at random times, `rate` a second, to the services in turn; returns the answers and the seconds they took."""
    draw = random.Random(7)
    answers, clients = [], []
    begin = time.monotonic()
    due = begin
    for i in range(max(8, int(rate * options.seconds))):
        due += draw.expovariate(rate)
        ids = prompt(5000 + i, draw.randint(options.input_len // 2, options.input_len * 3 // 2))

        def client(i=i, ids=ids, due=due):
            time.sleep(max(0, due - time.monotonic()))
            answers.append(services[i % len(services)].ask(ids, options.output_len, due))

        clients.append(client)
    run_threads(clients)
    return answers, time.monotonic() - begin


def run_apart(folder, options):
    cores = sorted(os.sched_getaffinity(0))
    token = pathlib.Path(folder, "token")
    token.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    token.chmod(0o600)
    hosts = netns.Hosts(2, options.link) if options.link else contextlib.nullcontext([None, None])
    address = "h0:8998" if options.link else f"127.0.0.1:{free_port()}"
    listen = "0.0.0.0:8998" if options.link else address

    def core(i):
        return ("--cpu-bind", str(cores[i % len(cores)]), "--num-threads", "1", "--cluster-token-file", str(token))

    def measure(name, services):
        for rate in [float(r) for r in options.rates.split(",")]:
            for one in services:
                one.flush()
            answers, took = put_load(services, options, rate)
            gaps = [g for a in answers for g in a.gaps]
            ttft = [a.ttft for a in answers]
            tokens = sum(len(a.gaps) + 1 for a in answers)
            print(
                f"{name:<6} | {rate} requests a second, {len(answers)} in {took:.1f} s | {tokens / took:.1f} tokens/s | ITL p50 "
                f"{1000 * quantile(gaps, 0.5):.1f} ms, p99 {1000 * quantile(gaps, 0.99):.1f} ms, most {1000 * max(gaps):.0f} ms | first token p50 "
                f"{quantile(ttft, 0.5):.2f} s, p99 {quantile(ttft, 0.99):.2f} s",
                flush=True,
            )

    @contextlib.contextmanager
    def pair(places, first=(), second=()):
        with Service(folder, options, *core(0), *first, host=places[0]) as one, Service(folder, options, *core(1), *second, host=places[1]) as two:
            yield one, two

    with hosts as places:
        if options.only in ("", "mixed"):
            with pair(places) as services:
                measure("mixed", services)
        if options.only in ("", "apart"):
            prefill = ("--disaggregation-mode", "prefill", "--kv-cache-listen", listen, "--kv-cache-dir", options.pages)
            decode = ("--disaggregation-mode", "decode", "--disaggregation-prefill-url", address)
            with pair(places, prefill, decode) as (_, two):
                measure("apart", [two])
                print(f"       | prompts computed apart {two.metric('kv_peer_prefills_total'):.0f}, failures {two.metric('kv_peer_failures_total'):.0f}")


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=OUTPUT_LEN)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--input-len", type=int, default=8192, help="tokens of a prompt")
    parser.add_argument("--output-len", type=int, help=f"tokens of an answer; {OUTPUT_LEN}")
    parser.add_argument("--pool-tokens", type=int, help=f"{POOL_TOKENS}; `agents`: those of {AGENTS_IN_POOL} whole conversations")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--first-tokens", type=int, default=256, help="the first prompt of a conversation of `agents`")
    parser.add_argument("--step-tokens", type=int, default=32, help="what each further turn adds to it, beside the answer")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, help="limit of each side of `agents` (270), length of each load of `apart` (100)")
    parser.add_argument("--rates", default="0.2,0.4,0.6")
    parser.add_argument("--only", default="", help="one side of `agents` or `apart`")
    parser.add_argument("--link", default="", help="rate between the two hosts of `apart`, as 10gbit; none: one host")
    parser.add_argument("--kv-cache-dir", default="", help="the folder below which pages are written, as /dev/shm; default: that of temporary files")
    parser.add_argument("--kv-cache-dtype", default="auto")
    options = parser.parse_args(words)
    if options.output_len is None:
        options.output_len = OUTPUT_LEN[options.what]
    if options.seconds is None:
        options.seconds = SECONDS.get(options.what)
    if options.pool_tokens is None:
        whole = options.first_tokens + options.turns * (options.step_tokens + options.output_len)
        options.pool_tokens = AGENTS_IN_POOL * -(-whole // PAGE_TOKENS) * PAGE_TOKENS if options.what == "agents" else POOL_TOKENS
    return options


def main():
    options = read_options()
    options.pages = ""
    folder = tempfile.mkdtemp(prefix="hocket-kept-")
    try:
        pathlib.Path(folder, "config.json").write_text(json.dumps(SHAPES[options.shape]), encoding="utf-8")
        options.pages = tempfile.mkdtemp(prefix="hocket-kept-", dir=options.kv_cache_dir or folder)
        {"tiers": run_tiers, "writes": run_writes, "agents": run_agents, "apart": run_apart}[options.what](folder, options)
    finally:
        shutil.rmtree(options.pages, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
