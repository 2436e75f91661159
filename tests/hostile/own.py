"""Attacks that need a server of their own: on its settings, its keys, its log, its end; and on the library.

A case takes the limit of the stack, in KiB (0: the usual), and returns a remark.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

from asking import ask, judge
from cases import CHAT, COMPLETIONS, RESPONSES, chat
from files import SMALL, model_with, run
from server import ADDRESS_LIMIT, BINARY, MODEL, SANITIZED, Broken, Server, free_port, need, stack_environment



# --- settings -----------------------------------------------------------------------------------------

# Flags of `serve` that no server can follow.
REFUSED = (
    ("--schedule-conservativeness", "nan"), ("--schedule-conservativeness", "-1"), ("--mem-fraction-static", "nan"),
    ("--mem-fraction-static", "inf"), ("--watchdog-timeout", "nan"), ("--shutdown-timeout", "nan"), ("--header-timeout", "nan"),
    ("--idle-timeout", "-1"), ("--max-running-requests", "2147483647"), ("--max-connections", "0"), ("--ep-link-gbit", "1e-300"),
    ("--max-total-tokens", "-5"), ("--context-length", "-1"), ("--port", "70000"),
)  # fmt: skip


def refused_flags(_):
    for flag in REFUSED:
        run(["serve", "--model-path", MODEL, "--port", "0", *flag], refused=True)
    environment = {"HOCKET_SCHEDULE_CONSERVATIVENESS": "nan"}
    with changed_environment(environment):
        run(["serve", "--model-path", MODEL, "--port", "0"], refused=True)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("schedule-conservativeness: .nan\n")
        file.flush()
        run(["serve", "--model-path", MODEL, "--port", "0", "--config", file.name], refused=True)
    return f"{len(REFUSED) + 2} refused"


@contextlib.contextmanager
def changed_environment(variables):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def large_timeouts(stack):
    """A very long timeout is honoured or refused; it never overflows to one that ends connections at once."""
    for flag in ("--idle-timeout", "--body-timeout", "--header-timeout", "--write-timeout"):
        try:
            with Server({flag: "1e10"}, stack_kib=stack) as server:
                for _ in range(10):
                    judge(ask(server, COMPLETIONS, SMALL), (200,))
        except Broken as why:
            need("ended with status 2" in str(why), f"{flag} 1e10: {why}")
    return "4 flags"


def open_to_all(stack):
    """A server without a key on a public address warns at its start; with --strict it does not start."""
    with Server({"--host": "0.0.0.0"}, stack_kib=stack) as server:
        log = server.log_path.read_text()
        need(re.search(r"key", log), f"the log does not mention the missing key: {server.last_words()}")
    run(["serve", "--model-path", MODEL, "--port", "0", "--host", "0.0.0.0", "--strict", "--cpu-bind", "none"], refused=True)
    return "announced, refused with --strict"


def admin_writes_anywhere(stack):
    """An admin cannot have files written outside --admin-folder."""
    with tempfile.TemporaryDirectory() as folder, Server(stack_kib=stack) as server:
        target = Path(folder) / "made"
        ask(server, "/configure_logging", json.dumps({"dump_requests_folder": str(target)}))
        ask(server, "/start_profile", json.dumps({"output_dir": str(target), "num_steps": 1}))
        ask(server, COMPLETIONS, SMALL)
        ask(server, "/stop_profile", "{}")
        need(not target.exists(), f"{target} was made")
    return "nothing was written"


def keys_file(folder, text):
    path = Path(folder) / "keys"
    path.write_text(text)
    path.chmod(0o600)
    return path


ANN, BOB = "sk-ann-0123456789abcdef", "sk-bob-0123456789abcdef"


def asked_by(server, key, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 1})
    answer = ask(server, COMPLETIONS, body, more=f"Authorization: Bearer {key}\r\n")
    judge(answer, (200,))
    details = json.loads(answer.text)["usage"].get("prompt_tokens_details") or {}
    return details.get("cached_tokens", 0)


def ask_with(server, key, path, body):
    return ask(server, path, body, more=f"Authorization: Bearer {key}\r\n")


def prefixes_of_others(stack):
    """The count of cached tokens does not tell a client whether another one has sent the same prompt."""
    prompt = [7 + i % 50 for i in range(400)]
    with tempfile.TemporaryDirectory() as folder:
        keys = keys_file(folder, f"ann {ANN}\nbob {BOB}\nops sk-ops-0123456789abcdef admin\n")
        with Server({"--api-key-file": keys}, stack_kib=stack) as server_of_keys:
            need(asked_by(server_of_keys, ANN, prompt) == 0, "a first prompt is cached")
            need(asked_by(server_of_keys, ANN, prompt) > 0, "the same client's second prompt is not cached")
            need(asked_by(server_of_keys, BOB, prompt) == 0, "bob's cached_tokens reveal ann's prompt")
    return "0 of another's tokens"


def clients_are_no_admins(stack):
    with tempfile.TemporaryDirectory() as folder:
        keys = keys_file(folder, f"ann {ANN}\nbob {BOB}\n")
        with Server({"--api-key-file": keys}, stack_kib=stack) as server:
            for path, body in (("/flush_cache", "{}"), ("/configure_logging", '{"log_requests":true}'), ("/abort_request", '{"abort_all":true}')):
                judge(ask_with(server, ANN, path, body), (403,))
    return "403"


def names_of_bare_keys(stack):
    """A line inserted into the key file does not give one client's answers to another."""
    with tempfile.TemporaryDirectory() as folder:
        keys = keys_file(folder, f"{ANN}\n")
        with Server({"--api-key-file": keys}, stack_kib=stack) as server:
            made = ask_with(server, ANN, RESPONSES, json.dumps({"input": "a", "max_output_tokens": 2}))
            judge(made, (200,))
            path = f"{RESPONSES}/{json.loads(made.text)['id']}"
            keys_file(folder, f"{BOB}\n{ANN}\n")
            server.running.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 5
            while (told := ask(server, path, b"", "GET", more=f"Authorization: Bearer {BOB}\r\n")).status == 401:
                need(time.monotonic() < deadline, "the new key is not known 5 s after SIGHUP")
                time.sleep(0.02)
            need(told.status == 404, f"bob reads ann's answer: {told.status}")
            judge(ask(server, path, b"", "GET", more=f"Authorization: Bearer {ANN}\r\n"), (200,))
    return "404 for bob, 200 for ann"


