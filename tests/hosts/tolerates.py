#!/usr/bin/env python3
"""Ranks are killed, or leave and join, and with --tolerate-ranks the others serve on: streams go on, and new requests are answered.

    tests/hosts/tolerates.py [--only WORD]
"""

import concurrent.futures
import functools
import json
import signal
import time

import harness
from cluster import ROOT, Cluster, OneRank, answers_of_one_rank
from comes_back import APIS, begin, chat, check_equal, come_back, same_in_each, undisturbed
from etcd import Etcd
from netns import Hosts
from ports import free_port

WORDS = ("cat", "king", "ship", "owl")
SERVES_S = 10  # from the loss until the ranks that are left serve
BACK_S = 60  # from the start of a rank until all serve
LATE_S = 4  # --rank-wait where a rank comes late
CUT_S = 6  # longer than the pauses before a lost rank is taken back twice
FLAGS = {"--tolerate-ranks": 1}
AUTO = {"--ep-num-redundant-experts": "auto"}
TWO = {"--tolerate-ranks": 2}
DRAFTS = {"--speculative-algorithm": "NGRAM", "--speculative-num-steps": 4}  # nearly every step has some
OWN_DRAFTS = {"--speculative-algorithm": "NEXTN", "--speculative-num-steps": 3}  # so does every step here
MOVES = {"--enable-eplb": True, "--eplb-rebalance-num-iterations": 20}


def wait_present(ranks, rank, count, limit_s):
    """Waits until `rank` is ready in an epoch with `count` ranks; returns the seconds that it took."""
    began = time.monotonic()
    while ranks.readiness(rank)[0] != 200 or ranks.metric(rank, "cluster_member_ranks") != count:
        waited = time.monotonic() - began
        assert waited < limit_s, f"rank {rank} is not ready with {count} ranks after {waited:.1f} s: {ranks.readiness(rank)}"
        time.sleep(0.02)
    return time.monotonic() - began


def wait_drafts(ranks, rank):
    """Waits until 20 more drafts of `rank` hold, so that its next steps verify some."""
    before, began = ranks.metric(rank, "spec_accepted_total"), time.monotonic()
    while ranks.metric(rank, "spec_accepted_total") < before + 20:
        assert time.monotonic() - began < SERVES_S, f"rank {rank} verifies no drafts"
        time.sleep(0.02)


def streams_of(ranks, num_ranks, words):
    return {(api.__name__, word): (rank, begin(ranks, rank, api, word)) for api in APIS for rank, word in zip(range(num_ranks), words)}


def shown(events):
    """Returns the text that a client sees in a stream."""
    text = ""
    for line in "\n".join(events).split("\n"):
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        if "meta_info" in event:  # /generate sends the whole text each time
            text = event["text"]
        delta = event.get("delta") or {}
        text += delta if isinstance(delta, str) else delta.get("text") or ""
        for choice in event.get("choices", []):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


def check_same_text(had, want, what):
    """As check_equal, where the tokens of an event depend on the drafts of a step: another rank may draft other tokens."""
    assert shown(had) == shown(want) and shown(want), f"{what}: {shown(had)!r}, undisturbed {shown(want)!r}"
    ends = [same_in_each(events[-1]).split("\nid: ")[0] for events in (had, want)]
    assert ends[0] == ends[1], f"{what}: {ends}"


def finish_all(streams, back, wanted, check=check_equal):
    """Checks that all streams end as in the undisturbed run; returns the longest pause of one that nobody had to ask for again."""
    pause = 0
    for of, (rank, stream) in streams.items():
        events = stream.finish().events
        if of in back:
            rest = back[of].finish()
            assert rest.status == 200 and not rest.broke, f"{of}: {rest.status} {rest.answer}{rest.broke}"
            events = events + rest.events
        else:
            pause = max(pause, stream.longest_pause_s())
        check(events, wanted[of], f"{of} of rank {rank}")
    return pause


