"""Attacks on a connection: a client sends too much, too little, too slowly, or nothing.

Each attack takes a server and returns a remark. An attack without an end is stopped after WIRE_S: by then one of the
server's limits of time or size must have ended the connection.
"""

import contextlib
import resource
import select
import socket
import struct
import threading
import time

from asking import ask, head_of, judge, read_answer
from server import Broken, need

WIRE_S = 8  # above every limit of time in server.FLAGS but the one for idle connections
POURED_BYTES = 1 << 30  # above what a fast machine takes within server.FLAGS["--body-timeout"]
SMALL = b'{"prompt":"a","max_tokens":1}'
MANY_CONNECTIONS = 4200


def pour(server, first, endless, limit_s=WIRE_S):
    """Sends `first`, then `endless` again and again until the server ends it. Returns its status and the bytes sent."""
    sent, deadline = 0, time.monotonic() + limit_s
    with server.connect(2) as connection:
        try:
            connection.sendall(first)
            while not select.select([connection], [], [], 0)[0]:  # until it has answered or closed
                need(time.monotonic() < deadline and sent < POURED_BYTES, f"{sent >> 20} MiB were accepted without an answer")
                connection.sendall(endless)
                sent += len(endless)
                server.check()
        except TimeoutError:
            pass  # the server has stopped reading
        except OSError:
            pass  # the server has closed
        answer = read_answer(connection, WIRE_S)
    need(answer.status in (0, 400, 408, 411, 413, 431, 503), f"{answer.status}: {answer.text[:200]!r}")
    return f"{answer.status or 'closed'} after {sent >> 10} KiB"


def endless_line(server):
    return pour(server, b"GET /", b"a" * 65536)


def endless_field(server):
    return pour(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"a" * 65536)


def endless_fields(server):
    return pour(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-Field: a\r\n" * 8192)


def aligned_fields(server):
    """Fields of 9 bytes after a start line of 18, so that reads of 8,192 bytes end inside a field."""
    fields = b"X: yyyy\r\n" * 910
    return pour(server, b"GET /aa HTTP/1.1\r\n" + fields * 8, fields * 64)


CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
OPEN_CHUNKED = b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk_extension(server):
    return pour(server, OPEN_CHUNKED + b"1;", b"a" * (1 << 20))


def chunk_extension_post(server):
    return pour(server, CHUNKED + b"1;", b"a" * (1 << 20))


def chunk_trailer(server):
    return pour(server, CHUNKED + b"1\r\na\r\n0\r\nX: ", b"a" * (1 << 20))


def chunk_trailers(server):
    return pour(server, CHUNKED + b"1\r\na\r\n0\r\n", b"X-Field: a\r\n" * 8192)


def chunk_extensions(server):
    return pour(server, CHUNKED, b"1;a=b\r\na\r\n" * 8192)


def chunk_digits(server):
    return pour(server, CHUNKED, b"0" * 65536)


def endless_chunks(server):
    return pour(server, CHUNKED, b"10000\r\n" + b"a" * 65536 + b"\r\n")


def endless_tiny_chunks(server):
    return pour(server, CHUNKED, b"1\r\na\r\n" * 8192)


def heads_with_bodies(server):
    """OPTIONS, GET, HEAD and the open paths need no body, so a large one is refused without being kept."""
    told = []
    for method, path in (("OPTIONS", "/"), ("GET", "/livez"), ("GET", "/v1/models"), ("HEAD", "/metrics"), ("GET", "/")):
        answer = ask(server, path, b"a" * (8 << 20), method)
        need(answer.status in (200, 204, 400, 404, 405, 413), f"{method} {path}: {answer.status} {answer.why}")
        told.append(str(answer.status))
    return " ".join(told)


ODD = (
    b"Content-Length: -1\r\n\r\n",
    b"Content-Length: 99999999999999999999\r\n\r\n",
    b"Content-Length: 0x10\r\n\r\n",
    b"Content-Length: 29\r\nContent-Length: 30\r\n\r\n" + SMALL,
    b"Content-Length: 29\r\nTransfer-Encoding: chunked\r\n\r\n" + SMALL,
    b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: identity\r\n\r\n" + SMALL,
    b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
    b"Host: two\r\nContent-Length: 29\r\n\r\n" + SMALL,
    b"X: a\r\n b\r\nContent-Length: 29\r\n\r\n" + SMALL,
    b"X : a\r\nContent-Length: 29\r\n\r\n" + SMALL,
)


def odd_heads(server):
    """Each malformed request is refused, and none is read as another request."""
    for more in ODD:
        with server.connect(5) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + more)
            answer = read_answer(connection, WIRE_S)
            need(400 <= answer.status < 500 or answer.status == 501, f"{more[:60]!r}: {answer.status} {answer.why}")
    return f"{len(ODD)} refused"


