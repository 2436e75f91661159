"""Sends one request, however malformed, and judges whether its answer is one that the server may give."""

import http.client
import json
import re
import time

from server import Broken, need

ANSWER_S = 30  # until an answer has come whole
ANSWER_BYTES = 300 << 20
ENDS = (b"data: [DONE]", b"event: message_stop", b"event: response.completed", b"event: response.incomplete")
ENDS += (b"event: response.failed", b"event: error", b'data: {"error"')


# Words of a refusal that tells a bound, so that it must hold a number.
OF_BOUNDS = re.compile(r"\b(at most|the limit is|larger than|longer than)\b")


class Answer:
    def __init__(self, status=0, headers=None, text=b"", why=""):
        self.status, self.headers, self.text, self.why = status, headers or {}, text, why
        self.seconds = 0.0

    def error(self):
        return json.loads(self.text)["error"]


def read_answer(connection, limit_s=ANSWER_S, method="POST"):
    """The next answer on a socket. `why` says why it is incomplete."""
    connection.settimeout(limit_s)
    answer = http.client.HTTPResponse(connection, method=method)
    told = Answer()
    try:
        answer.begin()
        told.status, told.headers = answer.status, {name.lower(): value for name, value in answer.headers.items()}
        pieces, size, deadline = [], 0, time.monotonic() + limit_s
        while piece := answer.read1(1 << 20):
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > deadline or size > ANSWER_BYTES:
                told.why = f"it still came after {limit_s} s, {size} bytes"
                break
        told.text = b"".join(pieces)
        if answer.length:
            told.why = told.why or f"{answer.length} bytes are missing"
    except (OSError, http.client.HTTPException) as why:
        told.why = f"{type(why).__name__}: {why}"
    return told


def head_of(method, path, length, more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def ask(server, path, body, method="POST", limit_s=ANSWER_S, more=""):
    """Sends the whole request, even if the answer comes earlier."""
    body = body if isinstance(body, bytes) else body.encode()
    began = time.monotonic()
    try:
        connection = server.connect(limit_s)
    except OSError as why:
        return Answer(why=f"{type(why).__name__}: {why}")
    with connection:
        try:
            connection.sendall(head_of(method, path, len(body), more) + body)
        except OSError:
            pass  # the server answered before it had read all; the answer says why
        answer = read_answer(connection, limit_s, method)
    answer.seconds = time.monotonic() - began
    return answer


def judge(answer, may=()):
    """A right answer, or an error that says what is wrong with what. `may`: the only statuses that are right."""
    need(answer.status != 0, f"no answer: {answer.why}")
    need(not answer.why, f"{answer.status}, but not whole: {answer.why}")
    shown = answer.text[:300].decode(errors="replace")
    need(answer.status != 500, f"500: {shown}")
    need(not may or answer.status in may, f"{answer.status}, not {' or '.join(map(str, may))}: {shown}")
    if answer.status == 200:
        return judge_good(answer)
    try:
        error = answer.error()
    except (ValueError, KeyError, TypeError) as why:
        raise Broken(f"{answer.status} without an error: {shown}") from why
    need(len(answer.text) < 16384, f"an error of {len(answer.text)} bytes")
    need(error["message"], f"an error without a message: {shown}")
    if answer.status == 400 and error["code"] == "invalid_request":
        need(error["param"] or "body" in error["message"], f"no field is named: {shown}")
    if answer.status == 413 or OF_BOUNDS.search(error["message"]):
        need(re.search(r"\d", error["message"] + str(error.get("hint"))), f"no bound is told: {shown}")
    return f"{answer.status} {error['message'][:110]}"


def judge_good(answer):
    if "event-stream" in answer.headers.get("content-type", ""):
        need(any(end in answer.text[-(1 << 20) :] for end in ENDS), f"a stream without an end: {answer.text[-200:]!r}")
    elif "json" in answer.headers.get("content-type", "") and len(answer.text) < 64 << 20:
        json.loads(answer.text)
    return f"200, {len(answer.text)} bytes"


