#!/usr/bin/env python3
"""Faults: a rank is lost, or a link is bad. The tests check what clients see and that the service recovers.

    tests/hosts/faults.py [--only WORD]      runs the quick ones as tests
    tests/hosts/faults.py --table            runs all at full length and prints a table
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import harness
from cluster import Cluster, answers_of_one_rank, texts_of_one_rank
from netns import Hosts

KNOWN_GOAL_S = 4.0  # --table holds a loss to it, on a quiet machine
KNOWN_WITHIN_S = 20.0  # tests share their machine with others
CUT_S = 7  # from the loss to the end of a stream that the lost rank itself held
BACK_S = 40
END_S = 90  # from the return of the rank to the end of all streams
STREAMS = tuple(f"Once upon a time, there was a {word} who" for word in ("cat", "king", "tree", "ship"))
STREAM_TOKENS = 2000
GREEDY = [{}] * 4
SAMPLED = [{}, {"temperature": 0.9, "seed": 7, "presence_penalty": 0.2}, {}, {"temperature": 0.7, "seed": 9, "frequency_penalty": 0.1}]
# 400 words, so the ends of the answers are those of the grammar.
WORDS = [{"regex": "(cat|king|tree|ship|old|new)( (cat|king|tree|ship|old|new)){400}", "temperature": 1, "seed": i, "ignore_eos": False} for i in range(4)]
LONG_PROMPT = "Once upon a time " * 400  # 800 kB a layer and direction, which a slow link delays
REPEATS = 5
# The module's eight passes between two steps take longer than the pass of the bundled model, so a fault mostly comes
# within them.
DRAFTS = {"NGRAM": {"--speculative-algorithm": "NGRAM", "--speculative-num-steps": 4},
          "NEXTN": {"--speculative-algorithm": "NEXTN", "--speculative-num-steps": 8}}
OVERLAPPED = {"--overlap-schedule": "on"}
# The bundled model's layers change every few steps, so most faults come between two of them.
MOVING = {"--enable-eplb": True, "--eplb-rebalance-num-iterations": 8, "--overlap-schedule": "on"}
MORE_FILES, MORE_BYTES = 0, 256 << 10  # the most that at least one of the repeated losses may add


def nothing(_):
    pass


def kill(rank):
    return lambda ranks: ranks.processes[rank].kill()


def start(rank):
    return lambda ranks: ranks.processes[rank].start()


def send(rank, number):
    return lambda ranks: ranks.processes[rank].signal(number)


def restart(ranks):
    ranks.processes[1].kill()
    ranks.processes[1].start()


def link(action, *arguments):
    """Returns a function that calls `action` on the host of rank 1."""
    return lambda ranks: getattr(ranks.hosts[1], action)(*arguments)


def pair(action):
    """Returns a function that calls `action` of the host of rank 1 with that of rank 2."""
    return lambda ranks: getattr(ranks.hosts[1], action)(ranks.hosts[2])


@dataclass(frozen=True)
class Fault:
    name: str
    begin: Callable  # starts the fault in a Cluster
    end: Callable = nothing  # ends the fault
    lasts_s: float = 10
    lost: int | None = 1  # the rank that the others lose; None: no rank is lost, all streams go on
    alive: bool = False  # the lost rank runs, and loses the others
    stopped: bool = False  # the lost rank answers no request until the fault ends
    links: bool = True  # needs hosts of their own; else it is tried on one machine too
    of_two: bool = False  # ranks 1 and 2 lose each other, and either may count as the lost one
    traffic: bool = True
    num_ranks: int = 2
    drafts: str = ""  # the algorithm whose drafts nearly every step of the traffic verifies; empty: none
    grammar: bool = False  # the answers follow a grammar
    overlapped: bool = False  # the next step is agreed on and prepared while one computes
    moving: bool = False  # experts move meanwhile
    pause_s: float = 0  # streams that go on have a gap of at least this length
    quick: bool = False  # runs as a test too, for no longer than the effect takes to show

    def fields(self):
        """Returns the further fields of each stream."""
        return WORDS if self.grammar else GREEDY if self.drafts else SAMPLED


FAULTS = (
    Fault("kill -9, idle", kill(1), start(1), traffic=False, links=False),
    Fault("kill -9", kill(1), start(1), links=False, quick=True),
    Fault("kill -9 and a start at once", restart, lasts_s=0, links=False, quick=True),
    Fault("kill -9 amid drafts", kill(1), start(1), links=False, drafts="NGRAM", quick=True),
    Fault("kill -9 amid a module's passes", kill(1), start(1), links=False, drafts="NEXTN", quick=True),
    Fault("kill -9 of rank 0 amid a module's passes", kill(0), start(0), lost=0, links=False, drafts="NEXTN"),
    Fault("stopped 1 s amid a module's passes", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), 1, None, links=False, drafts="NEXTN", pause_s=0.9),
    Fault("kill -9 amid grammars", kill(1), start(1), links=False, grammar=True, quick=True),
    Fault("kill -9 amid grammars and drafts", kill(1), start(1), links=False, grammar=True, drafts="NGRAM"),
    Fault("stopped 1 s amid drafts", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), 1, None, links=False, drafts="NGRAM", pause_s=0.9, quick=True),
    Fault("kill -9 amid overlapped steps", kill(1), start(1), links=False, overlapped=True, quick=True),
    Fault("kill -9 of rank 0 amid overlapped steps", kill(0), start(0), lost=0, links=False, overlapped=True),
    Fault("stopped 1 s amid overlapped steps", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), 1, None, links=False, overlapped=True, pause_s=0.9, quick=True),
    Fault("stopped 10 s amid overlapped steps", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), links=False, overlapped=True, stopped=True),
    Fault("unplugged 2 s amid overlapped steps", link("unplug"), link("plug"), 2, None, overlapped=True, pause_s=1.9),
    Fault("black hole 10 s amid overlapped steps", link("blackhole"), link("heal"), alive=True, overlapped=True, quick=True),
    Fault("kill -9 while experts move", kill(1), start(1), links=False, moving=True, quick=True),
    Fault("kill -9 of rank 0 while experts move", kill(0), start(0), lost=0, links=False, moving=True),
    Fault("stopped 1 s while experts move", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), 1, None, links=False, moving=True, pause_s=0.9, quick=True),
    Fault("black hole 10 s while experts move", link("blackhole"), link("heal"), alive=True, moving=True, quick=True),
    Fault("kill -9, 1 of 4", kill(1), start(1), links=False, num_ranks=4, quick=True),
    Fault("kill -9 of rank 0", kill(0), start(0), lost=0, links=False, quick=True),
    Fault("stopped 1 s", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), 1, None, links=False, pause_s=0.9, quick=True),
    Fault("stopped 10 s", send(1, signal.SIGSTOP), send(1, signal.SIGCONT), links=False, stopped=True),
    Fault("rank 0 stopped 10 s", send(0, signal.SIGSTOP), send(0, signal.SIGCONT), lost=0, links=False, stopped=True),
    Fault("unplugged 1 s", link("unplug"), link("plug"), 1, None, pause_s=0.9),
    Fault("unplugged 2 s", link("unplug"), link("plug"), 2, None, pause_s=1.9, quick=True),
    Fault("unplugged 10 s", link("unplug"), link("plug"), alive=True),
    Fault("link down 10 s", link("link_down"), link("link_up"), alive=True),
    Fault("black hole 10 s", link("blackhole"), link("heal"), alive=True, quick=True),
    Fault("black hole 10 s, to rank 1", link("blackhole", "to"), link("heal"), alive=True),
    Fault("black hole 10 s, from rank 1", link("blackhole", "from"), link("heal"), alive=True),
    Fault("cut 10 s between ranks 1 and 2 of 3", pair("cut"), pair("mend"), lost=None, num_ranks=3, of_two=True, quick=True),
    Fault("1 % loss", link("loss", 1), link("heal"), 5, None),
    Fault("1gbit to 10mbit", link("rate", "10mbit"), link("rate", "1gbit"), 8, None, pause_s=0.5, quick=True),
)


@dataclass
class FaultResult:
    """The results of a fault, in words for the table."""

    fault: str
    network: str
    detected: str = "no loss"
    clients: str = ""
    pause: str = "-"
    changed: str = "-"
    new_requests: str = "taken"
    recovered: str = "-"
    is_late: bool = False  # whether the loss was known later than the goal

    HEAD = ("fault", "network", "detected after", "streams", "longest pause", "tokens changed", "new requests", "recovered after")

    def cells(self):
        return self.fault, self.network, self.detected, self.clients, self.pause, self.changed, self.new_requests, self.recovered

    def detected_after(self, began):
        waited_s = time.monotonic() - began
        self.detected, self.is_late = f"{waited_s:.2f} s", waited_s > KNOWN_GOAL_S

    def __str__(self):
        return (
            f"known after {self.detected}; streams: {self.clients}, longest pause {self.pause}, tokens changed {self.changed}; "
            f"new: {self.new_requests}; back after {self.recovered}"
        )


def try_fault(fault, ranks, network, lasts_s):
    """Begins the fault during traffic at every port, checks its effects, ends it, and checks that all works again."""
    row = FaultResult(fault.name, network)
    streams = start_streams(ranks, fault.fields()) if fault.traffic else []
    if fault.drafts:
        wait_drafts(ranks)
    if fault.moving:
        wait_moves(ranks)
    assert all(stream.is_alive() for stream in streams), "the traffic is over before the fault"
    began = time.monotonic()
    fault.begin(ranks)
    if fault.of_two:
        see_cut(fault, ranks, streams, row, began)
    elif fault.lost is None:
        see_nobody_lost(fault, ranks, streams, row)
    else:
        see_loss(fault, ranks, streams, row, began, lasts_s)
    see_all_well(fault, ranks)
    return row


def start_streams(ranks, fields=GREEDY, tokens=STREAM_TOKENS):
    ranks.wait_doors()
    streams = [ranks.stream(i % ranks.num_ranks, prompt, tokens, END_S, fields[i]) for i, prompt in enumerate(STREAMS)]
    for stream in streams:
        stream.wait_blocks(5)
    return streams


def wait_drafts(ranks, limit_s=20):
    """Waits until drafts hold on every rank, so that its next steps verify some."""
    deadline = time.monotonic() + limit_s
    for rank in range(ranks.num_ranks):
        while ranks.metric(rank, "spec_accepted_total") < 50:
            assert time.monotonic() < deadline, f"rank {rank} verifies no drafts"
            time.sleep(0.02)


def wait_moves(ranks, limit_s=20):
    """Waits until layers of every rank have other experts than at the start."""
    deadline = time.monotonic() + limit_s
    for rank in range(ranks.num_ranks):
        while ranks.metric(rank, "expert_layers_moved_total") < 2:
            assert time.monotonic() < deadline, f"no experts of rank {rank} move"
            time.sleep(0.02)


def see_nobody_lost(fault, ranks, streams, row):
    late = ranks.stream(0, LONG_PROMPT, 4)
    healed = threading.Timer(fault.lasts_s, fault.end, [ranks])
    healed.start()
    unready = []
    while healed.is_alive() or any(stream.is_alive() for stream in streams):
        status, text = ranks.readiness(0)
        unready += [text] if status != 200 else []
        time.sleep(0.05)
    assert not unready, f"rank 0 was not ready: {unready[0]}"
    see_whole(streams, list(range(len(streams))), fault.fields(), row)
    assert late.finish(60).done, late.tells()
    assert late.text == texts_of_one_rank((LONG_PROMPT,), 4)[0]
    gap = max(stream.longest_gap_s for stream in streams)
    assert gap >= fault.pause_s, f"the longest pause was {gap:.1f} s: nothing happened"


def see_whole(streams, which, fields, row):
    """Checks that the streams with these numbers end, with the text that one rank alone makes."""
    expected = texts_of_one_rank(STREAMS, STREAM_TOKENS, fields)
    for i in which:
        assert streams[i].finish(END_S).done, streams[i].tells()
        assert streams[i].text == expected[i], f"stream {i} differs from that of one rank"
    row.clients = f"{len(which)} of {len(streams)} complete"
    if which:
        row.pause = f"{max(streams[i].longest_gap_s for i in which):.2f} s"
        row.changed = "0"


def see_loss(fault, ranks, streams, row, began, lasts_s):
    name = f"rank {fault.lost}"
    others = [rank for rank in range(ranks.num_ranks) if rank != fault.lost]
    restarted_at_once = fault.end is nothing
    if restarted_at_once:
        row.detected = "the restart"
    else:
        ranks.wait_lost(name, others, KNOWN_WITHIN_S)
        row.detected_after(began)
    if fault.alive:
        ranks.wait_lost("rank 0", [fault.lost], KNOWN_WITHIN_S)
    killed = not (fault.alive or fault.stopped)
    own = [i for i in range(len(streams)) if i % ranks.num_ranks == fault.lost] if killed else []
    if not restarted_at_once:
        row.new_requests = see_refused(ranks, others + ([fault.lost] if fault.alive else []))
    time.sleep(max(0, began + lasts_s - time.monotonic()))
    ended = time.monotonic()
    fault.end(ranks)
    ranks.wait_ready(BACK_S)
    row.recovered = f"{time.monotonic() - ended:.2f} s"
    see_whole(streams, [i for i in range(len(streams)) if i not in own], fault.fields(), row)
    expected = texts_of_one_rank(STREAMS, STREAM_TOKENS, fault.fields())
    for i in own:
        stream = streams[i].finish(CUT_S)
        assert stream.cut, f"at {name}: {stream.tells()}"
        assert expected[i].startswith(stream.text), f"a stream said something else before it ended: {stream.tells()}"
    row.clients += f", {len(own)} cut with their rank" if own else ""


def see_cut(fault, ranks, streams, row, began):
    """The ranks lose one of the two, again and again, until the link is mended; all streams go on."""
    ranks.wait_lost("the link between them", [0], KNOWN_WITHIN_S)
    row.detected_after(began)
    row.new_requests = see_refused(ranks, [0])
    time.sleep(max(0, began + fault.lasts_s - time.monotonic()))
    ended = time.monotonic()
    fault.end(ranks)
    ranks.wait_ready(BACK_S)
    row.recovered = f"{time.monotonic() - ended:.2f} s"
    see_whole(streams, list(range(len(streams))), fault.fields(), row)


def see_refused(ranks, where):
    for rank in where:
        status, headers, text = ranks.call(rank, "/v1/completions", {"prompt": "there was a", "max_tokens": 1}, timeout=5)
        assert status == 503 and "rank " in text and "lost_rank" in text, (status, text)
        assert "Retry-After" in headers, headers
        assert ranks.call(rank, "/livez")[0] == 200
    return f"503, Retry-After: {headers['Retry-After']}"


def see_all_well(fault, ranks):
    """Checks that only a killed rank was started again, that answers are as before, and that no page is missing."""
    killed = fault.lost if not (fault.alive or fault.stopped) else None
    for node, process in enumerate(ranks.processes):
        assert process.alive() and process.num_starts == 1 + (node == killed), f"rank {node} was started again"
    for rank in range(ranks.num_ranks):
        assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise than before"
        ranks.check_pages(rank)


@contextlib.contextmanager
def ranks_for(num_ranks, network, **options):
    if network == "one machine":
        with Cluster(num_ranks, **options) as ranks:
            yield ranks
        return
    harness.need_hosts()
    with Hosts(num_ranks, "1gbit") as hosts, Cluster(num_ranks, hosts, **options) as ranks:
        yield ranks


def one_fault(fault, network, lasts_s):
    flags = DRAFTS.get(fault.drafts, {}) | (OVERLAPPED if fault.overlapped else {}) | (MOVING if fault.moving else {})
    with ranks_for(fault.num_ranks, network, flags=flags) as ranks:
        return try_fault(fault, ranks, network, lasts_s)


def repeated_losses():
    """A loss leaves no open file and no memory behind at the survivor: of five losses at least one adds nothing.

    Now and then a thread meets a wait for the first time, and takes its memory then. A leak grows with each loss.
    """
    with ranks_for(2, "one machine") as ranks:
        survivor, seen = ranks.processes[0], []
        for _ in range(REPEATS):
            streams = start_streams(ranks)
            kill(1)(ranks)
            ranks.wait_lost("rank 1", [0], KNOWN_WITHIN_S)
            start(1)(ranks)
            ranks.wait_ready(BACK_S)
            for i, stream in enumerate(streams):
                assert stream.finish(END_S).done == (i % 2 == 0), stream.tells()
            assert ranks.answers(0) == answers_of_one_rank()
            time.sleep(0.2)
            seen.append((survivor.open_files(), survivor.rss_bytes()))
        files, rss = (min(after - before for before, after in zip(one, one[1:])) for one in zip(*seen))
        assert files <= MORE_FILES, f"open files: {[one[0] for one in seen]}"
        assert rss <= MORE_BYTES, f"bytes in memory: {[one[1] for one in seen]}"
        return f"{seen[-1][0]} open files, {files:+d}; {seen[-1][1] >> 20} MB, {rss / (1 << 20):+.1f} by a loss"


def quick_cases():
    for fault in FAULTS:
        if fault.quick:
            lasts_s = 0 if fault.lost is not None else fault.lasts_s
            network = "hosts" if fault.links else "one machine"
            yield f"fault: {fault.name}, {network}", lambda f=fault, n=network, s=lasts_s: one_fault(f, n, s)
    yield "fault: the same rank lost five times leaves nothing behind", repeated_losses


def all_cases(rows):
    for fault in FAULTS:
        for network in ("hosts",) if fault.links else ("one machine", "hosts"):

            def case(fault=fault, network=network):
                rows.append(one_fault(fault, network, fault.lasts_s))
                return rows[-1]

            yield f"fault: {fault.name}, {network}", case
    yield "fault: the same rank lost five times leaves nothing behind", repeated_losses


def main():
    given = harness.arguments(__doc__, table=True)
    rows = []
    passed = harness.run(all_cases(rows) if given.table else quick_cases(), given)
    if given.table:
        print("\n| " + " | ".join(FaultResult.HEAD) + " |\n|" + "---|" * len(FaultResult.HEAD))
        for row in rows:
            print("| " + " | ".join(row.cells()) + " |")
        late = [f"{row.fault}, {row.network}: {row.detected}" for row in rows if row.is_late]
        if late:
            print(f"\nknown later than {KNOWN_GOAL_S} s: {'; '.join(late)}")
            return True
    return not passed


if __name__ == "__main__":
    sys.exit(main())