TO_US = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
NOISE = (
    b"\0" * 65536,
    b"\xff" * 65536,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 4096,
    b"GET\r\n\r\n",
    b"\r\n" * 100_000,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"A" * 5000 + b" /" + TO_US,
    b"GET /%00" + TO_US,
    b"GET *" + TO_US,
    b"GET //%2e%2e/%2e%2e/etc/passwd" + TO_US,
)


# Parts of the names of methods that these paths take, and of the lists of them.
PARTS = (
    ("/v1/completions", ("OST", "T", "POS", "P", "ET")), ("/livez", ("ET", "G", "GE", "T")), ("/get_server_info", ("ET",)),
    ("/flush_cache", ("OST", "ET", "GE", "POS")), ("/v1/responses/resp_x", ("DELET", "ELETE", "E", "POS")),
)  # fmt: skip


def parts_of_methods(server):
    for path, methods in PARTS:
        for method in methods:
            answer = ask(server, path, b"", method)
            need(answer.status == 405, f"{method} {path}: {answer.status} {answer.why} {answer.text[:100]!r}")
    return "405"


def noise(server):
    for text in NOISE:
        with server.connect(5) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(text)
            answer = read_answer(connection, WIRE_S)
            need(answer.status < 200 or answer.status >= 400, f"{text[:40]!r}: {answer.status}")
            need(len(answer.text) < 16384, f"{text[:40]!r}: an answer of {len(answer.text)} bytes")
    return f"{len(NOISE)} refused"


def half_body(server):
    """A body that stops half-way, and one that comes a byte at a time."""
    with server.connect(5) as silent, server.connect(5) as slow:
        silent.sendall(head_of("POST", "/v1/completions", 1000) + b"{")
        slow.sendall(head_of("POST", "/v1/completions", 1000))
        deadline = time.monotonic() + WIRE_S
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                slow.sendall(b" ")
                time.sleep(0.05)
        told = [read_answer(one, WIRE_S).status for one in (silent, slow)]
    need(all(status in (0, 408) for status in told), f"{told}")
    return f"{told}"


def slow_head(server):
    with server.connect(5) as connection:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < began + WIRE_S:
                connection.sendall(b"G")
                time.sleep(0.05)
            raise Broken(f"the server waits for a head that comes a byte at a time for longer than {WIRE_S} s")
        return f"closed after {time.monotonic() - began:.1f} s"


def idle_bodies(server):
    """Bodies that never end, more of them than there is memory for: another client's POST is still answered."""
    body, kept = b"a" * ((32 << 20) - 1), []
    paths = {"GET": "/livez", "POST": "/v1/completions"}
    for method in ["OPTIONS", "GET", "OPTIONS"] + ["POST"] * 40:
        connection = server.connect(2)
        kept.append(connection)
        with contextlib.suppress(OSError):
            connection.sendall(head_of(method, paths.get(method, "/"), 32 << 20) + body)
    answer = ask(server, "/v1/completions", SMALL)
    for connection in kept:
        connection.close()
    return judge(answer, (200,))


def many_requests(server):
    """Thousands of pipelined requests: all are answered, in order, though the server reads only so far ahead."""
    one = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(10) as connection:
        sender = threading.Thread(target=lambda: connection.sendall(one * 5000))
        sender.start()
        for i in range(5000):
            answer = read_answer_kept(connection)
            need(answer == 200, f"answer {i} of 5000 is {answer}")
        sender.join()
    return "5000 answers"


