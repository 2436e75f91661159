#!/usr/bin/env python3
"""Prompts are computed by one service and answered by another, whose pages and ranks differ. A rank of either is killed in each state
of a request: answers stay the same, and nothing is held.

    tests/hosts/apart.py [--only WORD]
"""

import functools
import json
import shutil
import tempfile
import time
from pathlib import Path

import harness
from cluster import COMMON, Cluster, OneRank
from comes_back import END_S, EventStream, check_equal, come_back
from page_proxy import PageProxy
from ports import free_port

STATE_S = 20  # until a request is in the state that is asked for
HEARTBEATS_S = 2  # at least one of each rank
FREE_S = 15  # from the loss until the prefill service holds nothing
WORDS = ("cat", "king", "ship", "owl")
PROMPT = "Once upon a time, there was a {} who sang by turns, and rested while the other sang. " * 60
FIELDS = {"max_tokens": 1500, "temperature": 0.8, "seed": 11, "ignore_eos": True, "stream": True}


def begin(ranks, rank, word):
    body = {"prompt": PROMPT.replace("{}", word), **FIELDS}
    return EventStream(functools.partial(ranks.connect, rank), "POST", "/v1/completions", body, {"X-Hocket-Event-Ids": "true"})


@functools.cache
def computed_by_one_rank():
    with OneRank() as one:
        streams = {word: begin(one, 0, word) for word in WORDS}
        events = {word: stream.finish().events for word, stream in streams.items()}
        assert all(len(said) > 50 for said in events.values()), [(s.status, s.answer, s.broke) for s in streams.values()]
        return events


def wait_for(what, is_so, limit_s=STATE_S):
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.005)


class Apart:
    """A service that computes prompts, and a decode service of two ranks, one of which may be missing. Pages pass through `proxy`.

    `there` and `here` are the sizes of their pages, in tokens.
    """

    def __init__(self, pages, there=32, here=32):
        self.folder = Path(tempfile.mkdtemp(prefix="hocket_pages_"))
        address = f"127.0.0.1:{free_port()}"
        self.proxy = PageProxy(address, pages)
        decode = {"--disaggregation-mode": "decode", "--disaggregation-prefill-url": self.proxy.address, "--tolerate-ranks": 1}
        decode |= {"--page-size": here}
        self.decode = Cluster(2, flags=decode, start=False)
        self.prefill = OneRank()
        self.prefill.processes[0].flags = COMMON | {
            "--port": self.prefill.http_ports()[0], "--cluster-token-file": self.decode.token_file, "--chunked-prefill-size": max(32, there),
            "--disaggregation-mode": "prefill", "--kv-cache-listen": address, "--kv-cache-dir": self.folder, "--page-size": there,
        }  # fmt: skip

    def __enter__(self):
        self.prefill.__enter__()
        try:
            for process in self.decode.processes:
                process.start()
            self.decode.wait_ready()
            self.decode.wait_doors()
            # A rank may be missing only after all were ready once, which the coordinator learns from their next heartbeats.
            time.sleep(HEARTBEATS_S)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, *failed):
        self.proxy.close()
        self.decode.__exit__(*failed)
        self.prefill.__exit__(*failed)
        shutil.rmtree(self.folder, ignore_errors=True)

    def held(self, rank):
        return sum(self.decode.metric(rank, f"num_decode_{queue}_queue_reqs") for queue in ("prealloc", "transfer"))

    def begin_and_wait(self, state):
        """Starts a stream for each word. Returns them once a request of rank 1 is in the state, in which the proxy keeps it."""
        # Round-robin: both ranks compute requests that came to either.
        streams = [(rank, word, begin(self.decode, rank, word)) for word, rank in zip(WORDS, (0, 0, 1, 1), strict=True)]
        if state == "before a prompt is taken":
            wait_for("a request is held", lambda: self.proxy.held.is_set() and self.held(1) > 0)
        elif state == "while pages arrive":
            wait_for("pages have come", lambda: self.decode.metric(1, "kv_peer_pages_total") > 0 and self.held(1) > 0)
        else:
            for _, _, stream in streams:
                stream.wait_events(20)
        return streams

    def check_prefill(self):
        """The prefill service holds nothing of the streams, and computes."""
        self.prefill.check_pages(0, FREE_S)
        status, _, text = self.prefill.call(0, "/v1/completions", {"prompt": PROMPT.replace("{}", "fox"), "max_tokens": 4})
        assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4, text


