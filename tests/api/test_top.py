"""`hocket top`: one page into a file, the live view in terminals of several sizes, and HTTPS with a key."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from conftest import BINARY, MODEL, free_port
from test_access import make_certificate

STORY = {"messages": [{"role": "user", "content": "Tell me a story about a fox and a lantern."}], "temperature": 0, "ignore_eos": True}


def ask(server, **fields):
    status, _, data = server.call("/v1/chat/completions", json.dumps({**STORY, "max_tokens": 16, **fields}).encode())
    assert status == 200, data


def top(*words, **options):
    return subprocess.run([BINARY, "top", *map(str, words)], capture_output=True, text=True, timeout=60, **options)


def test_one_look(server):
    ask(server)
    page = top("--port", server.port)
    assert page.returncode == 0, page.stderr
    for part in (server.url, "since the start", "0 running, 0 waiting", "KV pages  [", "ttft", "\n0    ", "200: "):
        assert part in page.stdout, page.stdout
    assert "\x1b" not in page.stdout
    assert top("--url", server.url, "--once").stdout.startswith(server.url)
    away = top("--port", "1")
    assert away.returncode != 0 and "no answer" in away.stderr
    assert top("--url", "ftp://here").returncode == 2


class Terminal:
    """Runs the live view in a terminal of `columns` by `rows`."""

    def __init__(self, columns, rows, *words):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BINARY, "top", *map(str, words)], stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True)
        self.written = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, what, patience_s=20):
        """Waits for a screen whose lines make `what` true, and returns its lines. Later screens are left for the next call."""
        deadline = time.monotonic() + patience_s
        while True:
            *whole, rest = self.written.split("\x1b[J")
            for i, frame in enumerate(whole):
                lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split("\r+\n", frame.split("\x1b[H")[-1])]
                if what(lines):
                    self.written = "\x1b[J".join([*whole[i + 1:], rest])
                    return lines
            assert time.monotonic() < deadline, self.written
            if select.select([self.master], [], [], 0.1)[0]:
                self.written += os.read(self.master, 65536).decode()

    def ended(self):
        """Waits for the end, checks that the terminal is restored, and returns the exit status."""
        status = self.process.wait(20)
        while select.select([self.master], [], [], 0.1)[0]:
            self.written += os.read(self.master, 65536).decode()
        assert self.written.endswith("\x1b[?25h\x1b[?1049l")
        assert termios.tcgetattr(self.slave) == self.before
        return status


@contextlib.contextmanager
def readers(server, count=4):
    """Runs `count` clients that ask again and again."""
    going = threading.Event()
    going.set()

    def read():
        while going.is_set():
            ask(server, max_tokens=200)

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield
    going.clear()
    for thread in threads:
        thread.join()


@pytest.fixture
def terminal():
    opened = []

    def begin(*words):
        opened.append(Terminal(*words))
        return opened[-1]

    yield begin
    for one in opened:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        os.close(one.master)
        os.close(one.slave)


def is_whole(lines):
    return any("over the last" in line for line in lines) and any(line.startswith("answers") for line in lines)


@pytest.mark.parametrize("columns, rows", [(80, 24), (120, 40), (40, 12)])
def test_the_live_view_fits_its_terminal(start, terminal, columns, rows):
    server = start("--ep-size", "2", "--num-threads", "1")
    screen = terminal(columns, rows, "--port", server.port, "--interval", "0.3")
    with readers(server):
        busy = screen.until(lambda lines: lines[1].startswith("over the last") and " 0 running" not in lines[3])
    assert len(busy) <= rows and all(len(line) <= columns for line in busy), busy
    bar = next(line for line in busy if line.startswith("KV pages"))
    assert re.match(r"KV pages  \[#*\.+\]? ?", bar)
    if rows >= 24:
        assert bar.endswith(f"of {server.metric('num_pages'):.0f}"), bar
        assert [line.split()[0] for line in busy if re.match(r"[01]  ", line)] == ["0", "1"]
    screen.resize(60, 20)
    screen.process.send_signal(signal.SIGWINCH)
    smaller = screen.until(lambda lines: len(lines) <= 20 and all(len(line) <= 60 for line in lines))
    assert smaller[0].startswith(server.url[:39])
    os.write(screen.master, b"q")
    assert screen.ended() == 0


def test_a_server_that_is_away_may_come_back(start, terminal):
    server = start()
    screen = terminal(80, 24, "--port", server.port, "--interval", "0.2")
    screen.until(is_whole)
    assert server.stop() == 0
    screen.until(lambda lines: "no answer" in lines[0])
    screen.process.send_signal(signal.SIGINT)
    assert screen.ended() == 0


def test_https_and_a_key(tmp_path):
    cert, key = make_certificate(tmp_path, "one")
    port, log = free_port(), tmp_path / "log"
    flags = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--api-key", "open sesame"]
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "serve", "--model-path", str(MODEL), "--port", str(port), *flags], stdout=out, stderr=subprocess.STDOUT)
    try:
        words = ["--url", f"https://localhost:{port}", "--ssl-ca", cert]
        with_key = dict(os.environ, HOCKET_API_KEY="open sesame")
        deadline = time.monotonic() + 60
        while (page := top(*words, env=with_key)).returncode != 0:
            assert time.monotonic() < deadline and process.poll() is None, page.stderr + log.read_text()
            time.sleep(0.1)
        assert page.stdout.startswith(f"https://localhost:{port} | hocket-tiny-qwen3-moe\n")
        assert "--api-key" in top(*words).stderr
        assert "certificate" in top(*words[:2], env=with_key).stderr  # not trusted without --ssl-ca
    finally:
        process.terminate()
        process.wait(30)