def background_counts(stack):
    """An answer that is made in the background is under way for its key, though no connection waits for it."""
    long = json.dumps({"input": "a", "background": True, "max_output_tokens": 4000, "ignore_eos": True})
    with tempfile.TemporaryDirectory() as folder:
        keys = keys_file(folder, f"ann {ANN} concurrency=1\nbob {BOB} concurrency=1\n")
        with Server({"--api-key-file": keys}, stack_kib=stack) as server:
            first = ask_with(server, ANN, RESPONSES, long)
            judge(first, (200,))
            judge(ask_with(server, ANN, RESPONSES, long), (429,))
            judge(ask_with(server, BOB, COMPLETIONS, SMALL), (200,))
            judge(ask_with(server, ANN, f"{RESPONSES}/{json.loads(first.text)['id']}/cancel", ""), (200,))
            deadline = time.monotonic() + 5
            while (answer := ask_with(server, ANN, COMPLETIONS, SMALL)).status == 429:
                need(time.monotonic() < deadline, "what was cancelled still counts after 5 s")
                time.sleep(0.02)
            judge(answer, (200,))
    return "429, 200 after a cancel"


def port_of_ranks(stack):
    """The port between ranks asks for a key even with --insecure-cluster."""
    told = subprocess.run([BINARY, "version"], capture_output=True, text=True, check=True).stdout
    if not re.search(r"^ucx \d", told, re.M):
        return "skipped: no UCX here"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ranks:
        keys = keys_file(folder, f"ann {ANN}\nops sk-ops-0123456789abcdef admin\n")
        place = {"--nnodes": 2, "--dist-init-addr": f"127.0.0.1:{free_port()}", "--api-key-file": keys}
        both = [
            ranks.enter_context(Server(place | {"--node-rank": i}, ("--insecure-cluster",), stack, wait=False)) for i in (0, 1)
        ]
        for server in both:
            server.wait_ready()
        deadline, addresses = time.monotonic() + 10, []
        while not addresses:
            need(time.monotonic() < deadline, "no rank tells the other's address")
            answer = ask(both[0], "/get_server_info", b"", "GET", more=f"Authorization: Bearer {ANN}\r\n")
            addresses = [peer["address"] for peer in json.loads(answer.text)["peers"] if peer["address"]]
        host, port = addresses[-1].rsplit(":", 1)
        inside = types.SimpleNamespace(connect=lambda timeout: socket.create_connection((host, int(port)), timeout))
        for path, body in (("/configure_logging", b'{"log_requests":true}'), (COMPLETIONS, SMALL.encode())):
            judge(ask(inside, path, body), (401, 403))
            judge(ask_with(inside, ANN, path, body), (401, 403))
    return "401"


def weights_of_the_cache(stack):
    """The weight cache notices other weights in a file of the same name, size and time of change."""
    with tempfile.TemporaryDirectory() as folder, model_with() as model:
        weights, flags = model / "model.safetensors", {"--model-path": model}
        cached = flags | {"--weight-cache": folder}

        def says(words):
            with Server(words, stack_kib=stack) as server:
                answer = ask(server, COMPLETIONS, json.dumps({"prompt": "a cat", "max_tokens": 20, "temperature": 0}))
                judge(answer, (200,))
                return json.loads(answer.text)["choices"][0]["text"]

        data = weights.read_bytes()
        times = weights.stat()
        weights.unlink()
        weights.write_bytes(data)
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
        says(cached)
        begins = 8 + int.from_bytes(data[:8], "little")
        with open(weights, "r+b") as file:  # shifts all numbers by one place
            file.seek(begins)
            file.write(data[begins + 2 :] + data[begins : begins + 2])
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
        need(says(cached) == says(flags), "the old weights were served")
    return "the new weights were served"