def wait_amid_streams(ranks, fronts, words, wanted, count, change=None, check=check_equal):
    """Waits until `count` ranks are in, while streams of `fronts` run; returns the seconds, the running streams, and their longest pause.

    `change` is called in the middle of the first streams.
    """
    began, pause, streams = time.monotonic(), 0, {}
    while True:
        running = sum(stream.is_alive() for _, stream in streams.values())
        if running and all(ranks.metric(rank, "cluster_member_ranks") == count for rank in fronts):
            break
        if not running:
            pause = max(pause, finish_all(streams, {}, wanted, check))
            streams = {(chat.__name__, word): (rank, begin(ranks, rank, chat, word)) for word, rank in zip(words, fronts)}
            if change:
                for _, stream in streams.values():
                    stream.wait_events(20)
                change()
                began, change = time.monotonic(), None
        waited = time.monotonic() - began
        assert waited < BACK_S, f"{count} ranks are not in after {waited:.1f} s: {ranks.readiness(fronts[0])}"
        time.sleep(0.02)
    took = time.monotonic() - began
    for rank in range(ranks.num_ranks) if count == ranks.num_ranks else fronts:
        wait_present(ranks, rank, count, BACK_S)
    return took, running, max(pause, finish_all(streams, {}, wanted, check))


def check_answers(ranks, of, when):
    for rank in of:
        assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise {when}"
        ranks.check_pages(rank)


def check_lead_measures(ranks, lead, words, wanted):
    """Without rank 0 the lowest rank that is left measures whether overlapped steps pay (--overlap-schedule auto)."""
    streams = {(chat.__name__, word): (lead, begin(ranks, lead, chat, word)) for word in words}
    finish_all(streams, {}, wanted)
    assert "(--overlap-schedule auto)" in ranks.processes[lead].log(), f"rank {lead} has measured nothing"


def some_are_killed(num_ranks, killed, store="", more=None, apart_s=0.0, stays_away=True):
    """Ranks `killed` die in the middle of streams of every API, the next one `apart_s` after the one before, and come back amid others.

    With `stays_away` they are started when the others have ended those streams, else at once.
    """
    words = WORDS[:num_ranks]
    with Cluster(num_ranks, flags=FLAGS | (more or {}), store=store) as ranks:
        ranks.wait_doors()
        killed = killed() if callable(killed) else killed
        others = [rank for rank in range(num_ranks) if rank not in killed]
        wanted = undisturbed(ranks, words)
        streams = streams_of(ranks, num_ranks, words)
        for _, stream in streams.values():
            stream.wait_events(20)
        drafts = more in (DRAFTS, OWN_DRAFTS)
        if drafts:
            wait_drafts(ranks, killed[0])
        for i, rank in enumerate(killed):
            time.sleep(apart_s if i else 0)
            ranks.processes[rank].kill()
        if not stays_away:
            for rank in killed:
                ranks.processes[rank].start()
        back = {}
        for of, (rank, stream) in streams.items():
            if rank in killed:
                stream.finish()
                assert stream.broke or not stream.events[-1].startswith("data: [DONE]"), f"{of} had ended before the fault"
                back[of] = come_back(ranks, others[0], stream.events)
        told = ""
        if stays_away:
            left = num_ranks - len(killed)
            serves = max(wait_present(ranks, rank, left, SERVES_S) for rank in others)
            told = f"served again after {serves:.2f} s, "
        check = check_same_text if drafts else check_equal
        lost = finish_all(streams, back, wanted, check)
        if stays_away:
            check_answers(ranks, others, f"without {killed}")
            if 0 in killed:
                check_lead_measures(ranks, others[0], words, wanted)
            for rank in others:
                status, text = ranks.readiness(rank)
                assert status == 200 and f"{left} of {num_ranks} ranks" in text, text
            for rank in killed:
                ranks.processes[rank].start()
        returned, running, came = wait_amid_streams(ranks, others, words, wanted, num_ranks, check=check)
        assert running > 0, "no stream ran when the ranks were back"
        check_answers(ranks, range(num_ranks), "after the return")
        return (
            f"{told}longest pause {lost:.2f} s, {len(back)} streams by their id; "
            f"back after {returned:.1f} s amid {running} streams, longest pause {came:.2f} s"
        )


def one_is_killed(num_ranks, killed, store="", more=None):
    return some_are_killed(num_ranks, killed if callable(killed) else [killed], store, more)


