#!/usr/bin/env python3
"""Times prefixes that come from files, a Redis or another service, on services of this machine with random weights.

    bench/kept_prefixes.py tiers --shape mid
        time to the first token of a known prompt of 8,192 tokens: computed, from the pool, files, a Redis (if redis-server or
        valkey-server is installed) and a peer. Files were written just before, so they are in the page cache; a row "cold" has
        taken them out of it first. The pages of files in memory, and those of the pool in eight bits:
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dir /dev/shm
            bench/kept_prefixes.py tiers --shape mid --kv-cache-dtype int8
    bench/kept_prefixes.py slots --shape mid --peer-server PATH --peer-model FILE
        the same prompt after a session was saved and restored, compared with a slot of llama.cpp's llama-server; exits with 1
        if the peer's model has another shape, computes the prompt again or gives another token
    bench/kept_prefixes.py writes
        prompts and answers without a pause on a service that writes files in the background, compared with one that writes
        none; exits with 1 if that costs more than 2 %, with 2 if that is not known
    bench/kept_prefixes.py agents
        100 interleaved conversations of 20 turns on a KV pool that holds about 10 of them, with files and without, compared
        over the turns that both have done within --seconds
    bench/kept_prefixes.py apart
        prefill apart from decode beside two services that do both, at three loads and at one above capacity, each of the same
        prompts for both and of none that another load had; exits with 1 if prompts were not computed apart; on two hosts of
        10 Gbit/s:
            bench/kept_prefixes.py apart --link 10gbit

HOCKET_BIN or build/release/hocket is measured; --shape small or mid, in int4. Each service of `apart` has a core of its own,
and with --link a host of namespaces of its own, which needs root.
"""

import argparse
import contextlib
import http.client
import itertools
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
from llama_server import LlamaServer, gguf_shape
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
# By the figure: tokens of an answer, since all but `tiers` and `slots` time answers, and limits of each side, load or window.
OUTPUT_LEN = {"tiers": 1, "slots": 1, "writes": 128, "agents": 8, "apart": 128}
SECONDS = {"writes": 17, "agents": 270, "apart": 70}
INPUT_LEN = {"apart": 1024}
ROUNDS = {"slots": 3, "writes": 8}
# Shape mid takes long to start and longer to compute a prompt, so these two are repeated less often than other rows.
NUM_RESTARTS, NUM_COMPUTED = 2, 2
# The loads of `apart`, as shares of the prompts that one core computes, and the clients of the load above capacity.
SHARES, CLOSED_CLIENTS = (0.25, 0.5, 0.75), 16
# The pages that the loads of `apart` write with the defaults fit memory of this size twice.
SHARED_MEMORY, LEAST_SHARED_MEMORY = "/dev/shm", 8 * 2**30
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
        self.recomputed = 0
        self.asked = 0
        self.begun = 0.0
        self.ids = []

    def num_tokens_until(self, end):
        """How many tokens had come at that time."""
        times = itertools.accumulate(self.gaps, initial=self.begun + self.ttft)
        return sum(one <= end for one in times)


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
        last = answer.begun = since or time.monotonic()
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
            answer.recomputed = event["meta_info"].get("recomputed_tokens", 0)
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
    """Waits until that many pages are written or left out, and no more follow; returns the seconds until there were as many."""

    def num_done():
        return service.metric("backuped_pages_total") + service.metric("kv_store_left_out_pages_total")

    begin = time.monotonic()
    wait_for(lambda: num_done() >= least, f"{least} pages are written")
    took = time.monotonic() - begin
    seen = -1
    while num_done() != seen:
        seen = num_done()
        time.sleep(0.5)
    return took


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


