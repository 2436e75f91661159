#!/usr/bin/env python3
"""Faults by a random plan, on four hosts of namespaces, while clients stream from every rank: no answer breaks, and none differs.

    tests/hosts/random_faults.py                                    a short plan, as a test
    tests/hosts/random_faults.py --faults 100 --seconds 500 --seed 7 --streams 16 --tolerate 2 --store etcd

It prints a line for each fault, and a table of all kinds. The same seed makes the same plan; the moments at which its faults
meet the steps differ. With --tolerate-ranks 2 two ranks may be missing at once. Hosts need root (netns.py).
"""

import argparse
import contextlib
import random
import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime

import harness
from cluster import Cluster, OneRank, answers_of_one_rank
from comes_back import undisturbed
from etcd import Etcd
from fault_choice import KINDS, NUM_RANKS, RATE, FaultChoice
from netns import Hosts
from returning_clients import Clients

WORDS = ("cat", "king", "ship", "owl")
FLAGS = {"--host": "0.0.0.0", "--decode-log-interval": 100000}
MOVES = {"--enable-eplb": True, "--eplb-rebalance-num-iterations": 40}


@dataclass
class Played:
    """One fault of the plan and its effect."""

    kind: str
    told: str = ""  # which ranks
    began: float = 0  # by the monotonic clock
    ended: float = 0  # when all ranks served again
    wall: float = 0  # `began` by the clock of the logs
    known_s: float | None = None  # from its begin until a log says that a rank is lost
    lost: set = field(default_factory=set)  # which ranks the logs say are lost
    pauses: list = field(default_factory=list)  # the longest of each stream that was open meanwhile
    pauses_of_lost: list = field(default_factory=list)  # the same, of clients that a lost rank was answering


def kinds_for(given):
    kinds = [kind for kind in KINDS if kind.missing <= given.tolerate and kind.store in ("", given.store) and given.moves >= kind.moves and given.only in kind.name]
    assert kinds, f"no kind of fault has '{given.only}' in its name"
    return kinds


def play(plan, kinds, given, clients):
    """Plays faults until `given.faults` were, or the time is over, or one left something wrong; returns them and what was wrong."""
    played, until = [], time.monotonic() + given.seconds
    order = []
    while len(played) < given.faults and time.monotonic() < until:
        order = order or plan.draw.sample(kinds, len(kinds))  # each kind comes once in a round
        kind = order.pop()
        one = Played(kind.name, began=time.monotonic(), wall=time.time())
        played.append(one)
        try:
            one.told = str(kind.play(plan))
            plan.wait_whole()
        except (AssertionError, OSError) as reason:
            one.ended = time.monotonic()
            return played, [f"{kind.name} {one.told}: {type(reason).__name__}: {reason}"]
        one.ended = time.monotonic()
        failed = clients.failed()
        print(f"{len(played):4} {one.ended - one.began:5.1f} s  {kind.name} {one.told}{f', {len(failed)} answers failed' if failed else ''}", flush=True)
        plan.wait(0.2, 1.2)
    return played, []


LOSS = re.compile(r"^\[([-\d]+ [:.\d]+)\] \w .*cluster: lost epoch=\d+ rank (\d+)", re.M)


def read_losses(ranks):
    """Returns the times, by the clock of the logs, at which some rank said that one is lost, and which."""
    found = [one for process in ranks.processes for one in LOSS.findall(process.log())]
    return sorted((datetime.fromisoformat(when).timestamp(), int(rank)) for when, rank in found)


def measure(played, answers, losses):
    """Fills in when each fault was known, and the pauses of the streams that were open meanwhile."""
    for one in played:
        known = [(when, rank) for when, rank in losses if one.wall <= when <= one.wall + one.ended - one.began]
        one.known_s = known[0][0] - one.wall if known else None
        one.lost = {rank for _, rank in known}
        for answer in answers:
            if answer.began < one.ended and answer.ended > one.began:
                pause_s, door = answer.longest_pause(one.began, one.ended)
                (one.pauses_of_lost if door in one.lost else one.pauses).append(pause_s)


def percentile_99(values):
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def seconds(values, of):
    return f"{of(values):.2f} s" if values else "-"


def print_table(played, answers):
    """Pauses of clients that a lost rank was answering stand apart: these last until the rank is back, or the client goes elsewhere."""
    print("\n| fault | count | streams | broken | different | known after | most | pause p50 | p99 | most | p99 beyond known | of the lost rank's clients, p50 | most |")
    print("|---" + "|---:" * 12 + "|")
    for name in [kind.name for kind in KINDS if any(one.kind == kind.name for one in played)] + ["all"]:
        of = [one for one in played if name in (one.kind, "all")]
        pauses, apart = ([pause for one in of for pause in getattr(one, which)] for which in ("pauses", "pauses_of_lost"))
        known = [one.known_s for one in of if one.known_s is not None]
        beyond = [pause - one.known_s for one in of if one.known_s is not None for pause in one.pauses]
        touched = [answer for answer in answers if any(answer.began < one.ended and answer.ended > one.began for one in of)]
        cells = [name, len(of), len(pauses) + len(apart), sum(bool(answer.broken) for answer in touched), sum(bool(answer.differs) for answer in touched)]
        cells += [seconds(known, statistics.median), seconds(known, max), seconds(pauses, statistics.median), seconds(pauses, percentile_99), seconds(pauses, max)]
        cells += [seconds(beyond, percentile_99), seconds(apart, statistics.median), seconds(apart, max)]
        print("| " + " | ".join(map(str, cells)) + " |")