def one_is_asked_to_end(num_ranks, asked):
    """Rank `asked` gets SIGTERM amid streams: these end as if nothing had happened, and the others serve on without it."""
    words = WORDS[:num_ranks]
    with Cluster(num_ranks, flags=FLAGS) as ranks:
        ranks.wait_doors()
        others = [rank for rank in range(num_ranks) if rank != asked]
        wanted = undisturbed(ranks, words)
        streams = streams_of(ranks, num_ranks, words)
        for _, stream in streams.values():
            stream.wait_events(20)
        ranks.processes[asked].signal(signal.SIGTERM)
        pause = finish_all(streams, {}, wanted)
        status = ranks.processes[asked].exit_status(BACK_S)
        assert status == 0, f"rank {asked} ends with {status}"
        for rank in others:
            wait_present(ranks, rank, num_ranks - 1, SERVES_S)
        check_answers(ranks, others, f"without rank {asked}")
        ranks.processes[asked].start()
        returned, running, came = wait_amid_streams(ranks, others, words, wanted, num_ranks)
        check_answers(ranks, range(num_ranks), "after the return")
        return f"longest pause {pause:.2f} s; back after {returned:.1f} s amid {running} streams, longest pause {came:.2f} s"


def wait_may_leave(ranks):
    """Waits until the service serves on without some rank: right after the start it would wait for each."""
    deadline = time.monotonic() + SERVES_S
    while "not there" not in (text := ranks.call(0, "/scale_ranks", {"leave": [ranks.num_ranks]})[2]):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def leave(ranks, keep, words, wanted):
    """Asks rank 0 to keep the ranks below `keep` amid its streams, which end as if nothing had happened; returns what that took, in words."""

    def ask():
        status, _, text = ranks.call(0, "/scale_ranks", {"keep": keep})
        assert status == 200 and json.loads(text) == {"leaving": list(range(keep, ranks.num_ranks))}, text

    took, running, pause = wait_amid_streams(ranks, [0] * len(words), words, wanted, keep, ask)
    for rank in range(keep, ranks.num_ranks):
        status = ranks.processes[rank].exit_status(BACK_S)
        assert status == 0, f"rank {rank} ends with {status}"
    check_answers(ranks, range(keep), f"with {keep} ranks")
    return f"{keep} ranks after {took:.1f} s amid {running} streams, longest pause {pause:.2f} s"


def to_join(ranks, process):
    """Leaves a process only the flags of its own, and the address of rank 0."""
    own = ("--model-path", "--port", "--cluster-token-file", "--cpu-bind", "--num-threads", "--max-total-tokens")
    process.flags = {name: value for name, value in process.flags.items() if name in own} | {"--join": f"127.0.0.1:{ranks.http_ports()[0]}"}
    return process


def join(ranks, rank):
    """Starts a process that knows of the service nothing but where rank 0 is, and gets `rank`."""
    process = to_join(ranks, ranks.processes[rank])
    had = process.log().count("join: rank")
    process.start()
    deadline = time.monotonic() + BACK_S
    while process.log().count("join: rank") == had:
        assert process.alive() and time.monotonic() < deadline, f"rank {rank} has not asked to join"
        time.sleep(0.02)
    assert f"rank {rank} of" in process.log().rsplit("join: ", 1)[1]


def check_no_join(ranks, more, why):
    """A process that must not join ends, and says `why`."""
    process = to_join(ranks, ranks.process(0, name=f"refused{time.monotonic_ns()}"))
    process.flags |= {"--port": free_port()} | more
    process.start()
    try:
        status = process.exit_status(BACK_S)
    finally:
        process.kill()
    assert status != 0 and why in process.log(), f"{more} ends with {status}: {process.log()}"


