"""Clients that stream one answer after the other from any rank. If a stream breaks off, its client comes back to it at another rank.

Each answer is compared with that of one rank alone, event by event; `Answer` says how it went.
"""

import itertools
import json
import random
import threading
import time

from comes_back import APIS, begin, check_equal, come_back, last_id, responses, same_in_each

LIMIT_S = 100  # for a whole answer
PATIENCE_S = (2.5, 6)  # some clients leave a stream that is silent for so long, and come back elsewhere
LEAVES_S = 10  # until a stream that its client leaves has ended
AGAIN_S = 0.05  # between two tries


class Answer:
    """One answer as its client saw it: its events, when each came, and through which ranks."""

    def __init__(self, of):
        self.of, self.began, self.ended = of, time.monotonic(), None
        self.events, self.doors = [], []
        self.times = []  # when each event came, and through which rank
        self.broken, self.differs = "", ""  # why
        self.refusals = []  # when a new request got 503, from which rank, and with which message

    def longest_pause(self, begin=0.0, end=float("inf")):
        """Returns the seconds of the longest pause of which a part lies between two times, and through which rank it began."""
        pauses = ((b - a, door) for (a, door), (b, _) in itertools.pairwise(self.times) if a < end and b > begin)
        return max(pauses, default=(0.0, -1))

    def waited_s(self):
        return (self.times[0][0] if self.times else self.ended) - self.began


class Clients:
    """`count` clients, each with one stream at a time, until close()."""

    def __init__(self, ranks, wanted, count, seed):
        self._ranks, self._wanted, self._open = ranks, wanted, True
        self._same = {of: same_in_each("".join(events)) for of, events in wanted.items()}
        self.answers = []
        self._threads = [threading.Thread(target=self._run, args=(random.Random(f"{seed} {i}"),), daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def close(self):
        """Lets all answers end; returns them."""
        self._open = False
        for thread in self._threads:
            thread.join(LIMIT_S + 10)
            assert not thread.is_alive(), "a client has not ended"
        return self.answers

    def failed(self):
        return [answer for answer in self.answers if answer.broken or answer.differs]

    def _run(self, draw):
        while self._open:
            answer = Answer(draw.choice(list(self._wanted)))
            try:
                self._read(answer, draw)
            except Exception as reason:  # it is told with the others
                answer.broken = f"the client failed: {type(reason).__name__}: {reason}"
            answer.ended = time.monotonic()
            if not answer.broken:
                self._compare(answer)
            if not (answer.broken or answer.differs):
                answer.events = []
            self.answers.append(answer)

    def _read(self, answer, draw):
        patience_s = draw.uniform(*PATIENCE_S) if draw.random() < 0.3 else LIMIT_S
        while not self._is_whole(answer):
            if time.monotonic() - answer.began > LIMIT_S:
                answer.broken = f"not whole after {LIMIT_S} s: {len(answer.events)} events"
                return
            stream = self._ask(answer, draw)
            silent_since = time.monotonic()
            while stream.is_alive():
                stream.join(0.1)
                if stream.times:
                    silent_since = max(silent_since, stream.times[-1])
                if time.monotonic() - silent_since > patience_s:
                    stream.leave()
                    stream.join(LEAVES_S)
                    if stream.is_alive():
                        answer.broken = f"the stream through rank {answer.doors[-1]} has not ended {LEAVES_S} s after its client left"
                        return
            answer.events += stream.events
            answer.times += [(when, answer.doors[-1]) for when in stream.times]
            if why := self._why_broken(answer, stream):
                answer.broken = why
                return

    def _ask(self, answer, draw):
        doors = [rank for rank in range(self._ranks.num_ranks) if [rank] != answer.doors[-1:]]
        door = draw.choice(doors)
        answer.doors.append(door)
        if not any("\nid: " in event for event in answer.events):
            answer.events, answer.times = [], []
            api = next(api for api in APIS if api.__name__ == answer.of[0])
            return begin(self._ranks, door, api, answer.of[1])
        id = last_id(answer.events)
        by_response = answer.of[0] == responses.__name__ and draw.random() < 0.5
        return come_back(self._ranks, door, answer.events, f"/v1/responses/{id.rsplit(':', 1)[0]}?stream=true" if by_response else None)

    def _why_broken(self, answer, stream):
        """Returns why the answer cannot go on; empty if it is whole, or its client may come back."""
        if stream.status not in (None, 200):
            if stream.status != 503:
                return f"status {stream.status} through rank {answer.doors[-1]} after {len(answer.events)} events: {stream.answer}"
            if not answer.events:
                answer.refusals.append((time.monotonic(), answer.doors[-1], error_message(stream.answer)))
            time.sleep(AGAIN_S)
        elif stream.status is None:
            time.sleep(AGAIN_S)
        elif stream.events and is_error(stream.events[-1]):
            return f"an error through rank {answer.doors[-1]} after {len(answer.events) - 1} events: {stream.events[-1].strip()}"
        return ""

    def _is_whole(self, answer):
        last = self._wanted[answer.of][-1]
        return len(answer.events) >= len(self._wanted[answer.of]) or (answer.events and same_in_each(answer.events[-1]) == same_in_each(last))

    def _compare(self, answer):
        if same_in_each("".join(answer.events)) != self._same[answer.of]:
            try:
                check_equal(answer.events, self._wanted[answer.of], f"{answer.of} through ranks {answer.doors}")
                answer.differs = "in its joined events"
            except AssertionError as reason:
                answer.differs = str(reason)


def is_error(event):
    return '"error":{' in event or event.startswith("event: error")


def error_message(text):
    try:
        return json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return text[:200]