def decode_killed_in(state):
    wanted = computed_by_one_rank()
    with Apart(STATES[state]) as apart:
        decode = apart.decode
        streams = apart.begin_and_wait(state)
        decode.processes[1].kill()
        apart.proxy.release()
        began, num_back = time.monotonic(), 0
        for rank, word, stream in streams:
            events = stream.finish().events
            if rank == 1:  # its client's connection has ended: it comes back, or asks again if nothing had come
                assert stream.broke or not stream.events[-1].startswith("data: [DONE]"), f"{word} had ended before the fault"
                rest = (come_back(decode, 0, events) if events else begin(decode, 0, word)).finish()
                assert rest.status == 200 and not rest.broke, f"{word}: {rest.status} {rest.answer}{rest.broke}"
                events, num_back = events + rest.events, num_back + 1
            check_equal(events, wanted[word], f"{word}, asked at rank {rank}")
        took = time.monotonic() - began
        assert took < END_S
        decode.check_pages(0)
        apart.check_prefill()
        return f"{len(streams)} streams equal, {num_back} of them by coming back, after {took:.1f} s"


def prefill_killed_in(state):
    """The decode service computes the rest of each prompt; the prefill service starts again over the files that it had written."""
    wanted = computed_by_one_rank()
    with Apart(STATES[state]) as apart:
        streams = apart.begin_and_wait(state)
        apart.prefill.processes[0].kill()
        apart.proxy.release()
        began = time.monotonic()
        for rank, word, stream in streams:
            stream.finish()
            assert stream.status == 200 and not stream.broke, f"{word}: {stream.status} {stream.answer}{stream.broke}"
            check_equal(stream.events, wanted[word], f"{word}, asked at rank {rank}")
        took = time.monotonic() - began
        assert took < END_S
        for rank in (0, 1):
            apart.decode.check_pages(rank)
        apart.prefill.processes[0].start()
        apart.prefill.wait_ready()
        apart.check_prefill()
        assert apart.prefill.metric(0, "kv_store_damaged_pages_total") == 0, "a file of the killed service is not whole"
        return f"{len(streams)} streams equal, without a break, after {took:.1f} s"


def sizes_differ(there, here):
    """One rank computes prompts in pages of one size, and two ranks answer with pages of another."""
    wanted = computed_by_one_rank()
    with Apart(None, there, here) as apart:
        streams = [(rank, word, begin(apart.decode, rank, word)) for word, rank in zip(WORDS, (0, 0, 1, 1), strict=True)]
        for rank, word, stream in streams:
            stream.finish()
            assert stream.status == 200 and not stream.broke, f"{word}: {stream.status} {stream.answer}{stream.broke}"
            check_equal(stream.events, wanted[word], f"{word}, asked at rank {rank}")
        pages = [int(apart.decode.metric(rank, "kv_peer_pages_total")) for rank in (0, 1)]
        failures = [int(apart.decode.metric(rank, "kv_peer_failures_total")) for rank in (0, 1)]
        assert min(pages) > 0 and max(failures) == 0, f"pages {pages}, failures {failures}"
        assert apart.prefill.metric(0, "kv_served_prefills_total") == len(WORDS)
        apart.check_prefill()
        return f"{len(streams)} streams equal, {sum(pages)} pages of {there} tokens became pages of {here}"


# For each how many pages the proxy lets pass; None: all.
STATES = {"before a prompt is taken": 0, "while pages arrive": 3, "while answers are computed": None}
SIZES = ((32, 64), (32, 128), (64, 32), (1, 32), (32, 1))
CASES = [(f"pages of {there} tokens become pages of {here}", functools.partial(sizes_differ, there, here)) for there, here in SIZES]
CASES += [(f"a decode rank is killed {state}", functools.partial(decode_killed_in, state)) for state in STATES]
CASES += [(f"the prefill rank is killed {state}", functools.partial(prefill_killed_in, state)) for state in STATES]

if __name__ == "__main__":
    raise SystemExit(not harness.run(CASES, harness.arguments(__doc__)))