def joins_are_refused(num_ranks):
    """A process that may not join ends with an error that says what to change, and the service serves on."""
    with Cluster(num_ranks, flags=FLAGS) as ranks:
        ranks.wait_doors()
        wait_may_leave(ranks)
        check_no_join(ranks, {}, f"all {num_ranks} ranks are there")
        check_no_join(ranks, {"--node-rank": 1}, "leave out --node-rank")
        check_no_join(ranks, {"--join": f"127.0.0.1:{free_port()}"}, "refused")
        ranks.processes[num_ranks - 1].signal(signal.SIGTERM)
        assert ranks.processes[num_ranks - 1].exit_status(BACK_S) == 0
        for rank in range(num_ranks - 1):
            wait_present(ranks, rank, num_ranks - 1, SERVES_S)
        other_token = ranks.folder / "other_token"
        other_token.write_text("another token, which is as long as one has to be\n")
        check_no_join(ranks, {"--cluster-token-file": other_token}, "token")
        check_no_join(ranks, {"--model-path": ROOT / "tests/golden/qwen3_moe"}, "the model hash differs")
        check_no_join(ranks, {"--context-length": 64}, "the plan set differs")
        check_answers(ranks, range(num_ranks - 1), "after refused joins")
        join(ranks, num_ranks - 1)
        for rank in range(num_ranks):
            wait_present(ranks, rank, num_ranks, BACK_S)
        check_answers(ranks, range(num_ranks), "after the join")
    with OneRank() as alone:
        check_no_join(alone, {}, "start the ranks as processes, with --tolerate-ranks")
    return "seven joins were refused, one was taken"


def some_leave_and_join(num_ranks, tolerated, keeps):
    """Ranks leave until as many are left as `keeps` says, and join again, amid streams."""
    words, every = WORDS[:num_ranks], range(num_ranks)
    told = []
    with Cluster(num_ranks, flags={"--tolerate-ranks": tolerated}) as ranks:
        ranks.wait_doors()
        wanted = undisturbed(ranks, words)
        refused = [({"keep": num_ranks}, "ranks stay"), ({"leave": [0]}, "rank 0 knows"), ({"leave": [9]}, "not there"), ({}, "either leave or keep"), ({"leave": [1], "decided": True}, "between ranks")]
        if tolerated < num_ranks - 1:
            refused.append(({"keep": 1}, "1 ranks would be left"))
        for body, why in refused:
            status, _, text = ranks.call(1, "/scale_ranks", body)
            assert status == 400 and why in text, text
        for keep in keeps:
            told.append(leave(ranks, keep, words, wanted))
            for rank in every[keep:]:
                join(ranks, rank)
            took, running, pause = wait_amid_streams(ranks, [0], words, wanted, num_ranks)
            told.append(f"all after {took:.1f} s amid {running} streams, longest pause {pause:.2f} s")
            check_answers(ranks, every, "after the return")
    return "; ".join(told)


def two_are_told_at_once(num_ranks):
    """Two clients ask two ranks at once that the other one leaves, though only one may be missing: one of them is refused."""
    with Cluster(num_ranks, flags={"--tolerate-ranks": 1}) as ranks:
        ranks.wait_doors()
        wait_may_leave(ranks)
        with concurrent.futures.ThreadPoolExecutor(2) as clients:
            answers = list(clients.map(lambda asked: ranks.call(asked, "/scale_ranks", {"leave": [3 - asked]}), (1, 2)))
        assert sorted(status for status, _, _ in answers) == [200, 400], answers
        left = 2 if answers[0][0] == 200 else 1
        status = ranks.processes[left].exit_status(BACK_S)
        assert status == 0, f"rank {left} ends with {status}"
        for rank in (0, 3 - left):
            wait_present(ranks, rank, num_ranks - 1, SERVES_S)
        check_answers(ranks, [0, 3 - left], f"without rank {left}")
        return f"rank {left} left, and the other request was refused"


def two_are_cut_apart(num_ranks):
    """Ranks 1 and 2 do not reach each other, so one of them is out, though it lives: its door passes new requests on to the others."""
    harness.need_hosts()
    words = WORDS[:num_ranks]
    with Hosts(num_ranks, "1gbit") as hosts, Cluster(num_ranks, hosts, flags=FLAGS) as ranks:
        ranks.wait_doors()
        wanted = undisturbed(ranks, words)
        streams = streams_of(ranks, num_ranks, words)
        for _, stream in streams.values():
            stream.wait_events(20)
        hosts[1].cut(hosts[2])
        wait_present(ranks, 0, num_ranks - 1, SERVES_S)
        out = next(peer["rank"] for peer in ranks.info(0)["peers"] if not peer["there"])
        status, _, text = ranks.call(out, "/v1/completions", {"prompt": "there was a", "max_tokens": 4})
        epoch = ranks.metric(0, "cluster_epoch")
        time.sleep(CUT_S)
        assert ranks.metric(0, "cluster_epoch") == epoch, f"rank {out} was taken back over a link that is cut"
        hosts[1].mend(hosts[2])
        assert status == 200, f"rank {out} is out and answers {status}: {text}"
        finish_all(streams, {}, wanted)
        for rank in range(num_ranks):
            wait_present(ranks, rank, num_ranks, BACK_S)
        check_answers(ranks, range(num_ranks), "after the return")
        return f"rank {out} was out, and the others paused once in {CUT_S} s"


