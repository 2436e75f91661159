"""The messages of `hocket serve` to systemd when it runs as a service of Type=notify."""

import os
import signal
import socket
import subprocess
import time
import urllib.request

import pytest
from conftest import BINARY, MODEL


class Manager:
    """systemd's end of NOTIFY_SOCKET."""

    def __init__(self, name):
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0"))
        self.socket.settimeout(20)

    def wait_for(self, word):
        """Waits for a datagram that holds `word`; returns all datagrams up to it."""
        said = []
        while True:
            said.append(self.socket.recv(4096).decode())
            if word in said[-1]:
                return said


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path):
    return Manager(str(tmp_path / "notify") if request.param == "file" else f"@hocket-test-{os.getpid()}")


def test_ready_alive_and_stopping(manager):
    process = subprocess.Popen(
        [BINARY, "serve", "--model-path", MODEL, "--port", "0"],
        env=dict(os.environ, NOTIFY_SOCKET=manager.name),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ready = manager.wait_for("READY=1")[-1]
        url = ready.split("STATUS=")[1].split()[0]
        assert ready.endswith(f"{url} serving hocket-tiny-qwen3-moe")
        assert urllib.request.urlopen(url + "/readyz", timeout=10).status == 200, "ready means: it answers"
        began = time.monotonic()
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")
        assert time.monotonic() - began < 10, "the watchdog of the unit is 60 s"
        process.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_socket_that_is_not_there_is_nothing(tmp_path):
    process = subprocess.Popen(
        [BINARY, "serve", "--model-path", MODEL, "--port", "0"],
        env=dict(os.environ, NOTIFY_SOCKET=str(tmp_path / "nobody")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if "ready:" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
