#!/usr/bin/env python3
"""An honest client beside an attack: it streams one answer after the other, and remembers the longest pause within one
and the longest wait for the first token of one.

    honest.py PORT        reads words: `go` (answers once a stream runs), `stop` (answers what it saw, as JSON)

A process of its own, so that no pause is that of the attacker's interpreter. Answers are greedy, so all must be equal.
"""

import json
import socket
import sys
import threading
import time

BODY = {"prompt": "Once upon a time, there was a cat who", "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}


class Honest:
    def __init__(self, port):
        self.port, self.text = port, None  # both from the first whole answer
        self.going = threading.Event()
        self.begin()

    def begin(self):
        self.blocks, self.longest_pause, self.longest_start, self.wrong = 0, 0.0, 0.0, ""

    def note_wait(self):
        """Counts the time since the last piece of this answer or, where none has come, since it was asked for."""
        waited = time.monotonic() - self.last
        if self.has_begun:
            self.longest_pause = max(self.longest_pause, waited)
        else:
            self.longest_start = max(self.longest_start, waited)

    def stream(self):
        """One answer, or until it is stopped."""
        asked = json.dumps(BODY).encode()
        said, got, ended = "", b"", False
        self.last, self.has_begun = time.monotonic(), False
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(asked)}\r\n\r\n"
            connection.sendall(head.encode() + asked)
            while not ended and self.going.is_set():
                piece = connection.recv(65536)
                self.note_wait()
                if self.has_begun:
                    self.last = time.monotonic()
                if not piece:
                    break
                got += piece
                while b"\n\n" in got:
                    event, got = got.split(b"\n\n", 1)
                    at = event.find(b"data: ")
                    if at < 0:
                        continue
                    if not self.has_begun:
                        self.last, self.has_begun = time.monotonic(), True
                    data = event[at + 6 :]
                    if data == b"[DONE]":
                        ended = True
                    elif data.startswith(b'{"error"'):
                        raise ValueError(data.decode())
                    else:
                        said += json.loads(data)["choices"][0]["text"]
                        self.blocks += 1
            if not self.blocks and self.going.is_set():
                raise ValueError(f"no answer: {got[:300]!r}")
        if self.going.is_set() and not ended:
            raise ValueError(f"a stream broke off after {len(said)} characters: {got[-300:]!r}")
        if ended and self.text is None:
            self.text = said
        if self.text is not None and not (said == self.text if ended else self.text.startswith(said)):
            raise ValueError("another answer than before")

    def run(self):
        while self.going.is_set():
            try:
                self.stream()
            except (OSError, ValueError) as why:
                self.wrong = self.wrong or f"{type(why).__name__}: {why}"
                time.sleep(0.05)

    def go(self):
        self.begin()
        self.going.set()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.wait(1)

    def stop(self):
        self.wait(self.blocks + 2, limit_s=5)  # the stream goes on under attack
        self.note_wait()
        told = {"longest_pause_s": self.longest_pause, "longest_start_s": self.longest_start, "blocks": self.blocks, "wrong": self.wrong}
        self.going.clear()
        self.thread.join()
        return told

    def wait(self, blocks, limit_s=20):
        deadline = time.monotonic() + limit_s
        while self.blocks < blocks and not self.wrong and time.monotonic() < deadline:
            time.sleep(0.002)


def main():
    honest = Honest(int(sys.argv[1]))
    for word in sys.stdin:
        if word == "go\n":
            honest.go()
            print("{}", flush=True)
        else:
            print(json.dumps(honest.stop()), flush=True)


if __name__ == "__main__":
    main()
