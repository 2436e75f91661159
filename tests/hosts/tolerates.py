#!/usr/bin/env python3
"""A rank is killed, and with --tolerate-ranks the others serve on without it: streams go on, and new requests are answered.

    tests/hosts/tolerates.py [--only WORD]
"""

import functools
import time

import harness
from cluster import Cluster, answers_of_one_rank
from comes_back import APIS, begin, chat, check_equal, come_back, undisturbed
from etcd import Etcd

WORDS = ("cat", "king", "ship", "owl")
SERVES_S = 10  # from the loss until the ranks that are left serve
FLAGS = {"--tolerate-ranks": 1}


def wait_present(ranks, rank, count, limit_s):
    """Waits until `rank` is ready in an epoch with `count` ranks; returns the seconds that it took."""
    began = time.monotonic()
    while ranks.readiness(rank)[0] != 200 or ranks.metric(rank, "cluster_ranks_in") != count:
        waited = time.monotonic() - began
        assert waited < limit_s, f"rank {rank} is not ready with {count} ranks after {waited:.1f} s: {ranks.readiness(rank)}"
        time.sleep(0.02)
    return time.monotonic() - began


def streams_of(ranks, num_ranks, words):
    return {(api.__name__, word): (rank, begin(ranks, rank, api, word)) for api in APIS for rank, word in zip(range(num_ranks), words)}


def finish_all(streams, back, wanted):
    """Checks that all streams end with the events of the undisturbed run; returns the longest pause of one that nobody had to ask for again."""
    pause = 0
    for of, (rank, stream) in streams.items():
        events = stream.finish().events
        if of in back:
            rest = back[of].finish()
            assert rest.status == 200 and not rest.broke, f"{of}: {rest.status} {rest.answer}{rest.broke}"
            events = events + rest.events
        else:
            pause = max(pause, stream.longest_pause_s())
        check_equal(events, wanted[of], f"{of} of rank {rank}")
    return pause


def one_is_killed(num_ranks, killed, store=""):
    """Rank `killed` dies in the middle of streams of every API and stays away until all have ended; then it comes back amid others."""
    words = WORDS[:num_ranks]
    with Cluster(num_ranks, flags=FLAGS, store=store) as ranks:
        ranks.wait_doors()
        killed = killed() if callable(killed) else killed
        others = [rank for rank in range(num_ranks) if rank != killed]
        wanted = undisturbed(ranks, words)
        streams = streams_of(ranks, num_ranks, words)
        for _, stream in streams.values():
            stream.wait_events(20)
        ranks.processes[killed].kill()
        back = {}
        for of, (rank, stream) in streams.items():
            if rank == killed:
                stream.finish()
                assert stream.broke or not stream.events[-1].startswith("data: [DONE]"), f"{of} had ended before the fault"
                back[of] = come_back(ranks, others[0], stream.events)
        serves = max(wait_present(ranks, rank, num_ranks - 1, SERVES_S) for rank in others)
        lost = finish_all(streams, back, wanted)
        for rank in others:
            assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise without rank {killed}"
            status, text = ranks.readiness(rank)
            assert status == 200 and f"{num_ranks - 1} of {num_ranks} ranks" in text, text
            ranks.check_pages(rank)
        streams = {(chat.__name__, word): (rank, begin(ranks, rank, chat, word)) for rank, word in zip(others, words)}
        ranks.processes[killed].start()
        returned = max(wait_present(ranks, rank, num_ranks, 60) for rank in range(num_ranks))
        running = sum(stream.is_alive() for _, stream in streams.values())
        came = finish_all(streams, {}, wanted)
        for rank in range(num_ranks):
            assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise after the return"
            ranks.check_pages(rank)
        return (
            f"served again after {serves:.2f} s, longest pause {lost:.2f} s, {len(back)} streams by their id; "
            f"back after {returned:.1f} s amid {running} streams, longest pause {came:.2f} s"
        )


def one_is_killed_with_etcd(num_ranks, killed=None):
    """The same with etcd, where any rank may be missing; without `killed` it is the one that coordinates."""
    with Etcd(1) as store:
        return one_is_killed(num_ranks, store.coordinator if killed is None else killed, store.place())


CASES = [
    ("kill -9 of one of 3", functools.partial(one_is_killed, 3, 1)),
    ("kill -9 of one of 4", functools.partial(one_is_killed, 4, 2)),
    ("kill -9 of one of 2", functools.partial(one_is_killed, 2, 1)),
    ("kill -9 of rank 0 of 3, with etcd", functools.partial(one_is_killed_with_etcd, 3, 0)),
    ("kill -9 of the coordinator of 3, with etcd", functools.partial(one_is_killed_with_etcd, 3)),
]

if __name__ == "__main__":
    raise SystemExit(not harness.run(CASES, harness.arguments(__doc__)))