def one_comes_late(num_ranks, late, more=None):
    """Rank `late` is not started with the others, which begin without it after --rank-wait; then it comes."""
    with Cluster(num_ranks, flags=FLAGS | {"--rank-wait": LATE_S} | (more or {}), start=False) as ranks:
        others = [rank for rank in range(num_ranks) if rank != late]
        for rank in others:
            ranks.processes[rank].start()
        began = max(wait_present(ranks, rank, num_ranks - 1, BACK_S) for rank in others)
        assert began > LATE_S, f"they began after {began:.1f} s"
        status, text = ranks.readiness(others[0])
        assert f"{num_ranks - 1} of {num_ranks} ranks" in text and f"rank {late}" in text, text
        check_answers(ranks, others, f"without rank {late}")
        ranks.processes[late].start()
        for rank in range(num_ranks):
            wait_present(ranks, rank, num_ranks, BACK_S)
        check_answers(ranks, range(num_ranks), "with all")
        return f"served after {began:.1f} s without rank {late}, then with it"


def one_is_killed_with_etcd(num_ranks, killed=None):
    """The same with etcd, where any rank may be missing; without `killed` it is the one that coordinates."""
    with Etcd(1) as store:
        return one_is_killed(num_ranks, (lambda: [store.coordinator()]) if killed is None else killed, store.place())


CASES = [
    ("kill -9 of one of 3", functools.partial(one_is_killed, 3, 1)),
    ("kill -9 of one of 4", functools.partial(one_is_killed, 4, 2)),
    ("kill -9 of one of 2", functools.partial(one_is_killed, 2, 1)),
    ("kill -9 of two of 4", functools.partial(some_are_killed, 4, [1, 3], more=TWO)),
    ("kill -9 of two of 4, the second while the others meet", functools.partial(some_are_killed, 4, [1, 3], more=TWO, apart_s=0.4)),
    ("kill -9 of one of 4 that is back at once", functools.partial(some_are_killed, 4, [2], stays_away=False)),
    ("kill -9 of one of 3 amid drafts", functools.partial(one_is_killed, 3, 1, more=DRAFTS)),
    ("kill -9 of one of 3 amid drafts of the module", functools.partial(one_is_killed, 3, 1, more=OWN_DRAFTS)),
    ("kill -9 of one of 3 whose experts move", functools.partial(one_is_killed, 3, 1, more=MOVES)),
    ("4 ranks, then 1, then 4, then 2, then 4", functools.partial(some_leave_and_join, 4, 3, (1, 2))),
    ("3 ranks, then 2, whose experts move", functools.partial(some_leave_and_join, 3, 1, (2,))),
    ("two of 3 are told to leave at once, of which one may", functools.partial(two_are_told_at_once, 3)),
    ("joins that are refused, and one that is not, of 3", functools.partial(joins_are_refused, 3)),
    ("a cut between two of 4", functools.partial(two_are_cut_apart, 4)),
    ("one of 3 comes late", functools.partial(one_comes_late, 3, 1)),
    ("one of 3 comes late, replicas as memory allows", functools.partial(one_comes_late, 3, 2, more=AUTO)),
    ("SIGTERM of one of 3", functools.partial(one_is_asked_to_end, 3, 1)),
    ("kill -9 of rank 0 of 3, with etcd", functools.partial(one_is_killed_with_etcd, 3, 0)),
    ("kill -9 of the coordinator of 3, with etcd", functools.partial(one_is_killed_with_etcd, 3)),
]

if __name__ == "__main__":
    raise SystemExit(not harness.run(CASES, harness.arguments(__doc__)))
