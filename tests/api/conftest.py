"""Starts `hocket serve` with the bundled model on a free port, once for all tests, and again for tests that need other flags.

The binary is build/release/hocket, or the one that HOCKET_BIN names."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))

from ports import free_port  # noqa: E402

BINARY = os.environ.get("HOCKET_BIN", str(ROOT / "build" / "release" / "hocket"))
MODEL = ROOT / "models" / "hocket-tiny-qwen3-moe"


def until(what, patience_s=20):
    deadline = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
    return found


class Server:
    """One running server. Its stdout goes to the file log_path, its stderr too unless `stderr` says otherwise.

    preexec_fn runs in the child process before the program."""

    def __init__(self, log_path, *flags, model=MODEL, stderr=subprocess.STDOUT, preexec_fn=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log_path
        command = [BINARY, "serve", "--model-path", str(model), "--port", str(self.port), *flags]
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=stderr, preexec_fn=preexec_fn)
        self.wait_ready()

    def wait_ready(self, patience_s=60):
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server ended: {self.log_path.read_text()}"
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {patience_s} s: {self.log_path.read_text()}")

    def client(self, **options):
        options.setdefault("api_key", "none")
        options.setdefault("max_retries", 0)
        options.setdefault("timeout", 180)
        return openai.OpenAI(base_url=self.url + "/v1", **options)

    def call(self, path, body=None, headers=None, timeout=180):
        """Sends one request, a POST if there is a body. Returns status, headers and the body's bytes."""
        request = urllib.request.Request(self.url + path, data=body, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, dict(answer.headers), answer.read()

    def get(self, path, **options):
        return self.call(path, **options)

    def metric(self, name):
        text = self.get("/metrics")[2].decode()
        values = re.findall(rf"^hocket:{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
        assert values, f"no hocket:{name} in {text}"
        return sum(float(v) for v in values)

    def wait_metric(self, name, value, patience_s=10):
        deadline = time.monotonic() + patience_s
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"hocket:{name} is {self.metric(name)}, wanted {value}"
            time.sleep(0.02)

    def stop(self, patience_s=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience_s)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    assert running.stop() == 0, running.log_path.read_text()


@pytest.fixture
def start(tmp_path):
    """start("--flag", ...) starts a server for this test alone, and returns it."""
    running = []

    def begin(*flags, **options):
        running.append(Server(tmp_path / f"log{len(running)}.txt", *flags, **options))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def client(server):
    return server.client()
