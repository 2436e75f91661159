"""HTTP clients of a rank. `connect` is a function that returns a socket connected to the rank's HTTP port."""

import http.client
import json
import socket
import threading
import time


def call(connect, path, body=None, timeout=30):
    """Sends one request, a POST if there is a body. Returns status, headers and text."""
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    connection.sock = connect(timeout)
    try:
        connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()
    finally:
        connection.close()


class Stream(threading.Thread):
    """Streams a completion until its end, an error or a broken connection, and records which it was."""

    def __init__(self, connect, body, limit_s):
        super().__init__(daemon=True)
        self._connect, self._body, self._limit_s = connect, dict(body, stream=True), limit_s
        self.status, self.text, self.blocks, self.done = None, "", 0, False
        self.error = ""  # the message of an error, in the stream or instead of it
        self.cut = ""  # how the connection broke
        self.retry_after = None
        self.ended_at, self.longest_gap_s = None, 0.0
        self._socket = None
        self.start()

    def run(self):
        try:
            self._read()
        except (OSError, http.client.HTTPException, ValueError) as reason:
            self.cut = f"{type(reason).__name__}: {reason}"
        self.ended_at = time.monotonic()

    def _read(self):
        connection = http.client.HTTPConnection("localhost", timeout=self._limit_s)
        self._socket = connection.sock = self._connect(self._limit_s)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self._body))
            answer = connection.getresponse()
            self.status, self.retry_after = answer.status, answer.headers.get("Retry-After")
            if answer.status != 200:
                self.error = json.loads(answer.read())["error"]["message"]
                return
            last = None
            while line := answer.readline():
                if not line.startswith(b"data: "):  # such as a comment that keeps the connection open
                    continue
                now = time.monotonic()
                if last is not None:
                    self.longest_gap_s = max(self.longest_gap_s, now - last)
                last = now
                self._take(line[6:].strip())
            if not self.done and not self.error:
                self.cut = "the stream ended without [DONE]"
        finally:
            connection.close()

    def _take(self, data):
        if data == b"[DONE]":
            self.done = True
            return
        block = json.loads(data)
        if "error" in block:
            self.error = block["error"]["message"]
            return
        self.text += block["choices"][0]["text"]
        self.blocks += 1

    def wait_blocks(self, count, limit_s=30):
        deadline = time.monotonic() + limit_s
        while self.blocks < count and self.is_alive():
            assert time.monotonic() < deadline, f"{self.blocks} blocks after {limit_s} s, wanted {count}"
            time.sleep(0.002)
        assert self.blocks >= count, f"the stream ended early: {self.tells()}"

    def finish(self, limit_s):
        self.join(limit_s)
        assert not self.is_alive(), f"a stream is still open after {limit_s} s, with {self.blocks} blocks"
        return self

    def leave(self):
        """Closes the connection, as a client that goes away."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def tells(self):
        return self.error or self.cut or f"status {self.status}, {self.blocks} blocks, {'done' if self.done else 'open'}"
