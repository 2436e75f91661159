"""The faults of random_faults.py: each begins on ranks that a seed draws, ends again, and tells which ranks these were."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

NUM_RANKS = 4
BACK_S = 60  # from the end of a fault until all ranks serve
RATE = "1gbit"


class FaultChoice:
    """The service, and the faults that a seed chooses for it."""

    def __init__(self, ranks, hosts, store, draw):
        self.ranks, self.hosts, self.store, self.draw = ranks, hosts, store, draw

    # Ranks

    def special(self):
        """Returns the rank that may not be lost, or None: rank 0, unless there is etcd."""
        return None if self.store else 0

    def coordinator(self):
        return self.store.coordinator() if self.store else 0

    def some(self, count=1, but=()):
        """Draws ranks that may be missing."""
        return self.draw.sample([rank for rank in range(NUM_RANKS) if rank != self.special() and rank not in but], count)

    def kill(self, rank):
        self.ranks.processes[rank].kill()

    def start(self, rank):
        self.ranks.processes[rank].start()

    def stop(self, rank):
        self.ranks.processes[rank].signal(signal.SIGSTOP)

    def go_on(self, rank):
        self.ranks.processes[rank].signal(signal.SIGCONT)

    def wait(self, min_s, max_s):
        time.sleep(self.draw.uniform(min_s, max_s))

    def wait_moves(self):
        """Waits a while until experts are moving."""
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline and not self.ranks.info(0)["expert_moves"]["layers_left"]:
            time.sleep(0.01)

    def wait_exit(self, rank):
        status = self.ranks.processes[rank].exit_status(BACK_S)
        assert status == 0, f"rank {rank} ends with status {status}"

    def wait_whole(self):
        """Waits until all ranks serve."""
        began = time.monotonic()
        for rank in range(NUM_RANKS):
            while not self._serves_whole(rank):
                process = self.ranks.processes[rank]
                assert process.alive(), f"rank {rank} ended by itself, with status {process.running.returncode}"
                told = f"rank {rank} does not serve with all after {BACK_S} s: {self.ranks.readiness(rank)}"
                assert time.monotonic() - began < BACK_S, told
                time.sleep(0.05)

    def _serves_whole(self, rank):
        try:
            return self.ranks.readiness(rank)[0] == 200 and self.ranks.metric(rank, "cluster_member_ranks") == NUM_RANKS
        except (OSError, AssertionError):
            return False

    # Faults. Each ends what it began, and returns which ranks it was about.

    def killed(self, *ranks, apart_s=0.0, away_s=(0, 2.5)):
        for i, rank in enumerate(ranks):
            time.sleep(apart_s if i else 0)
            self.kill(rank)
        self.wait(*away_s)
        for rank in ranks:
            self.start(rank)
        return ranks

    def one_killed(self):
        return self.killed(*self.some())

    def back_at_once(self):
        return self.killed(*self.some(), away_s=(0, 0))

    def coordinator_killed(self):
        return self.killed(self.coordinator(), away_s=(0, 1.5))

    def killed_while_experts_move(self):
        self.wait_moves()
        return self.killed(*self.some())

    def killed_again_while_it_joins(self):
        (rank,) = self.killed(*self.some())
        self.wait(0, 0.6)
        return self.killed(rank)

    def killed_while_another_joins(self):
        one, other = self.some(2)
        self.killed(one)
        self.wait(0, 0.6)
        self.killed(other)
        return one, other

    def two_killed(self):
        return self.killed(*self.some(2), apart_s=self.draw.choice((0, 0, self.draw.uniform(0, 1))))

    def killed_and_stopped(self):
        one, other = self.some(2)
        self.stop(other)
        self.killed(one, away_s=(3.5, 5))
        self.go_on(other)
        return one, other

    def killed_beside_a_cut(self):
        one, a, b = self.some(3)
        self.hosts[a].cut(self.hosts[b])
        self.killed(one, away_s=(4, 6))
        self.hosts[a].mend(self.hosts[b])
        return one, (a, b)

    def stopped(self, min_s, max_s):
        rank = self.draw.randrange(NUM_RANKS) if max_s < 3 else self.some()[0]
        self.stop(rank)
        self.wait(min_s, max_s)
        self.go_on(rank)
        return (rank,)

    def pair_cut(self):
        a, b = self.some(2, but=(self.coordinator(),))
        self.hosts[a].cut(self.hosts[b])
        self.wait(4, 8)
        self.hosts[a].mend(self.hosts[b])
        return a, b

    def host_cut(self):
        (rank,) = self.some()
        direction = self.draw.choice(("both", "both", "to", "from"))
        self.hosts[rank].blackhole(direction)
        self.wait(4, 7)
        self.hosts[rank].heal()
        return rank, direction

    def unplugged(self, min_s, max_s):
        rank = self.draw.randrange(NUM_RANKS) if max_s < 3 else self.some()[0]
        self.hosts[rank].unplug()
        self.wait(min_s, max_s)
        self.hosts[rank].plug()
        return (rank,)

    def frames_lost(self):
        rank = self.draw.randrange(NUM_RANKS)
        self.hosts[rank].loss(self.draw.uniform(0.5, 3))
        self.wait(1, 4)
        self.hosts[rank].heal()
        return (rank,)

    def slow_link(self):
        rank = self.draw.randrange(NUM_RANKS)
        self.hosts[rank].rate("10mbit")
        self.wait(1, 4)
        self.hosts[rank].rate(RATE)
        return (rank,)

    def leave(self, rank, how):
        if how == "SIGTERM":
            self.ranks.processes[rank].signal(signal.SIGTERM)
            return
        asked = self.draw.randrange(NUM_RANKS)
        deadline = time.monotonic() + 5
        while True:  # right after a fault the service may not know yet that it can do without
            status, _, text = self.ranks.call(asked, "/scale_ranks", {"leave": [rank]})
            if status == 200 and json.loads(text)["leaving"] == [rank]:
                return
            assert time.monotonic() < deadline, f"rank {asked} says that rank {rank} cannot leave: {text}"
            time.sleep(0.1)

    def left(self):
        (rank,) = self.some()
        how = self.draw.choice(("asked", "asked", "SIGTERM"))
        self.leave(rank, how)
        self.wait_exit(rank)
        self.wait(0, 2)
        by = self.draw.choice([other for other in range(NUM_RANKS) if other != rank])
        self._join(rank, by)
        return rank, how

    def _join(self, rank, by):
        """Starts the process of a rank with the address of another one instead of its own number."""
        process = self.ranks.processes[rank]
        before = process.flags
        own = ("--model-path", "--port", "--host", "--cluster-token-file", "--cpu-bind", "--num-threads", "--max-total-tokens", "--decode-log-interval")
        process.flags = {name: value for name, value in before.items() if name in own} | {"--join": f"{self.hosts[by].name}:{self.ranks.http_ports()[by]}"}
        process.start()
        process.flags = before

    def killed_while_another_leaves(self):
        one, other = self.some(2)
        self.leave(other, "asked")
        self.wait(0, 0.3)
        self.kill(one)
        self.wait_exit(other)
        self.wait(0, 1)
        self.start(one)
        self.start(other)
        return one, other

    def store_away(self, killed=False):
        self.store.kill(0)
        (rank,) = self.some()
        if killed:
            self.wait(0, 1)
            self.kill(rank)
        self.wait(1, 5)
        self.store.start(0)
        if killed:
            self.start(rank)
        return (rank,) if killed else ()


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    play: Callable  # with the plan; returns which ranks
    missing: int = 1  # number of ranks that are missing at once
    store: str = ""  # only with this store
    moves: bool = False  # only if experts move


KINDS = (
    Kind("kill -9", FaultChoice.one_killed),
    Kind("kill -9 and a start at once", FaultChoice.back_at_once),
    Kind("kill -9 of rank 0", FaultChoice.coordinator_killed, 0, "plain"),
    Kind("kill -9 of the coordinator", FaultChoice.coordinator_killed, 1, "etcd"),
    Kind("kill -9 while experts move", FaultChoice.killed_while_experts_move, moves=True),
    Kind("kill -9 again while it joins", FaultChoice.killed_again_while_it_joins),
    Kind("kill -9 while another joins", FaultChoice.killed_while_another_joins, 2),
    Kind("kill -9 of two", FaultChoice.two_killed, 2),
    Kind("kill -9 of one, another stopped", FaultChoice.killed_and_stopped, 2),
    Kind("kill -9 of one beside a cut between two", FaultChoice.killed_beside_a_cut, 2),
    Kind("stopped 0.5 to 2 s", lambda plan: plan.stopped(0.5, 2), 0),
    Kind("stopped 4 to 6 s", lambda plan: plan.stopped(4, 6)),
    Kind("cut between two", FaultChoice.pair_cut),
    Kind("cut from all", FaultChoice.host_cut),
    Kind("unplugged 0.5 to 2 s", lambda plan: plan.unplugged(0.5, 2), 0),
    Kind("unplugged 4 to 6 s", lambda plan: plan.unplugged(4, 6)),
    Kind("frames lost", FaultChoice.frames_lost, 0),
    Kind("1gbit becomes 10mbit", FaultChoice.slow_link, 0),
    Kind("leaves, and another joins", FaultChoice.left),
    Kind("kill -9 while another leaves", FaultChoice.killed_while_another_leaves, 2),
    Kind("etcd away", FaultChoice.store_away, 0, "etcd"),
    Kind("etcd away and kill -9", lambda plan: plan.store_away(killed=True), 1, "etcd"),
)
