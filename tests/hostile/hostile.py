#!/usr/bin/env python3
"""Hostile clients against `hocket serve`, each beside an honest one that streams.

    tests/hostile/hostile.py                      every named case, then 15 s of requests drawn at random
    tests/hostile/hostile.py --seconds 3600       an hour of them
    tests/hostile/hostile.py --sample             what CI runs: at most a minute
    tests/hostile/hostile.py --only WORD          cases with this in their name, and nothing drawn
    tests/hostile/hostile.py --seed 5 --draw 17   one drawn request again
    --stack-kib 2048                              the server with a quarter of the usual stacks

README.md says what must hold in each case. Exit status 1 if a case failed.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import files
import grow
import own
import wire
from asking import ask, judge
from cases import CHAT, COMPLETIONS, EXACT, GENERATE, KEYS, KEYS_S, POSTS, chat, streams_with_prompt_logprobs
from server import ABOVE_READY_MIB, USUAL_STACK_KIB, Broken, Server, need

# The cases that CI runs, by the beginning of their names: the worst attacks, each of a second or two.
SAMPLE = (
    "H1 ", "H2 structural tag", "H3 ", "H4 ", "H5 ", "H6 ", "H7 allowed", "H7 tools", "H8 ", "H10 detokenize", "H11 metadata", "H12 ", "H13 ",
    "H14 ", "H15 ", "H16 ", "H17 ", "H19 ", "H20 ", "H22 ", "H23 ", "H24 ", "H25 ", "A1 multipleOf 99", "A1 SIGTERM", "A2 ", "A3 ", "A5 ",
    "A7 ", "A8 ", "A12 ", "A13 odd", "A13 half", "A13 HEAD", "chunk extensions", "noise", "pipelined", "reset",
)  # fmt: skip
SAMPLE_S = 8  # time for drawn requests, always the same
PAUSE_S = 1.0  # the longest pause of the honest stream
# Until the tokens of a small text are counted beside drawn requests, at most. A text thread is held the longest by one
# text: 192 KiB at the 4,096 tokens of the bundled model, which are cut for 0.5 s + 16 s a MB = 3.7 s at most (docs/contracts/requests.md).
ANSWER_S = 5.0
COUNT = "/tokenize"
DRAWN_S = 10  # the client drops a drawn request that takes longer
TWINS = 2  # copies of each drawn request at once: as many as there are text threads, so that none is left for others
GROUP = 8  # drawn requests beside one honest stream


class Field:
    """A server, the honest client beside it, and results of both. Starts a new pair after a failed case."""

    def __init__(self, given):
        self.given, self.server, self.honest = given, None, None
        self.worst_pause_s, self.slowest_start_s, self.highest_mib, self.passed, self.failed = 0.0, 0.0, 0.0, 0, 0
        self.slowest_s = {COUNT: 0.0, COMPLETIONS: 0.0}  # times of the small requests beside drawn ones

    def ready(self):
        if self.server is None:
            self.server = Server(stack_kib=self.given.stack_kib)
            honest = [sys.executable, Path(__file__).with_name("honest.py"), str(self.server.port)]
            self.honest = subprocess.Popen(honest, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.server

    def leave(self, failed):
        if self.server is None:
            return
        self.honest.kill()
        self.honest.wait()
        self.server.__exit__(failed)
        if failed:
            print(f"    the log is {self.server.log_path}")
        self.server = self.honest = None

    def say(self, word):
        self.honest.stdin.write(word + "\n")
        self.honest.stdin.flush()
        return json.loads(self.honest.stdout.readline())

    def beside(self, attack, start_s=None):
        """Runs the attack while the honest client streams, whose answers begin within start_s (--answer if not given).

        Afterwards the server must be idle again.
        """
        server = self.ready()
        self.say("go")
        try:
            remark = attack(server)
            server.check()
        finally:
            told = self.say("stop")
        server.check()
        pause, start, max_start = told["longest_pause_s"], told["longest_start_s"], start_s or self.given.answer
        self.worst_pause_s = max(self.worst_pause_s, pause)
        self.slowest_start_s = max(self.slowest_start_s, start)
        self.highest_mib = max(self.highest_mib, server.highest_mib())
        need(not told["wrong"], f"the honest client: {told['wrong']}")
        need(pause <= self.given.pause, f"the honest stream paused for {pause:.2f} s")
        need(start <= max_start, f"the honest stream began after {start:.2f} s")
        server.wait_idle()
        return f"{remark}, pause {pause:.2f} s"

    def case(self, name, attack, repeat=""):
        """Runs a case, prints its result and returns True if it passed. `attack` returns a remark."""
        if self.given.only not in name:
            return True
        began = time.monotonic()
        try:
            remark = attack()
        except (Broken, OSError, ValueError) as why:
            self.failed += 1
            print(f"    {type(why).__name__}: {why}")
            print(f"    again: {repeat or self.again(f'--only {name!r}')}")
            self.leave(failed=why)
            print(f"FAILED  {name}  {time.monotonic() - began:.1f} s", flush=True)
            return False
        self.passed += 1
        print(f"ok      {name}  {time.monotonic() - began:.1f} s, {remark}", flush=True)
        return True

    def again(self, words):
        stack = f" --stack-kib {self.given.stack_kib}" if self.given.stack_kib else ""
        return f"tests/hostile/hostile.py {words}{stack}"


def post(path, make, statuses):
    return lambda server: judge(ask(server, path, make()), statuses)


def many_keys(path, make):
    """Sent to as many text threads as there are; a small request of another client does not wait for them."""

    def attack(server):
        answers, body = [], make()
        twins = [threading.Thread(target=lambda: answers.append(ask(server, path, body))) for _ in range(TWINS)]
        for twin in twins:
            twin.start()
        other = ask(server, COMPLETIONS, wire.SMALL)
        for twin in twins:
            twin.join()
        # 503: one at a time fits in the memory of all requests, and two may not.
        remarks = [judge(answer, (200, 400, 413, 503)) for answer in answers]
        slowest = max(answer.seconds for answer in (other, *answers))
        need(slowest <= KEYS_S, f"answered after {slowest:.1f} s, not {KEYS_S}")
        judge(other, (200,))
        return f"{remarks[0]}, {slowest:.1f} s"

    return attack


def exact(more, wanted):
    def attack(server):
        answer = ask(server, CHAT, chat(**(more | {"max_tokens": 100})))
        judge(answer, (200,))
        said = json.loads(answer.text)["choices"][0]["message"]["content"]
        need(said == wanted, f"said {said!r}, not {wanted!r}")
        return said

    return attack


STREAMED = (200, 400, 413, 429, 503)


def many_streams(server):
    """Hundreds of MiB, so the attacker leaves after a while; until then the server must not cut the stream."""
    answer = ask(server, GENERATE, streams_with_prompt_logprobs(500), limit_s=8)
    if answer.status == 200 and answer.why.startswith("it still came"):
        return f"left after {len(answer.text) >> 20} MiB"
    return judge(answer, STREAMED)


def whole_streams(server):
    """The same with few tokens: whole or refused. 128,000 rows of prompts are computed for it."""
    return judge(ask(server, GENERATE, streams_with_prompt_logprobs(4), limit_s=120), STREAMED)


def foreign_host(server):
    answer = ask(server, "/configure_logging", b'{"log_requests":true}', more="X: y\r\n")
    need(answer.status == 200, f"{answer.status}")
    with server.connect() as connection:
        body = b'{"log_requests":false}'
        connection.sendall(
            b"POST /configure_logging HTTP/1.1\r\nHost: evil.example:30000\r\nOrigin: http://evil.example:30000\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        return judge(wire.read_answer(connection), (400, 403, 421))


def named(field):
    for name, path, make, statuses in POSTS:
        yield name, lambda path=path, make=make, statuses=statuses: field.beside(post(path, make, statuses))
    for name, path, make in KEYS:
        yield name, lambda path=path, make=make: field.beside(many_keys(path, make))
    for name, more, wanted in EXACT:
        yield name, lambda more=more, wanted=wanted: field.beside(exact(more, wanted))
    yield "H9 64 streams with all log-probabilities of the prompt", lambda: field.beside(many_streams)
    yield "H9 the same with few tokens, to the end", lambda: field.beside(whole_streams)
    yield "H13 a foreign Host", lambda: field.beside(foreign_host)
    for name, attack in wire.CASES:
        yield name, lambda attack=attack: field.beside(attack)
    for name, attack in own.CASES + files.CASES:
        yield name, lambda attack=attack: attack(field.given.stack_kib)


def answered_meanwhile(field, server, attackers):
    """While they run, a new client counts the tokens of a text and completes one, again and again: each in time.

    A text waits for its turn on the text threads alone. A completion waits behind drawn requests in the engine's queue too,
    which is first come, first served: until they are answered or dropped.
    """
    while True:
        count_s = field.given.answer
        for path, body, limit in ((COUNT, b'{"prompt":"a"}', count_s), (COMPLETIONS, wire.SMALL, count_s + DRAWN_S)):
            answer = ask(server, path, body, limit_s=limit)
            field.slowest_s[path] = max(field.slowest_s[path], answer.seconds)
            need(not answer.why and answer.seconds <= limit, f"a small request has no answer of {path} after {answer.seconds:.1f} s: {answer.why}")
            judge(answer, (200,))
        if not any(attacker.is_alive() for attacker in attackers):
            return
        time.sleep(0.05)


def drawn_request(field, known, seed, number, told):
    """TWINS of a drawn request at once. They are judged when all have ended, since that may hold up this interpreter."""

    def attack(server):
        path, name, body = grow.draw(known, seed, number)
        told.append(name)
        answers = []
        twins = [threading.Thread(target=lambda: answers.append(ask(server, path, body, limit_s=DRAWN_S))) for _ in range(TWINS)]
        for twin in twins:
            twin.start()
        try:
            answered_meanwhile(field, server, twins)
        finally:
            for twin in twins:
                twin.join()
        has_left = [answer for answer in answers if "TimeoutError" in answer.why or "it still came" in answer.why]
        remarks = [judge(answer) for answer in answers if answer not in has_left]
        return remarks[0] if remarks else "left"

    return attack


def draw_for(field, seconds, seed):
    """Sends drawn requests, GROUP of them beside each honest stream. One line counts those that passed."""
    known, number, began, passed = grow.table(), 0, time.monotonic(), 0

    def group(first):
        for each in range(first, first + GROUP):
            told = []
            try:
                drawn_request(field, known, seed, each, told)(field.ready())
                field.server.check()
            except Broken as why:
                raise Broken(f"draw {each}, {told[0]}: {why}") from why
        return ""

    while time.monotonic() - began < seconds:
        try:
            field.beside(lambda _, first=number: group(first), field.given.answer + DRAWN_S)
            passed += GROUP
        except (Broken, OSError, ValueError) as why:
            field.failed += 1
            print(f"    {why}")
            print(f"    again: {field.again(f'--seed {seed} --draw {number}')} (or one of the {GROUP - 1} after it)")
            field.leave(failed=why)
            print(f"FAILED  drawn requests {number} to {number + GROUP - 1}  seed {seed}", flush=True)
        number += GROUP
    if passed:
        field.passed += 1
        others = f"others' texts counted within {field.slowest_s[COUNT]:.1f} s, completed within {field.slowest_s[COMPLETIONS]:.1f} s"
        remark = f"seed {seed}: {passed} of {number} as they should be, {others}"
        print(f"ok      drawn requests  {time.monotonic() - began:.1f} s, {remark}", flush=True)


def end(field):
    """SIGTERM at the end, while an attack is under way."""
    server = field.ready()
    with server.connect() as connection:
        body = chat(json_schema={"type": "integer", "multipleOf": 99_999_989}).encode()
        connection.sendall(wire.head_of("POST", CHAT, len(body)) + body)
        time.sleep(0.2)
        took = server.end()
    field.leave(failed=None)
    return f"ended after {took:.1f} s"


def stack_of_words(text):
    """A part of the usual stack in whole percent, as the server takes it; so 0.1 of it at least."""
    kib = int(text)
    if kib and (kib * 100 % USUAL_STACK_KIB or not 10 <= kib * 100 // USUAL_STACK_KIB <= 100):
        raise argparse.ArgumentTypeError(f"{kib} KiB are no whole percentage, 10 to 100, of {USUAL_STACK_KIB} KiB: 2048 are")
    return kib


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--draw", type=int, default=None)
    parser.add_argument("--stack-kib", type=stack_of_words, default=0)
    parser.add_argument("--pause", type=float, default=PAUSE_S, metavar="SECONDS", help="of the honest stream, at most")
    parser.add_argument("--answer", type=float, default=ANSWER_S, metavar="SECONDS", help="of a small text to count, at most")
    return parser.parse_args()


def main():
    given = arguments()
    field = Field(given)
    seed = given.seed if given.seed is not None else 1 if given.sample else int(time.time())
    try:
        if given.draw is not None:
            for number in range(given.draw, given.draw + GROUP):
                told = []
                attack = drawn_request(field, grow.table(), seed, number, told)
                field.case(f"draw {number} of seed {seed}", lambda attack=attack: field.beside(attack, given.answer + DRAWN_S), field.again(f"--seed {seed} --draw {number}"))
        else:
            for name, attack in named(field):
                if not given.sample or name.startswith(SAMPLE) and name != "pipelined and unread":
                    field.case(name, attack)
            if not given.only:
                draw_for(field, SAMPLE_S if given.sample else given.seconds, seed)
            field.case("SIGTERM during an attack", lambda: end(field))
    finally:
        field.leave(failed=None)
    print(
        f"worst pause {field.worst_pause_s:.2f} s, streams began within {field.slowest_start_s:.2f} s, "
        f"at most {field.highest_mib:.0f} MiB resident (may be {ABOVE_READY_MIB} above ready)"
    )
    return field.failed > 0


if __name__ == "__main__":
    sys.exit(main())