def read_answer_kept(connection):
    """The status of one answer with a Content-Length, a byte at a time: what follows belongs to the next."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        need(piece, "a connection was closed between two answers")
        head += piece
    length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")).split(b":")[1])
    while length:
        length -= len(connection.recv(length))
    return int(head.split()[1])


def many_unread(server):
    """The same by a client that reads no answers: the server stops reading, and closes in time."""
    one = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(1) as connection, contextlib.suppress(OSError):
        deadline = time.monotonic() + WIRE_S
        while time.monotonic() < deadline:
            connection.sendall(one * 1000)
    return "left"


def half_closed(server):
    """A client that has closed its sending side still gets its answer, whole or streamed."""
    told = []
    for body, end in ((SMALL, b"}"), (SMALL[:-1] + b',"stream":true}', b"data: [DONE]")):
        with server.connect(10) as connection:
            connection.sendall(head_of("POST", "/v1/completions", len(body)) + body)
            connection.shutdown(socket.SHUT_WR)
            answer = read_answer(connection)
            told.append(judge(answer, (200,)))
            need(answer.text.strip().endswith(end), f"cut: {answer.text[-100:]!r}")
    return told[-1]


def reset(server):
    """Connections that are torn down at every stage of a request."""
    body = b'{"prompt":"a cat","max_tokens":200,"ignore_eos":true,"stream":true}'
    text = head_of("POST", "/v1/completions", len(body)) + body
    for cut in range(0, len(text) + 1, 7):
        connection = server.connect(5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(text[:cut])
        connection.close()
    for _ in range(20):
        connection = server.connect(5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(text)
        connection.recv(200)
        connection.close()
    return f"{len(text) // 7 + 21} connections"


def head_of_stream(server):
    """The answer to HEAD of a stream ends, and the connection takes the next request."""
    with server.connect(5) as connection:
        connection.sendall(b"HEAD /kv_events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = read_answer(connection, 3, "HEAD")
        need(told.status in (200, 404) and not told.why, f"{told.status} {told.why}")
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        next_one = read_answer(connection, 3)
        need(next_one.status in (0, 200), f"{next_one.status}")
    return f"{told.status}"


def many_connections(server):
    """More silent connections than the limit: probes are answered at once, honest clients soon again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY_CONNECTIONS + 100:
        return f"only {hard} files may be open here"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY_CONNECTIONS + 100), hard))
    with contextlib.ExitStack() as kept:
        for _ in range(MANY_CONNECTIONS):
            with contextlib.suppress(OSError):
                kept.enter_context(server.connect(2))
        slowest = 0.0
        for path in ("/livez", "/readyz", "/livez"):
            began = time.monotonic()
            status, _, text = server.call(path, timeout=5)
            slowest = max(slowest, time.monotonic() - began)
            need(status == 200, f"{path} is {status} {text[:100]} beside {MANY_CONNECTIONS} connections")
    return f"probes within {slowest:.2f} s"


def slow_reader(server, body, path="/v1/completions"):
    """Sends a request and reads its answer at a few bytes a second."""
    with server.connect(5) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head_of("POST", path, len(body)) + body)
        deadline = time.monotonic() + WIRE_S
        read = 0
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline and (piece := connection.recv(64)):
                read += len(piece)
                time.sleep(0.05)
    return f"read {read} bytes"


def slow_stream_readers(server):
    body = b'{"prompt":"a","max_tokens":3000,"ignore_eos":true,"stream":true,"n":16,"logprobs":20}'
    return slow_reader(server, body)


def slow_answer_readers(server):
    """Several unstreamed answers of megabytes, read very slowly."""
    body = b'{"prompt":[' + b",".join([b'"' + b"a " * 1900 + b'"'] * 1000) + b"]}"
    readers = [threading.Thread(target=slow_reader, args=(server, body, "/v1/completions/render")) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return f"{len(readers)} readers"


CASES = (
    ("endless start line", endless_line),
    ("endless field", endless_field),
    ("endless fields", endless_fields),
    ("H16 aligned fields", aligned_fields),
    ("H5 chunk extension", chunk_extension),
    ("H5 chunk extension of a POST", chunk_extension_post),
    ("H5 trailer", chunk_trailer),
    ("trailers", chunk_trailers),
    ("chunk extensions", chunk_extensions),
    ("chunk size of endless digits", chunk_digits),
    ("endless chunks", endless_chunks),
    ("endless chunks of a byte", endless_tiny_chunks),
    ("H8 bodies where none are taken", heads_with_bodies),
    ("H8 idle bodies", idle_bodies),
    ("A13 odd heads", odd_heads),
    ("noise", noise),
    ("H24 parts of methods", parts_of_methods),
    ("bodies that never end", half_body),
    ("a head that never ends", slow_head),
    ("pipelined", many_requests),
    ("pipelined and unread", many_unread),
    ("A13 half-closed", half_closed),
    ("A13 HEAD of a stream", head_of_stream),
    ("reset", reset),
    ("H15 4,200 connections", many_connections),
    ("slow reader of a stream", slow_stream_readers),
    ("H10 slow readers of whole answers", slow_answer_readers),
)
