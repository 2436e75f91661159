#!/usr/bin/env python3
"""Streams of every API go on when a rank is killed: by themselves if it computed them, by their id if their client had asked it.

    tests/hosts/comes_back.py [--only WORD]
"""

import contextlib
import functools
import http.client
import itertools
import json
import re
import socket
import threading
import time

import harness
from cluster import Cluster

TOKENS = 900
PROMPT = "Once upon a time, there was a {} who"
SAMPLED = {"temperature": 0.8, "seed": 11, "ignore_eos": True}
FIELDS = {"max_tokens": TOKENS, **SAMPLED}
END_S = 180  # from the return of the rank to the end of all streams, on a machine that runs other tests too
IDS = {"X-Hocket-Event-Ids": "true"}


def chat(word):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT.format(word)}], **FIELDS}


def completions(word):
    return "/v1/completions", {"prompt": PROMPT.format(word), **FIELDS, "stream_options": {"include_usage": True}}


def responses(word):
    return "/v1/responses", {"input": PROMPT.format(word), "max_output_tokens": TOKENS, **SAMPLED}


def messages(word):
    return "/v1/messages", {"model": "tiny", "messages": [{"role": "user", "content": PROMPT.format(word)}], **FIELDS}


def generate(word):
    sampling = {"max_new_tokens": TOKENS, "temperature": 0.8, "sampling_seed": 11, "ignore_eos": True}
    return "/generate", {"text": PROMPT.format(word), "sampling_params": sampling}


APIS = (chat, completions, responses, messages, generate)


class EventStream(threading.Thread):
    """Reads the whole events of one stream, until its end or until the connection breaks."""

    def __init__(self, connect, method, path, body=None, headers=None):
        super().__init__(daemon=True)
        self._asked = method, path, body, headers or {}
        self._connect = connect
        self.status, self.events, self.broke, self.answer = None, [], "", ""
        self.times = []  # when each event came
        self._socket = None
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("localhost", timeout=END_S)
        try:
            self._socket = connection.sock = self._connect(END_S)
            method, path, body, headers = self._asked
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            self.status = answer.status
            if answer.status != 200:
                self.answer = answer.read().decode()
                return
            event = b""
            while line := answer.readline():
                event += line
                if line == b"\n":
                    if not event.startswith(b":"):
                        self.events.append(event.decode())
                        self.times.append(time.monotonic())
                    event = b""
        except (OSError, http.client.HTTPException) as reason:
            self.broke = f"{type(reason).__name__}: {reason}"
        finally:
            connection.close()

    def wait_events(self, count, limit_s=30):
        deadline = time.monotonic() + limit_s
        while len(self.events) < count:
            assert self.is_alive(), f"the stream ended after {len(self.events)} events: {self.status} {self.answer}{self.broke}"
            assert time.monotonic() < deadline, f"{len(self.events)} events after {limit_s} s"
            time.sleep(0.002)

    def leave(self):
        """Closes the connection, as a client that goes away."""
        if self._socket:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def longest_pause_s(self):
        return max((b - a for a, b in itertools.pairwise(self.times)), default=0)

    def was_taken_over(self):
        return "taken_over" in "".join(self.events) + self.answer

    def finish(self):
        self.join(END_S)
        assert not self.is_alive(), f"open after {END_S} s, with {len(self.events)} events"
        return self


def last_id(events):
    ids = [event.rsplit("\nid: ", 1)[1].split("\n")[0] for event in events if "\nid: " in event]
    assert ids, events[:2]
    return ids[-1]


def same_in_each(text):
    """Leaves out what differs between two answers to one request: the id, the rank in it, times, drafts, and what came from a cache."""
    text = re.sub(r"(id: )?(chatcmpl-|cmpl-|msg_|resp_|rs_|gen-|fc_)[0-9a-f_]+", "ID", text)
    text = re.sub(r"\"id\":\"[^\"]*\"", "ID", text)
    text = re.sub(r"^id: [^:\n]*:", "id: ID:", text, flags=re.M)
    text = re.sub(r"\"(created|created_at|completed_at)\":\d+", "WHEN", text)
    text = re.sub(r",\"cached_tokens_details\":\{[^}]*\}", "", text)
    text = re.sub(r"\"(cached_tokens|cache_read_input_tokens|cache_creation_input_tokens|recomputed_tokens|input_tokens)\":\d+", "CACHED", text)
    text = re.sub(r"\"spec_[a-z_]+\":[-+.e0-9]+", "DRAFTS", text)
    text = re.sub(r"\"e2e_latency\":[-+.e0-9]+", "LATENCY", text)
    return re.sub(r"\"timings\":\{[^}]*\}", "TIMES", text)