# --- the log ------------------------------------------------------------------------------------------

def reader_of_log_leaves(stack):
    read, write = os.pipe()
    with Server(stack_kib=stack, log=write) as server:
        os.close(write)
        os.close(read)
        for _ in range(5):
            judge(ask(server, COMPLETIONS, SMALL), (200,))
        server.check()
        took = server.end()
    return f"answered on; SIGTERM after {took:.1f} s"


def reader_of_log_pauses(stack):
    """The pipe of the log is full and not read: answers go on, and SIGTERM ends the server."""
    read, write = os.pipe()
    with Server({"--decode-log-interval": 1}, stack_kib=stack, log=write) as server:
        os.close(write)
        for i in range(150):
            body = json.dumps({"prompt": f"a{i}", "max_tokens": 20, "ignore_eos": True})
            judge(ask(server, COMPLETIONS, body, limit_s=5), (200,))
        took = server.end()
    os.close(read)
    return f"150 answers; SIGTERM after {took:.1f} s"


def full_device(_):
    with open("/dev/full", "wb") as full:
        for words in (["version"], ["help"], ["doctor"], ["docs", "flags"]):
            run(words, stdout=full, stderr=full)
    with open("/dev/full", "wb") as full, Server(log=full) as server:
        judge(ask(server, COMPLETIONS, SMALL), (200,))
        server.end()
    return "no signal"


def stops_while_it_compiles(stack):
    """SIGTERM, while a grammar that takes for ever is compiled and other clients want theirs."""
    with Server(stack_kib=stack) as server:
        hog = threading.Thread(target=lambda: ask(server, CHAT, chat(json_schema={"type": "integer", "multipleOf": 99_999_989})))
        hog.start()
        time.sleep(0.3)
        began = time.monotonic()
        judge(ask(server, CHAT, chat(regex="[ab]")), (200,))
        other = time.monotonic() - began
        took = server.end()
        hog.join()
    return f"another's grammar after {other:.1f} s; SIGTERM after {took:.1f} s"


def second_signal(stack):
    """A second SIGTERM ends at once, though the first waits for an answer."""
    with Server({"--shutdown-timeout": 60}, stack_kib=stack) as server, server.connect(20) as connection:
        body = b'{"prompt":"a","max_tokens":4000,"ignore_eos":true,"n":64,"stream":true}'
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        connection.recv(100)
        server.running.send_signal(signal.SIGTERM)
        time.sleep(1.2)  # two within a second are one, told to a group and to its process
        server.running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.running.wait(3)
        need(not server.alive(), "still there 3 s after the second SIGTERM")
    return f"ended after {time.monotonic() - began:.1f} s"


def c_api(stack):
    """Runs c_api.py, the attacks through the library, in a process of its own."""
    library = BINARY.parent / "libhocket.so.0"
    if not library.exists():
        return f"skipped: no {library.name} beside the program"
    if SANITIZED:
        return "skipped: the library has a sanitizer, which Python would have to be built with too"
    limited = f"ulimit -s {stack}; " if stack else ""
    command = ["sh", "-c", f'{limited}{ADDRESS_LIMIT}exec "$@"', "sh", sys.executable, str(Path(__file__).with_name("c_api.py")), "1", "5"]
    with changed_environment({"HOCKET_LIBRARY": str(library), "HOSTILE_STACK_KIB": str(stack)} | stack_environment(stack)):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    need(done.returncode == 0, f"status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout.strip()


CASES = (
    ("the C API", c_api),
    ("A1 SIGTERM while a grammar is compiled", stops_while_it_compiles),
    ("a second SIGTERM", second_signal),
    ("A2 the reader of the log leaves", reader_of_log_leaves),
    ("A3 the reader of the log pauses", reader_of_log_pauses),
    ("A5 A11 flags that no server can follow", refused_flags),
    ("A10 timeouts of centuries", large_timeouts),
    ("A13 a full device", full_device),
    ("H14 open to the network", open_to_all),
    ("H14 an admin writes anywhere", admin_writes_anywhere),
    ("H14 clients are no admins", clients_are_no_admins),
    ("H12 the port of the ranks", port_of_ranks),
    ("H17 prefixes of others", prefixes_of_others),
    ("H19 weights of the cache", weights_of_the_cache),
    ("H20 names of bare keys", names_of_bare_keys),
    ("H25 background answers count", background_counts),
)
