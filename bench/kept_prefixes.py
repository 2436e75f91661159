#!/usr/bin/env python3
"""Times prefixes that come from files, a Redis or another service, on services of this machine with random weights.

    bench/kept_prefixes.py tiers --shape mid
        time to the first token of a known prompt of 8,192 tokens: computed, from the pool, files, a Redis (if redis-server or
        valkey-server is installed) and a peer. Files were written just before, so they are in the page cache; a row "cold" has
        taken them out of it first. The pages of files in memory, and those of the pool in eight bits:
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dir /dev/shm
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dtype int8
    bench/kept_prefixes.py slots --shape mid --peer-server PATH --peer-model FILE
        the same prompt after a session was saved and restored, compared with a slot of llama.cpp's llama-server
    bench/kept_prefixes.py writes
        prompts and answers on a service that writes files in the background, compared with one that writes none; says
        whether that costs at most 2 % until the answer ends; the time of writes that are left then is not measured
    bench/kept_prefixes.py agents
        100 interleaved conversations of 20 turns on a KV pool that holds 10 of them, with files and without, compared over
        the turns that both have done within --seconds
    bench/kept_prefixes.py apart
        prefill apart from decode beside two services that do both, at three loads of about two minutes, each of the same prompts
        for both and of none that another load had; on two hosts of 10 Gbit/s:
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
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "hosts"))
from llama_server import LlamaServer
from ports import free_port
from serving_hosts import BINARY, SMALL, netns
from started_server import StartedServer

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
# By the figure: tokens of an answer, since all but `tiers` and `slots` time answers, and limits of each side or load.
OUTPUT_LEN = {"tiers": 1, "slots": 1, "writes": 128, "agents": 8, "apart": 128}
SECONDS = {"agents": 270, "apart": 90}
# One slow core computes about 375 tokens of prompts a second in shape small: the largest load of `apart` takes 4/5 of one.
INPUT_LEN = {"apart": 1024}
ROUNDS = {"slots": 3, "writes": 12}
WRITES_LIMIT = 1.02
SESSION = "kept"
POOL_TOKENS = 65536
AGENTS_IN_POOL = 10


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else 0.0


class Answer:
    def __init__(self):
        self.ttft = 0.0
        self.gaps = []
        self.cached = 0
        self.asked = 0
        self.ids = []


class Service(StartedServer):
    def __init__(self, folder, options, *flags, host=None):
        self.host, self.timeout = host, options.timeout
        self.port = free_port()
        self.log = pathlib.Path(folder, f"log-{self.port}")
        command = [BINARY, "serve", "--load-format", "dummy", "--model-path", folder, "--quantization", "int4", "--port", str(self.port)]
        command += ["--max-total-tokens", str(options.pool_tokens), "--kv-cache-dtype", options.kv_cache_dtype, *flags]
        self.begin(command, self.log, READY_S, host.start if host else subprocess.Popen)

    def is_ready(self):
        return self.call("GET", "/readyz")[0] == 200

    def connect(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        if self.host:
            client.sock = self.host.connect(self.port, self.timeout)
        return client

    def call(self, method, path, body=None):
        client = self.connect()
        client.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = client.getresponse()
        return answer.status, answer.read().decode()

    def metric(self, name, label=""):
        text = self.call("GET", "/metrics")[1]
        named = [line for line in text.splitlines() if line.split("{")[0].split()[0] == f"hocket:{name}"]
        return sum(float(line.split()[-1]) for line in named if label in line)

    def num_computed(self):
        return self.metric("realtime_tokens_total", 'mode="prefill_compute"')

    def change_session(self, action):
        """Saves or restores the session; returns the seconds that took."""
        begin = time.monotonic()
        status, text = self.call("POST", f"/sessions/{SESSION}/{action}")
        assert status == 200, text
        return time.monotonic() - begin

    def flush(self):
        until = time.monotonic() + 60
        while self.call("POST", "/flush_cache")[0] != 200:
            assert time.monotonic() < until, "the cache cannot be flushed"
            time.sleep(0.05)

    def ask(self, ids, num_tokens=1, since=None, session=None):
        """Returns the answer; `since`: when the request was due, if that was earlier."""
        body = {"input_ids": ids, "stream": True, "sampling_params": {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True}}
        if session:
            body["session_id"] = session
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


def take_out_of_page_cache(folder):
    """Returns why the files below the folder may be in memory still; empty if they are not."""
    files = [str(path) for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    for name in files:
        with contextlib.suppress(FileNotFoundError), open(name, "rb") as file:
            os.fdatasync(file.fileno())  # unwritten pages would stay in memory
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not shutil.which("fincore"):
        return "no fincore says whether the files are out of memory"
    kept = 0
    for begin in range(0, len(files), 500):
        asked = ["fincore", "--bytes", "--noheadings", "--output", "RES", *files[begin : begin + 500]]
        kept += sum(map(int, subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()))
    size = 0
    for name in files:
        with contextlib.suppress(FileNotFoundError):  # the server may have deleted it
            size += os.path.getsize(name)
    return f"{kept / 2**20:.0f} of {size / 2**20:.0f} MiB stay in memory" if kept > size / 20 else ""


def run_tiers(folder, options):
    ids = prompt(1, options.input_len)
    num_pages = options.input_len // PAGE_TOKENS
    peer_flags = ("--kv-cache-dir", options.pages, "--kv-cache-listen", f"127.0.0.1:{free_port()}")
    computed = []
    width = 38

    def show(name, service, want, cold=False):
        """Times the prompt while memory is empty; cold: the page cache, too."""
        got = []
        for _ in range(options.rounds):
            service.flush()
            warm = take_out_of_page_cache(options.pages) if cold else ""
            if warm:
                print(f"{name:<{width}} not measured: {warm}", flush=True)
                return
            answer = service.ask(ids)
            left_out = service.metric("kv_store_left_out_pages_total")
            assert answer.cached > options.input_len - 64 and answer.ids == want, (answer.cached, left_out)
            got.append(answer.ttft)
        print(f"{name:<{width}} {summary(got)} {statistics.median(computed) / statistics.median(got):.0f} x", flush=True)

    with Service(folder, options, *peer_flags) as files:
        computed += [files.ask(prompt(10 + i, options.input_len)).ttft for i in range(options.rounds)]
        first = files.ask(ids)
        computed.append(first.ttft)
        print(f"{'computed':<{width}} {summary(computed)}", flush=True)
        pool = [files.ask(ids).ttft for _ in range(options.rounds)]
        print(f"{'from the pool':<{width}} {summary(pool)}", flush=True)
        wait_written(files, (options.rounds + 1) * num_pages)
        show("from files in the page cache", files, first.ids)
        show("from files, cold", files, first.ids, cold=True)
        with Service(folder, options, "--kv-cache-peers", peer_flags[-1]) as other:
            other.ask(prompt(9, 512))  # the first request of a service sets memory up
            show("from a peer's files in the page cache", other, first.ids)
    with redis_address(folder) as address:
        if address:
            with Service(folder, options, "--kv-cache-store", address) as stored:
                assert stored.ask(ids).ids == first.ids
                wait_written(stored, num_pages)
                show("from a Redis", stored, first.ids)
    for name, cold in (("after a start, its first request", False), ("after a start, cold", True)):
        with Service(folder, options, *peer_flags) as again:
            warm = take_out_of_page_cache(options.pages) if cold else ""
            if warm:
                print(f"{name:<{width}} not measured: {warm}", flush=True)
                continue
            begin = again.ask(ids)
            assert begin.cached > options.input_len - 64 and begin.ids == first.ids
            print(f"{name:<{width}} {begin.ttft:8.3f} s", flush=True)


def show_restored(name, computed, restores, ttfts, note):
    """Prints a row: what restoring took, what the first token took behind it, and both beside computing."""
    both = [a + b for a, b in zip(restores, ttfts)]
    print(
        f"{name:<42} restore {summary(restores)} | first token {summary(ttfts)} | both {statistics.median(both):.3f} s, "
        f"{statistics.median(computed) / statistics.median(both):.1f} x | {note}",
        flush=True,
    )


def restarts():
    """The rows behind a restart: their end, and whether files are taken out of the page cache."""
    return (("after a restart", False), ("after a restart, cold", True))


def run_own_session(folder, options, ids):
    flags = ("--kv-cache-dir", options.pages)
    with Service(folder, options, *flags) as service:
        computed = [service.ask(prompt(10 + i, options.input_len)).ttft for i in range(options.rounds)]
        first = service.ask(ids, session=SESSION)
        computed.append(first.ttft)
        print(f"{'hocket, computed':<42} {summary(computed)} | save {service.change_session('save'):.3f} s", flush=True)

        def restored(one):
            took = one.change_session("restore")
            answer = one.ask(ids, session=SESSION)
            assert answer.ids == first.ids, "the same first token"
            return took, answer.ttft, options.input_len - answer.cached

        rows = []
        for _ in range(options.rounds):
            service.flush()
            rows.append(restored(service))
        show_restored("hocket, memory emptied", computed, [r[0] for r in rows], [r[1] for r in rows], f"{rows[-1][2]} tokens computed")
    for name, cold in restarts():
        with Service(folder, options, *flags) as service:
            warm = take_out_of_page_cache(options.pages) if cold else ""
            if warm:
                print(f"hocket, {name}: not measured: {warm}", flush=True)
                continue
            took, ttft, again = restored(service)
            show_restored(f"hocket, {name}", computed, [took], [ttft], f"{again} tokens computed")


def run_peer_slot(folder, options, ids):
    def start():
        flags = shlex.split(options.peer_flags)
        return LlamaServer(options.peer_server, options.peer_model, folder, free_port(), options.input_len + 256, flags, options.timeout)

    name = pathlib.Path(options.peer_server).name
    with start() as server:
        computed = []
        for i in range(options.rounds):
            computed.append(server.ask(prompt(10 + i, options.input_len))[0])
        ttft, want, again = server.ask(ids)
        assert again >= options.input_len - 1, "the first time, the whole prompt is computed"
        computed.append(ttft)
        print(f"{name + ', computed':<42} {summary(computed)} | save {server.change_slot('save'):.3f} s", flush=True)

        def restored(one):
            took = one.change_slot("restore")
            first, tokens, again = one.ask(ids)
            return took, first, f"{again} tokens computed, " + ("the same token" if tokens == want else "ANOTHER TOKEN")

        rows = []
        for _ in range(options.rounds):
            server.change_slot("erase")
            rows.append(restored(server))
        show_restored(f"{name}, slot erased", computed, [r[0] for r in rows], [r[1] for r in rows], rows[-1][2])
    for end, cold in restarts():
        with start() as server:
            warm = take_out_of_page_cache(server.slots) if cold else ""
            if warm:
                print(f"{name}, {end}: not measured: {warm}", flush=True)
                continue
            took, ttft, note = restored(server)
            show_restored(f"{name}, {end}", computed, [took], [ttft], note)


def run_slots(folder, options):
    ids = prompt(1, options.input_len)
    run_own_session(folder, options, ids)
    if options.peer_server:
        run_peer_slot(folder, options, ids)


def verdict(ratios):
    """Returns whether writing behind costs at most 2 %, with two standard errors of certainty, and the text that says so.
    The time of writes that are left when the answer ends is not in it."""
    if len(ratios) < 2:
        return None, "not known from one pair"
    mean, error = statistics.mean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5
    if mean + 2 * error <= WRITES_LIMIT:
        return True, "at most 2 % until the answer ends: yes"
    if mean - 2 * error > WRITES_LIMIT:
        return False, "at most 2 % until the answer ends: NO"
    return None, "at most 2 %: not known, the error is too large (more --rounds)"


def run_writes(folder, options):
    with Service(folder, options) as plain, Service(folder, options, "--kv-cache-dir", options.pages) as files:
        ratios, sums = [], {plain: 0.0, files: 0.0}
        for i in range(options.rounds + 1):
            took = {}
            for service in (plain, files) if i % 2 == 0 else (files, plain):
                begin = time.monotonic()
                service.ask(prompt(i, options.input_len), options.output_len)
                took[service] = time.monotonic() - begin
                if service is files:  # the rest of its writes would slow the other one down
                    wait_written(files, (i + 1) * (options.input_len // PAGE_TOKENS))
            if i == 0:
                continue  # the first request of a service sets memory up
            ratios.append(took[files] / took[plain])
            for service, seconds in took.items():
                sums[service] += seconds
        kept, text = verdict(ratios)
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
        print(
            f"{options.input_len} + {options.output_len} tokens, {options.rounds} times | without files {sums[plain]:.2f} s | "
            f"with files {sums[files]:.2f} s | ratio of pairs {statistics.mean(ratios):.4f} +- {error:.4f} (standard error), median "
            f"{statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f}) | {text} | "
            f"pages written {files.metric('backuped_pages_total'):.0f}, left out {files.metric('kv_store_left_out_pages_total'):.0f}"
        )
    return 1 if kept is False else 0


class Turns:
    """The turns that were done, by their number: all sides have the same ones in the same order."""

    def __init__(self):
        self.done = {}
        self.lock = threading.Lock()

    def add(self, number, **values):
        with self.lock:
            self.done[number] = values

    def num_first(self):
        """How many turns from the first were done without a gap."""
        count = 0
        while count in self.done:
            count += 1
        return count

    def line(self, count):
        turns = [self.done[i] for i in range(count)]
        took = max(t["ended"] for t in turns)
        ttft = [t["ttft"] for t in turns]
        return (
            f"first {count} turns in {took:.1f} s, {count / took:.1f} a second | prompts {sum(t['asked'] for t in turns)} tokens, "
            f"{sum(t['again'] for t in turns)} of them computed again | first token p50 {1000 * quantile(ttft, 0.5):.0f} ms, "
            f"p99 {1000 * quantile(ttft, 0.99):.0f} ms"
        )


def run_turns(service, options):
    """Sessions whose turns come round robin, a number of them at once, until --seconds have passed."""
    history = [prompt(1000 + i, options.first_tokens) for i in range(options.sessions)]
    known = [0] * options.sessions
    numbers, lock, turns = iter(range(options.sessions * options.turns)), threading.Lock(), Turns()
    begin = time.monotonic()

    def client():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None or time.monotonic() - begin > options.seconds:
                return
            i = number % options.sessions
            asked = len(history[i])
            answer = service.ask(history[i], options.output_len)
            again = max(0, known[i] - answer.cached)
            turns.add(number, ttft=answer.ttft, asked=asked, again=again, ended=time.monotonic() - begin)
            known[i] = asked + len(answer.ids) - 1
            history[i] += answer.ids + prompt(asked * 1000 + i, options.step_tokens)

    run_threads([client] * min(options.clients, options.sessions))
    return turns


def run_agents(folder, options):
    sides = {}
    for name, flags in (("files", ("--kv-cache-dir", options.pages)), ("memory alone", ())):
        if options.only and options.only != name:
            continue
        with Service(folder, options, *flags) as service:
            turns = sides[name] = run_turns(service, options)
            print(
                f"{name:<12} | {len(turns.done)} of {options.sessions * options.turns} turns within {options.seconds:.0f} s | evicted pages "
                f"{service.metric('num_evicted_pages_total'):.0f}, read {service.metric('kv_store_read_pages_total'):.0f}, "
                f"left out {service.metric('kv_store_left_out_pages_total'):.0f}",
                flush=True,
            )
    if not sides:
        sys.exit(f"--only {options.only}: agents has the sides files and memory alone")
    count = min(turns.num_first() for turns in sides.values())
    if count == 0:
        sys.exit("a side has not done its first turn; give it more --seconds")
    for name, turns in sides.items():
        print(f"{name:<12} | {turns.line(count)}")


def put_load(services, options, rate, load=0):
    """Sends requests at random times, `rate` a second, to the services in turn; returns the answers and the seconds they took.
    The prompts follow from the number of the load, and no other load has them, since pages outlive a load in files."""
    draw = random.Random(7 + load)
    answers, clients = [], []
    begin = time.monotonic()
    due = begin
    for i in range(max(8, int(rate * options.seconds))):
        due += draw.expovariate(rate)
        ids = prompt(1_000_000 * (load + 1) + i, draw.randint(options.input_len // 2, options.input_len * 3 // 2))

        def client(i=i, ids=ids, due=due):
            time.sleep(max(0, due - time.monotonic()))
            answer = services[i % len(services)].ask(ids, options.output_len, due)
            answer.asked = len(ids)
            answers.append(answer)

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

    def measure(name, services, doors):
        """Puts the loads to the doors, which are all of the services or some."""
        for load, rate in enumerate(float(r) for r in options.rates.split(",")):
            for one in services:
                one.flush()
            before = [one.num_computed() for one in services]
            answers, took = put_load(doors, options, rate, load)
            computed = [one.num_computed() - old for one, old in zip(services, before)]
            asked = sum(a.asked for a in answers)
            gaps = [g for a in answers for g in a.gaps]
            ttft = [a.ttft for a in answers]
            tokens = sum(len(a.gaps) + 1 for a in answers)
            print(
                f"{name:<6} | {rate} requests a second, {len(answers)} in {took:.1f} s | {tokens / took:.1f} tokens/s | ITL p50 "
                f"{1000 * quantile(gaps, 0.5):.1f} ms, p99 {1000 * quantile(gaps, 0.99):.1f} ms, most {1000 * max(gaps):.0f} ms | first token p50 "
                f"{quantile(ttft, 0.5):.2f} s, p99 {quantile(ttft, 0.99):.2f} s | computed {computed[0]:.0f} + {computed[1]:.0f} of {asked} "
                f"tokens of prompts",
                flush=True,
            )
            if sum(computed) < 0.95 * asked:
                sys.exit("prompts of this load were found in a cache, so its figures compare nothing")

    @contextlib.contextmanager
    def pair(places, first=(), second=()):
        with Service(folder, options, *core(0), *first, host=places[0]) as one, Service(folder, options, *core(1), *second, host=places[1]) as two:
            yield one, two

    with hosts as places:
        if options.only in ("", "mixed"):
            with pair(places) as services:
                measure("mixed", services, services)
        if options.only in ("", "apart"):
            prefill = ("--disaggregation-mode", "prefill", "--kv-cache-listen", listen, "--kv-cache-dir", options.pages)
            decode = ("--disaggregation-mode", "decode", "--disaggregation-prefill-url", address)
            with pair(places, prefill, decode) as (one, two):
                measure("apart", (one, two), [two])
                print(f"       | prompts computed apart {two.metric('kv_peer_prefills_total'):.0f}, failures {two.metric('kv_peer_failures_total'):.0f}")


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=OUTPUT_LEN)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--input-len", type=int, help="tokens of a prompt (8192, `apart`: 1024 on average)")
    parser.add_argument("--output-len", type=int, help=f"tokens of an answer; {OUTPUT_LEN}")
    parser.add_argument("--pool-tokens", type=int, help=f"{POOL_TOKENS}; `agents`: those of {AGENTS_IN_POOL} whole conversations")
    parser.add_argument("--rounds", type=int, help=f"repetitions of each row (5); {ROUNDS}")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--first-tokens", type=int, default=256, help="the first prompt of a conversation of `agents`")
    parser.add_argument("--step-tokens", type=int, default=32, help="what each further turn adds to it, beside the answer")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, help="limit of each side of `agents` (270), length of each load of `apart` (90)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a client waits for the next bytes of an answer")
    parser.add_argument("--rates", default="0.1,0.2,0.3", help="requests a second of the loads of `apart`")
    parser.add_argument("--only", default="", help="one side of `agents` or `apart`")
    parser.add_argument("--link", default="", help="rate between the two hosts of `apart`, as 10gbit; none: one host")
    parser.add_argument("--kv-cache-dir", default="", help="the folder below which pages are written, as /dev/shm; default: that of temporary files")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--peer-server", default="", help="`slots`: llama.cpp's llama-server")
    parser.add_argument("--peer-model", default="", help="`slots`: its model, a GGUF file with a vocabulary of 32,000 or more")
    parser.add_argument("--peer-flags", default="", help="`slots`: more flags for it, in one word")
    options = parser.parse_args(words)
    if options.output_len is None:
        options.output_len = OUTPUT_LEN[options.what]
    if options.input_len is None:
        options.input_len = INPUT_LEN.get(options.what, 8192)
    if options.rounds is None:
        options.rounds = ROUNDS.get(options.what, 5)
    if bool(options.peer_server) != bool(options.peer_model):
        parser.error("--peer-server and --peer-model go together")
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
        runs = {"tiers": run_tiers, "slots": run_slots, "writes": run_writes, "agents": run_agents, "apart": run_apart}
        return runs[options.what](folder, options) or 0
    finally:
        shutil.rmtree(options.pages, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