def begin(ranks, rank, api, word):
    path, body = api(word)
    return EventStream(functools.partial(ranks.connect, rank), "POST", path, dict(body, stream=True), IDS)


def come_back(ranks, rank, events, path=None):
    id = last_id(events)
    target = path or f"/v1/streams/{id.rsplit(':', 1)[0]}"
    return EventStream(functools.partial(ranks.connect, rank), "GET", target, None, {"Last-Event-ID": id, **IDS})


def check_equal(had, want, what):
    for i, (a, b) in enumerate(zip(had, want)):
        assert same_in_each(a) == same_in_each(b), f"{what}: event {i} of {len(had)} is {a}, undisturbed of {len(want)} {b}; before it {had[i - 1 : i]}"
    assert len(had) == len(want), f"{what}: {len(had)} events, undisturbed {len(want)}; the last are {had[-2:]}"


def undisturbed(ranks, words):
    streams = {(api.__name__, word): begin(ranks, 0, api, word) for api in APIS for word in words}
    wanted = {of: stream.finish().events for of, stream in streams.items()}
    for of, events in wanted.items():
        assert len(events) > 50, f"{of}: {streams[of].status} {streams[of].answer}{streams[of].broke} {events}"
    return wanted


def one_is_killed(num_ranks, killed):
    """Clients ask all ranks. Rank `killed` dies in the middle of all streams; who had asked it comes back at the next rank."""
    words = ("cat", "king", "ship")[:num_ranks]
    with Cluster(num_ranks) as ranks:
        ranks.wait_doors()
        wanted = undisturbed(ranks, words)
        streams = {}
        for api in APIS:  # round-robin: each port's streams are computed by all ranks in turn
            for rank, word in enumerate(words):
                streams[api.__name__, word] = rank, begin(ranks, rank, api, word)
        for _, stream in streams.values():
            stream.wait_events(20)
        ranks.processes[killed].kill()
        began, back = time.monotonic(), {}
        other = (killed + 1) % num_ranks
        for of, (rank, stream) in streams.items():
            if rank == killed:
                stream.finish()
                assert stream.broke or not stream.events[-1].startswith("data: [DONE]"), f"{of} had ended before the fault"
                back[of] = come_back(ranks, other, stream.events)
        ranks.processes[killed].start()
        num_back = 0
        for of, (rank, stream) in streams.items():
            events = stream.finish().events
            if rank == killed:
                rest = back[of].finish()
                assert rest.status == 200 and not rest.broke, f"{of}: {rest.status} {rest.answer}{rest.broke}"
                events, num_back = events + rest.events, num_back + 1
            check_equal(events, wanted[of], f"{of} of rank {rank}")
        ranks.wait_ready()
        for rank in range(num_ranks):
            ranks.check_pages(rank)
        return f"{len(streams)} streams equal, {num_back} of them by their id, after {time.monotonic() - began:.1f} s"


def a_client_leaves():
    """Clients drop their connections and come back at the other rank, some of them twice, some while the old one is open."""
    with Cluster(2) as ranks:
        ranks.wait_doors()
        wanted = undisturbed(ranks, ("cat",))
        for api in APIS:
            of = api.__name__, "cat"
            first = begin(ranks, 0, api, "cat")
            first.wait_events(20)
            had = list(first.events)
            second = come_back(ranks, 1, had)  # the old connection is open
            second.wait_events(20)
            had += list(second.events)
            path = f"/v1/responses/{last_id(had).rsplit(':', 1)[0]}?stream=true" if api is responses else None
            third = [come_back(ranks, rank, had, path) for rank in (0, 1)]  # at once, at both ranks
            whole = [stream for stream in third if not stream.finish().was_taken_over()]
            assert whole, f"{of}: both were taken over"
            for stream in whole:
                check_equal(had + stream.events, wanted[of], str(of))
            assert first.finish().was_taken_over() and second.finish().was_taken_over(), of


CASES = [
    ("clients come back at another rank", a_client_leaves),
    ("kill -9 of 2, every API", functools.partial(one_is_killed, 2, 1)),
    ("kill -9 of rank 0 of 2, every API", functools.partial(one_is_killed, 2, 0)),
    ("kill -9 of 3, every API", functools.partial(one_is_killed, 3, 1)),
]

if __name__ == "__main__":
    raise SystemExit(not harness.run(CASES, harness.arguments(__doc__)))