def print_longest(played, count=8):
    """Prints the faults with the longest pauses of clients that no lost rank was answering."""
    for one in sorted(played, key=lambda one: -max(one.pauses, default=0))[:count]:
        known = f"known after {one.known_s:.2f} s" if one.known_s is not None else "no loss"
        print(f"  {played.index(one) + 1}: {one.kind} {one.told}, {known}, lost {sorted(one.lost)}: pauses of {[round(p, 2) for p in sorted(one.pauses)[-4:]]} s")


def print_answers(answers, played):
    failed = [answer for answer in answers if answer.broken or answer.differs]
    came_back = sum(len(answer.doors) > 1 for answer in answers)
    refused = [answer for answer in answers if answer.refusals]
    print(
        f"{len(answers)} answers, {sum(bool(answer.broken) for answer in answers)} broken, {sum(bool(answer.differs) for answer in answers)} different; "
        f"{came_back} by more than one request, {len(refused)} began after a 503; longest wait for a first event "
        f"{max((answer.waited_s() for answer in answers), default=0):.2f} s"
    )
    for when, door, message in sorted(refusal for answer in refused for refusal in answer.refusals):
        number = max((i for i, one in enumerate(played) if one.began < when), default=-1) + 1
        of = played[number - 1]
        print(f"  503 of rank {door}, {when - of.began:.2f} s into {number}: {of.kind} {of.told}: {message[:160]}")
    for answer in failed[:20]:
        last = max((i for i, one in enumerate(played) if one.began < answer.ended), default=-1) + 1
        print(f"  in fault {last} {answer.of} through ranks {answer.doors}: {answer.broken or answer.differs}"[:1500])
    return failed


@contextlib.contextmanager
def service(given):
    """Four hosts with a rank each, and with etcd a fifth for its server."""
    flags = FLAGS | {"--tolerate-ranks": given.tolerate}
    flags |= {"--ep-num-redundant-experts": given.replicas} if given.replicas else {}
    flags |= MOVES if given.moves else {}
    flags |= dict(flag.split("=", 1) for flag in given.flag)
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(Hosts(NUM_RANKS + (given.store == "etcd"), RATE))
        store = stack.enter_context(Etcd(1, hosts[NUM_RANKS])) if given.store == "etcd" else None
        ranks = stack.enter_context(Cluster(NUM_RANKS, hosts, flags=flags, store=store.place() if store else ""))
        ranks.wait_doors()
        yield FaultChoice(ranks, hosts, store, random.Random(given.seed))


def random_faults(given):
    harness.need_hosts()
    kinds = kinds_for(given)
    with OneRank() as one:
        wanted = undisturbed(one, WORDS)
    with service(given) as plan:
        clients = Clients(plan.ranks, wanted, given.streams, given.seed)
        time.sleep(2)
        played, wrong = play(plan, kinds, given, clients)
        answers = clients.close()
        measure(played, answers, read_losses(plan.ranks))
        print_table(played, answers)
        print_longest(played)
        failed = print_answers(answers, played)
        assert not wrong, wrong[0]
        assert not failed, f"{len(failed)} answers broke or differ, the first {failed[0].of} through ranks {failed[0].doors}: {failed[0].broken or failed[0].differs}"[:1500]
        for rank in range(NUM_RANKS):
            assert plan.ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise after all faults"
            plan.ranks.check_pages(rank)
        return f"{len(played)} faults, {len(answers)} answers whole and equal, longest pause {max(answer.longest_pause() for answer in answers)[0]:.2f} s"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=6, metavar="N", help="largest number of faults")
    parser.add_argument("--seconds", type=float, default=45, metavar="S", help="no fault begins later")
    parser.add_argument("--seed", type=int, default=1, metavar="X")
    parser.add_argument("--streams", type=int, default=8, metavar="N", help="open at a time")
    parser.add_argument("--tolerate", type=int, default=1, metavar="K", help="--tolerate-ranks; with etcd at most 1")
    parser.add_argument("--replicas", type=int, default=0, metavar="N", help="--ep-num-redundant-experts")
    parser.add_argument("--moves", action="store_true", help="experts move all the time (--enable-eplb)")
    parser.add_argument("--store", choices=("plain", "etcd"), default="plain", help="rank 0 knows the members, or etcd")
    parser.add_argument("--flag", action="append", default=[], metavar="NAME=VALUE", help="a further flag of all ranks, such as --overlap-schedule=on")
    parser.add_argument("--only", default="", metavar="WORD", help="kinds with this in their name")
    return parser.parse_args()


def main():
    given = arguments()
    name = f"random faults of {NUM_RANKS} ranks, {given.store} store, at most {given.tolerate} missing"
    every = argparse.Namespace(only="", piece="0/1")
    return not harness.run([(name, lambda: random_faults(given))], every)


if __name__ == "__main__":
    sys.exit(main())