def num_pages_of(num_tokens):
    return -(-num_tokens // PAGE_TOKENS)


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

    def row(name, got):
        print(f"{name:<{width}} {summary(got)} {statistics.median(computed) / statistics.median(got):.0f} x", flush=True)

    def checked(service, want):
        """Asks for the prompt, which must be cached and have the same token."""
        answer = service.ask(ids)
        left_out = service.metric("kv_store_left_out_pages_total")
        assert answer.cached > options.input_len - 64 and answer.ids == want, (answer.cached, left_out, answer.ids, want)
        return answer.ttft

    def show(name, service, want, cold=False):
        """Times the prompt while memory is empty; cold: the page cache, too."""
        got = []
        for _ in range(options.rounds):
            service.flush()
            warm = take_out_of_page_cache(options.pages) if cold else ""
            if warm:
                print(f"{name:<{width}} not measured: {warm}", flush=True)
                return
            got.append(checked(service, want))
        row(name, got)

    with Service(folder, options, *peer_flags) as files:
        files.ask(prompt(9, 512))  # the first request of a service sets memory up
        computed += [files.ask(prompt(10 + i, options.input_len)).ttft for i in range(min(options.rounds, NUM_COMPUTED))]
        first = files.ask(ids)
        assert first.cached == 0, "the first time, the whole prompt is computed"
        computed.append(first.ttft)
        print(f"{'computed':<{width}} {summary(computed)}", flush=True)
        num_read = files.metric("kv_store_read_pages_total")
        pool = [checked(files, first.ids) for _ in range(options.rounds)]
        assert files.metric("kv_store_read_pages_total") == num_read, "the pool has all of the prompt; give it more --pool-tokens"
        row("from the pool", pool)
        wait_written(files, len(computed) * num_pages)
        show("from files in the page cache", files, first.ids)
        show("from files, cold", files, first.ids, cold=True)
        with Service(folder, options, "--kv-cache-peers", peer_flags[-1]) as other:
            other.ask(prompt(9, 512))
            show("from a peer's files in the page cache", other, first.ids)
    with redis_address(folder) as address:
        if address:
            with Service(folder, options, "--kv-cache-store", address) as stored:
                assert stored.ask(ids).ids == first.ids
                wait_written(stored, num_pages)
                show("from a Redis", stored, first.ids)
        else:
            print(f"{'from a Redis':<{width}} not measured: neither redis-server nor valkey-server is installed", flush=True)
    for name, cold in (("after a start, its first request", False), ("after a start, cold", True)):
        got = []
        for _ in range(min(options.rounds, NUM_RESTARTS)):
            with Service(folder, options, *peer_flags) as again:
                warm = take_out_of_page_cache(options.pages) if cold else ""
                if warm:
                    print(f"{name:<{width}} not measured: {warm}", flush=True)
                    break
                got.append(checked(again, first.ids))
        if got:
            row(name, got)


def show_restored(name, computed, restores, ttfts, note):
    """Prints a row: what restoring took, what the first token took behind it, and both beside computing; returns the median of both."""
    both = [a + b for a, b in zip(restores, ttfts)]
    print(
        f"{name:<42} restore {summary(restores)} | first token {summary(ttfts)} | both {statistics.median(both):.3f} s, "
        f"{statistics.median(computed) / statistics.median(both):.1f} x | {note}",
        flush=True,
    )
    return statistics.median(both)


def restarts():
    """The rows behind a restart: their end, and whether files are taken out of the page cache."""
    return (("after a restart", False), ("after a restart, cold", True))


def round_note(rounds):
    num_same = sum(same for *_, same in rounds)
    token = "the same token" if num_same == len(rounds) else f"ANOTHER TOKEN in {len(rounds) - num_same} of {len(rounds)} rounds"
    return f"at most {max(again for _, _, again, _ in rounds)} tokens computed, {token}"


class RestoreTimes:
    """The rows of one server of `slots`: the medians by the name of the row, and whether all of its rounds passed their check."""

    def __init__(self, name, start, files, restored):
        """`start`: makes a server; `files`: the folder of what it saved; `restored`: restores once and returns what that took, what the
        first token took, how many tokens were computed and whether the token is the same."""
        self.name, self.start, self.files, self.restored = name, start, files, restored
        self.computed, self.medians, self.ok = [], {}, True

    def show(self, row, title, rounds):
        self.ok = self.ok and all(same and again < 2 * PAGE_TOKENS for _, _, again, same in rounds)
        self.medians[row] = show_restored(title, self.computed, [r[0] for r in rounds], [r[1] for r in rounds], round_note(rounds))

    def show_restarts(self, num):
        for end, cold in restarts():
            rounds = []
            for _ in range(num):
                with self.start() as server:
                    warm = take_out_of_page_cache(self.files) if cold else ""
                    if warm:
                        print(f"{self.name}, {end}: not measured: {warm}", flush=True)
                        break
                    rounds.append(self.restored(server))
            if rounds:
                self.show(end, f"{self.name}, {end}", rounds)


def run_own_session(folder, options, ids):
    def restored(one):
        took = one.change_session("restore")
        answer = one.ask(ids, session=SESSION)
        again = options.input_len - answer.cached
        assert answer.ids == first.ids and again < 2 * PAGE_TOKENS, ("the same first token, from what was saved", again)
        return took, answer.ttft, again, True

    rows = RestoreTimes("hocket", lambda: Service(folder, options, "--kv-cache-dir", options.pages), options.pages, restored)
    with rows.start() as service:
        service.ask(prompt(9, 512))  # the first request of a service sets memory up
        rows.computed += [service.ask(prompt(10 + i, options.input_len)).ttft for i in range(min(options.rounds, NUM_COMPUTED))]
        first = service.ask(ids, session=SESSION)
        assert first.cached == 0, "the first time, the whole prompt is computed"
        rows.computed.append(first.ttft)
        print(f"{'hocket, computed':<42} {summary(rows.computed)} | save {service.change_session('save'):.3f} s", flush=True)
        wait_written(service, 0)
        page_bytes = service.metric("kv_file_bytes") / max(1, service.metric("kv_files"))
        print(f"{'hocket, saved':<42} {page_bytes * (options.input_len // PAGE_TOKENS) / 2**20:.0f} MiB in files of {page_bytes / 2**10:.0f} KiB")
        rounds = []
        for _ in range(options.rounds):
            service.flush()
            rounds.append(restored(service))
        rows.show("memory emptied", "hocket, memory emptied", rounds)
    rows.show_restarts(min(options.rounds, NUM_RESTARTS))
    return rows


def run_peer_slot(folder, options, ids):
    def start():
        flags = shlex.split(options.peer_flags)
        return LlamaServer(options.peer_server, options.peer_model, folder, free_port(), options.input_len + 256, flags, options.timeout)

    def restored(one):
        took = one.change_slot("restore")
        ttft, tokens, again = one.ask(ids)
        return took, ttft, again, tokens == want

    name = pathlib.Path(options.peer_server).name
    with start() as server:
        rows = RestoreTimes(name, start, server.slots, restored)
        server.ask(prompt(9, min(512, options.input_len)))
        rows.computed += [server.ask(prompt(10 + i, options.input_len))[0] for i in range(min(options.rounds, NUM_COMPUTED))]
        ttft, want, again = server.ask(ids)
        assert again >= options.input_len - 1, "the first time, the whole prompt is computed"
        rows.computed.append(ttft)
        print(f"{name + ', computed':<42} {summary(rows.computed)} | save {server.change_slot('save'):.3f} s", flush=True)
        print(f"{name + ', saved':<42} {server.slot_bytes() / 2**20:.0f} MiB", flush=True)
        rounds = []
        for _ in range(options.rounds):
            server.change_slot("erase")
            rounds.append(restored(server))
        rows.show("memory emptied", f"{name}, slot erased", rounds)
    rows.show_restarts(min(options.rounds, NUM_RESTARTS))
    return rows


def same_shapes(options):
    """Prints the shapes of both models; returns whether they are equal."""
    config = SHAPES[options.shape]
    named = {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "KV heads": "num_key_value_heads",
        "head": "head_dim",
        "experts": "num_experts",
        "of a token": "num_experts_per_tok",
        "expert": "moe_intermediate_size",
    }
    own = {name: config[key] for name, key in named.items()}
    peer, bits = gguf_shape(options.peer_model)
    print(f"{'hocket, model':<42} {own}, int4, KV cache {options.kv_cache_dtype}")
    print(f"{'peer, model':<42} {peer}, {bits:.2f} bits a weight, KV cache by --peer-flags (f16)")
    return own == peer


def run_slots(folder, options):
    is_same = same_shapes(options) if options.peer_server else True
    ids = prompt(1, options.input_len)
    own = run_own_session(folder, options, ids)
    if not options.peer_server:
        return 0
    peer = run_peer_slot(folder, options, ids)
    for row, seconds in own.medians.items():
        if row in peer.medians:
            print(f"{row}: {peer.name} {peer.medians[row]:.3f} s / hocket {seconds:.3f} s = {peer.medians[row] / seconds:.2f}")
    print(f"computed: {peer.name} / hocket = {statistics.median(peer.computed) / statistics.median(own.computed):.2f}")
    if not is_same:
        print("THE SHAPES DIFFER, so the quotients compare other models")
    if not peer.ok:
        print("A ROUND OF THE PEER computed the prompt again or gave another token")
    return 0 if is_same and peer.ok else 1


def verdict(ratios):
    """Returns whether writing behind costs at most 2 %, with two standard errors of certainty, and the text that says so."""
    if len(ratios) < 2:
        return None, "not known from one pair"
    mean, error = statistics.mean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5
    if mean + 2 * error <= WRITES_LIMIT:
        return True, "at most 2 %: yes"
    if mean - 2 * error > WRITES_LIMIT:
        return False, "at most 2 %: NO"
    return None, "at most 2 %: not known, the error is too large (more --rounds)"


def time_window(service, options, seed, num=0):
    """One prompt is always under way: first one that is not timed and leaves its writes to the timed ones, as the last of them leaves
    its own, then `num`, or as many as begin within --seconds. Returns how many were timed, and the seconds they took."""
    service.ask(prompt(seed, options.input_len), options.output_len)
    begin, done = time.monotonic(), 0
    while done < num or (num == 0 and (done == 0 or time.monotonic() - begin < options.seconds)):
        done += 1
        service.ask(prompt(seed + done, options.input_len), options.output_len)
    return done, time.monotonic() - begin


def run_writes(folder, options):
    with Service(folder, options) as plain, Service(folder, options, "--kv-cache-dir", options.pages) as files:
        num_pages = (options.input_len + options.output_len - 1) // PAGE_TOKENS  # those of the answer, too
        for service in (plain, files):  # the first request of a service sets memory up
            service.ask(prompt(0, options.input_len), options.output_len)
        wait_written(files, num_pages)
        ratios, sums, waits, num_asked, num_timed = [], {plain: 0.0, files: 0.0}, [], 1, 0
        for i in range(options.rounds):
            num, took = 0, {}
            for service in (plain, files) if i % 2 == 0 else (files, plain):
                num, took[service] = time_window(service, options, 100_000 * (i + 1), num)
                if service is files:  # the rest of its writes would slow the other one down
                    num_asked += 1 + num
                    waits.append(wait_written(files, num_asked * num_pages))
            ratios.append(took[files] / took[plain])
            num_timed += num
            for service, seconds in took.items():
                sums[service] += seconds
        kept, text = verdict(ratios)
        written, left_out = files.metric("backuped_pages_total"), files.metric("kv_store_left_out_pages_total")
        if left_out > 0.01 * written:
            kept, text = None, f"at most 2 %: not known, since pages were left out (of the ratios alone: {text})"
        error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
        tokens = num_timed * (options.input_len + options.output_len)
        print(
            f"{options.input_len} + {options.output_len} tokens, {options.rounds} pairs of windows, {num_timed} prompts a side | without files "
            f"{tokens / sums[plain]:.1f} tokens/s | with files {tokens / sums[files]:.1f} tokens/s | ratio of times "
            f"{statistics.mean(ratios):.4f} +- {error:.4f} (standard error), median {statistics.median(ratios):.4f} "
            f"({min(ratios):.4f}-{max(ratios):.4f}) | {text} | all was written {statistics.median(waits):.2f} s (at most {max(waits):.2f} s) "
            f"behind the last answer of a window | pages written {written:.0f}, left out {left_out:.0f}"
        )
    return {True: 0, False: 1, None: 2}[kept]


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

    def line(self, count, options):
        turns = [self.done[i] for i in range(count)]
        took = max(t["ended"] for t in turns)

        def ttft(begin):
            got = [t["ttft"] for t in turns[begin:]]
            return f"p50 {1000 * quantile(got, 0.5):.0f} ms, p99 {1000 * quantile(got, 0.99):.0f} ms" if got else "none"

        pages = [num_pages_of(t["asked"] + options.output_len) for t in turns]
        pool = options.pool_tokens // PAGE_TOKENS
        return (
            f"first {count} turns in {took:.1f} s, {count / took:.1f} a second | the pool held {pool / statistics.mean(pages):.1f} "
            f"conversations ({pool / max(pages):.1f}-{pool / min(pages):.1f}) | prompts {sum(t['asked'] for t in turns)} tokens, "
            f"{sum(t['again'] for t in turns)} of them computed again, recomputed_tokens {sum(t['recomputed'] for t in turns)} | "
            f"first token {ttft(0)}; without the first turns of conversations {ttft(options.sessions)}"
        )


def run_turns(service, options):
    """Sessions whose turns come round robin, a number of them at once, until --seconds have passed. A turn begins when the last one
    of its session has ended."""
    history = [prompt(1000 + i, options.first_tokens) for i in range(options.sessions)]
    known, num_ended = [0] * options.sessions, [0] * options.sessions
    numbers, changed, turns, failed = iter(range(options.sessions * options.turns)), threading.Condition(), Turns(), []
    begin = time.monotonic()

    def one_turn(number):
        i = number % options.sessions
        with changed:
            changed.wait_for(lambda: failed or num_ended[i] == number // options.sessions)
        asked = len(history[i])
        answer = service.ask(history[i], options.output_len)
        cachable = known[i] // PAGE_TOKENS * PAGE_TOKENS
        again = max(0, cachable - answer.cached)
        ended = time.monotonic() - begin
        turns.add(number, ttft=answer.ttft, asked=asked, new=asked - cachable, again=again, recomputed=answer.recomputed, ended=ended)
        known[i] = asked + len(answer.ids) - 1
        history[i] += answer.ids + prompt(asked * 1000 + i, options.step_tokens)
        with changed:
            num_ended[i] += 1
            changed.notify_all()

    def client():
        try:
            while not failed:
                with changed:
                    number = next(numbers, None)
                if number is None or time.monotonic() - begin > options.seconds:
                    return
                one_turn(number)
        except BaseException:
            failed.append(True)
            with changed:
                changed.notify_all()
            raise

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
                f"left out {service.metric('kv_store_left_out_pages_total'):.0f} | the server computed {service.num_computed():.0f} tokens "
                f"of prompts, where {sum(t['new'] for t in turns.done.values())} were new; recomputed_tokens_total "
                f"{service.metric('recomputed_tokens_total'):.0f}; prompts not read {service.metric('kv_store_not_read_prompts_total'):.0f}, "
                f"given up {service.metric('kv_store_reads_given_up_total'):.0f}",
                flush=True,
            )
            if turns.num_first():
                print(f"{name:<12} | alone: {turns.line(turns.num_first(), options)}", flush=True)
    if not sides:
        sys.exit(f"--only {options.only}: agents has the sides files and memory alone")
    count = min(turns.num_first() for turns in sides.values())
    if count == 0:
        sys.exit("a side has not done its first turn; give it more --seconds")
    for name, turns in sides.items():
        print(f"{name:<12} | {turns.line(count, options)}")


def load_prompt(options, load, i):
    """The prompts follow from the number of the load, and no other load has them, since pages outlive a load in files."""
    seed = 1_000_000 * (load + 1) + i
    return prompt(seed, random.Random(-1 - seed).randint(options.input_len // 2, options.input_len * 3 // 2))


def put_load(services, options, rate, load=0):
    """Sends requests at random times, `rate` a second, to the services in turn; returns the answers, the tokens of them and the seconds
    they took."""
    draw = random.Random(7 + load)
    answers, clients = [], []
    begin = time.monotonic()
    due = begin
    for i in range(max(8, int(rate * options.seconds))):
        due += draw.expovariate(rate)
        ids = load_prompt(options, load, i)

        def client(i=i, ids=ids, due=due):
            time.sleep(max(0, due - time.monotonic()))
            answer = services[i % len(services)].ask(ids, options.output_len, due)
            answer.asked = len(ids)
            answers.append(answer)

        clients.append(client)
    run_threads(clients)
    return answers, sum(len(a.gaps) + 1 for a in answers), time.monotonic() - begin


def put_closed_load(services, options, load):
    """Clients that ask for the next prompt as soon as they have an answer; returns the answers, and how many tokens of them came within
    --seconds."""
    numbers, answers = itertools.count(), []
    begin = time.monotonic()
    end = begin + options.seconds

    def client():
        while time.monotonic() < end:
            i = next(numbers)
            ids = load_prompt(options, load, i)
            answer = services[i % len(services)].ask(ids, options.output_len)
            answer.asked = len(ids)
            answers.append(answer)

    run_threads([client] * CLOSED_CLIENTS)
    return answers, sum(a.num_tokens_until(end) for a in answers), options.seconds


def num_apart(service):
    """The prompts that peers took, and those that they did not compute to the end, with failures and refusals."""
    names = ("kv_peer_prefills_total", "kv_peer_short_prompts_total", "kv_peer_failures_total", "kv_peer_refusals_total")
    return [service.metric(name) for name in names]


def put_loads(name, services, doors, options):
    """Puts the loads to the doors, which are all of the services or some; returns what went wrong."""
    faults = []
    for one in doors:  # the first request of a service sets memory up
        one.ask(prompt(900 + one.port, 512), 2)
    for load, rate in enumerate([*options.rates, None]):
        for one in services:
            one.flush()
        before, apart_before = [one.num_computed() for one in services], num_apart(doors[0])
        answers, tokens, took = put_load(doors, options, rate, load) if rate else put_closed_load(doors, options, load)
        computed = [one.num_computed() - old for one, old in zip(services, before)]
        asked = sum(a.asked for a in answers)
        gaps, ttft = [g for a in answers for g in a.gaps], [a.ttft for a in answers]
        title = f"{rate:.3f} requests a second" if rate else f"above capacity, {CLOSED_CLIENTS} clients"
        print(
            f"{name:<6} | {title}, {len(answers)} answers, {took:.1f} s | {tokens / took:.1f} tokens/s | ITL p50 "
            f"{1000 * quantile(gaps, 0.5):.1f} ms, p99 {1000 * quantile(gaps, 0.99):.1f} ms, most {1000 * max(gaps):.0f} ms | first token p50 "
            f"{quantile(ttft, 0.5):.2f} s, p99 {quantile(ttft, 0.99):.2f} s | computed {computed[0]:.0f} + {computed[1]:.0f} of {asked} "
            f"tokens of prompts",
            flush=True,
        )
        if sum(computed) < 0.95 * asked:
            sys.exit("prompts of this load were found in a cache, so its figures compare nothing")
        if name != "apart":
            continue
        prefills, short, failures, refusals = (new - old for new, old in zip(num_apart(doors[0]), apart_before))
        print(f"       | prompts computed apart {prefills:.0f}, short {short:.0f}, failures {failures:.0f}, refusals {refusals:.0f}", flush=True)
        if prefills < 0.95 * len(answers) or failures or computed[0] < 0.95 * asked:
            faults.append(f"{title}: {prefills:.0f} of {len(answers)} prompts were computed apart, {failures:.0f} failures")
    return faults


def run_apart(folder, options):
    cores = sorted(os.sched_getaffinity(0))
    token = pathlib.Path(folder, "token")
    token.write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    token.chmod(0o600)
    hosts = netns.Hosts(2, options.link) if options.link else contextlib.nullcontext([None, None])
    address = "h0:8998" if options.link else f"127.0.0.1:{free_port()}"
    listen = "0.0.0.0:8998" if options.link else address
    faults = []

    def core(i):
        return ("--cpu-bind", str(cores[i % len(cores)]), "--num-threads", "1", "--cluster-token-file", str(token))

    @contextlib.contextmanager
    def pair(places, first=(), second=()):
        with Service(folder, options, *core(0), *first, host=places[0]) as one, Service(folder, options, *core(1), *second, host=places[1]) as two:
            yield one, two

    def measured_rates(place):
        with Service(folder, options, *core(0), host=place) as one:
            one.ask(prompt(5, 512))
            speed = options.input_len / statistics.median(one.ask(prompt(6 + i, options.input_len)).ttft for i in range(3))
        print(f"one core computes {speed:.0f} tokens of prompts a second", flush=True)
        return [share * speed / options.input_len for share in SHARES]

    with hosts as places:
        options.rates = [float(r) for r in options.rates.split(",")] if options.rates else measured_rates(places[0])
        print(f"requests a second: {','.join(f'{rate:.3f}' for rate in options.rates)}; pages in {options.pages}", flush=True)
        if options.only in ("", "mixed"):
            with pair(places) as services:
                faults += put_loads("mixed", services, services, options)
        if options.only in ("", "apart"):
            prefill = ("--disaggregation-mode", "prefill", "--kv-cache-listen", listen, "--kv-cache-dir", options.pages)
            decode = ("--disaggregation-mode", "decode", "--disaggregation-prefill-url", address)
            with pair(places, prefill, decode) as (one, two):
                faults += put_loads("apart", (one, two), [two], options)
    for fault in faults:
        print(f"NOT APART: {fault}")
    return 1 if faults else 0


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=OUTPUT_LEN)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--input-len", type=int, help="tokens of a prompt (8192, `apart`: 1024 on average)")
    parser.add_argument("--output-len", type=int, help=f"tokens of an answer; {OUTPUT_LEN}")
    parser.add_argument("--pool-tokens", type=int, help=f"{POOL_TOKENS}; `agents`: those of {AGENTS_IN_POOL} conversations that have done half of their turns")
    parser.add_argument("--rounds", type=int, help=f"repetitions of each row (5); {ROUNDS}; starts at most {NUM_RESTARTS}, computing {NUM_COMPUTED + 1}")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--first-tokens", type=int, default=768, help="the first prompt of a conversation of `agents`")
    parser.add_argument("--step-tokens", type=int, default=8, help="what each further turn adds to it, beside the answer")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, help=f"limit of each side of `agents`, length of each load of `apart` and of a side's window of `writes`; {SECONDS}")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a client waits for the next bytes of an answer")
    parser.add_argument("--rates", default="", help=f"requests a second of the loads of `apart`; default: {SHARES} of what one core computes, measured before")
    parser.add_argument("--only", default="", help="one side of `agents` or `apart`")
    parser.add_argument("--link", default="", help="rate between the two hosts of `apart`, as 10gbit; none: one host")
    parser.add_argument("--kv-cache-dir", default="", help="the folder below which pages are written; `apart`: /dev/shm if 8 GiB are free; else temporary")
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
        middle = options.first_tokens + options.turns * (options.step_tokens + options.output_len) // 2
        options.pool_tokens = AGENTS_IN_POOL * num_pages_of(middle) * PAGE_TOKENS if options.what == "agents" else POOL_TOKENS
    if options.what == "apart" and not options.kv_cache_dir and os.access(SHARED_MEMORY, os.W_OK):
        if shutil.disk_usage(SHARED_MEMORY).free >= LEAST_SHARED_MEMORY:
            options.kv_cache_dir = SHARED_MEMORY
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
