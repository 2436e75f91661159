"""`hocket serve` under attack: one process with the bundled model, short timeouts and a stated limit of memory.

Checks what must hold under every attack, and raises `Broken` with what does not.
"""

import collections
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))

import client  # noqa: E402
from cluster import BINARY, MODEL  # noqa: E402
from ports import free_port  # noqa: E402

READY_S = 60
SHUTDOWN_S = 2  # --shutdown-timeout
END_S = SHUTDOWN_S + 8  # SIGTERM must end the server within this time, even under attack
IDLE_S = 15  # after an attack: until nothing is left of it
LIMIT_MIB = 512  # --total-request-memory-mib
# All attacks come from one client: the copies that its answers have of grammars, 512 MiB, and the cache of compiled grammars, 256 MiB
# (docs/contracts/requests.md, "Grammars").
GRAMMARS_MIB = 768
# The address sanitizer keeps freed memory for a while and reserves addresses without end.
SANITIZED = b"__asan_init" in BINARY.read_bytes()
# Memory that is not counted: KV pages used for the first time, free memory that the allocator keeps.
MARGIN_MIB = 1024 if SANITIZED else 128
# The words of a shell that limit a command's address space, so that one that leaks ends early.
ADDRESS_LIMIT = "" if SANITIZED else f"ulimit -v {8 << 20}; "
ABOVE_READY_MIB = LIMIT_MIB + GRAMMARS_MIB + MARGIN_MIB
USUAL_STACK_KIB = 8192  # kStackBytes of base/thread.h
GUARD_KIB = 1024  # kGuardBytes
FLAGS = {
    "--model-path": MODEL,
    "--max-total-tokens": 32768,
    "--max-running-requests": 64,
    "--num-threads": 1,
    "--cpu-bind": "none",
    "--header-timeout": 2,
    "--body-timeout": 4,
    "--write-timeout": 4,
    "--idle-timeout": 10,
    "--shutdown-timeout": SHUTDOWN_S,
    "--request-memory-mib": 256,
    "--total-request-memory-mib": LIMIT_MIB,
}


def highest_mib_of(pid):
    """The most memory that was ever resident; 0 if the process has just ended."""
    with contextlib.suppress(OSError, AttributeError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024
    return 0


def ticks_of(pid):
    """Processor time in hundredths of a second; 0 if the process has just ended."""
    with contextlib.suppress(OSError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()[11:13]))
    return 0


def stack_environment(stack_kib):
    """Variables that give each thread of hocket as large a part of its stack as `stack_kib` is of the usual one."""
    return {"HOCKET_STACK_PERCENT": str(100 * stack_kib // USUAL_STACK_KIB)} if stack_kib else {}


def stacks_of(pid):
    """The sizes in KiB of all memory that lies directly above a guard, as the stack of a thread does."""
    sizes, is_guard = [], False
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines():
        place, rights = line.split()[:2]
        begins, ends = (int(end, 16) for end in place.split("-"))
        kib = (ends - begins) >> 10
        if is_guard and rights.startswith("rw"):
            sizes.append(kib)
        is_guard = rights.startswith("---") and kib == GUARD_KIB
    return sizes


def check_stacks(pid, stack_kib):
    """Threads have stacks of this size, and none of the usual one. A C library may add the guard's size."""
    sizes = stacks_of(pid)
    need({stack_kib, stack_kib + GUARD_KIB} & set(sizes), f"no thread has a stack of {stack_kib} KiB: {sizes}")
    usual = {USUAL_STACK_KIB, USUAL_STACK_KIB + GUARD_KIB}
    need(stack_kib == USUAL_STACK_KIB or not usual & set(sizes), f"threads have the usual stack: {sizes}")


class Broken(Exception):
    """A property that must hold of the server does not hold."""


def need(good, what):
    if not good:
        raise Broken(what)


class Server:
    """One process. `switches`: flags without a value. Its log stays in `folder` if a check failed."""

    def __init__(self, flags=None, switches=("--kv-events",), stack_kib=0, wait=True, log=None):
        self.folder = Path(tempfile.mkdtemp(prefix="hocket_hostile_"))
        self.port = free_port()
        self.log_path = self.folder / "log"
        words = FLAGS | {"--port": self.port} | (flags or {})
        command = ["setpriv", "--pdeathsig", "KILL", "--", BINARY, "serve"]
        command += [word for flag in words.items() if flag[1] is not None for word in flag] + list(switches)
        # The limit is that of the main thread alone; the other threads' stacks are a matter of the program.
        limited = f"ulimit -s {stack_kib}; " if stack_kib else ""
        shell = ["sh", "-c", f'{limited}exec "$@"', "sh"] + [str(word) for word in command]
        self.stack_kib, environment = stack_kib, os.environ | stack_environment(stack_kib)
        with open(self.log_path, "ab") as own:
            errors = own if log is None else log
            self.running = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=own, stderr=errors, env=environment)
        self.ready_mib = 0
        if wait:
            self.wait_ready()

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.kill()
        self.running.wait()
        if failed is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, timeout=10):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def call(self, path, body=None, timeout=10):
        return client.call(self.connect, path, body, timeout)

    def alive(self):
        return self.running.poll() is None

    def wait_ready(self):
        deadline = time.monotonic() + READY_S
        while True:
            need(self.alive(), f"ended with status {self.running.returncode} at its start: {self.last_words()}")
            try:
                if self.call("/readyz", timeout=2)[0] == 200:
                    break
            except OSError:
                pass
            need(time.monotonic() < deadline, f"not ready after {READY_S} s")
            time.sleep(0.02)
        if self.stack_kib:
            check_stacks(self.running.pid, self.stack_kib)
        self.ready_mib = self.highest_mib()

    def highest_mib(self):
        """The most memory that was ever resident, of the process and its living children."""
        return sum(highest_mib_of(pid) for pid in [self.running.pid, *self.children()])

    def children(self):
        pids = []
        for task in Path(f"/proc/{self.running.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that has ended
                pids += task.read_text(encoding="ascii").split()
        return pids

    def last_words(self):
        log = self.log_path.read_text(errors="replace")
        lines = [line for line in log.splitlines() if " batch, " not in line]
        return " / ".join(lines[-5:])

    def metrics(self):
        """The metrics, summed over labels, by name without `hocket:`."""
        status, _, text = self.call("/metrics")
        need(status == 200, f"/metrics: {status}")
        values = collections.defaultdict(float)
        for name, value in re.findall(r"^hocket:(\w+)(?:\{[^}]*\})? (\S+)$", text, re.M):
            values[name] += float(value)
        return values

    def check(self):
        """Raises Broken if the server has ended or holds too much memory."""
        if not self.alive():
            status = self.running.returncode
            died = signal.Signals(-status).name if status < 0 else f"exit {status}"
            raise Broken(f"the server ended: {died}: {self.last_words()}")
        high = self.highest_mib()
        limit = self.ready_mib + ABOVE_READY_MIB
        need(high <= limit, f"{high:.0f} MiB were resident; {limit:.0f} = {self.ready_mib:.0f} when ready + {ABOVE_READY_MIB}")

    def left_over(self):
        """Requests, connections, memory and pages that an idle server should not have, as text; "" if there are none."""
        m = self.metrics()
        waiting = ("num_queue_reqs", "num_grammar_queue_reqs", "num_prefix_fetch_reqs", "num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs")
        left = {name: m[name] for name in ("num_running_reqs", *waiting, "num_private_pages")}
        left["http_active_requests"] = m["http_active_requests"] - 1  # without this request for /metrics
        left["http_connections"] = m["http_connections"] - 1
        left["request_memory_bytes"] = m["request_memory_bytes"]
        left["lost pages"] = m["num_pages"] - m["num_free_pages"] - m["num_cached_pages"] - m["num_private_pages"]
        return ", ".join(f"{name} {value:.0f}" for name, value in left.items() if value > 0)

    def still_computes(self):
        """A text if threads still compute though no request is left; else ""."""
        ticks = [sum(map(ticks_of, [self.running.pid, *self.children()]))]
        time.sleep(0.1)
        ticks.append(sum(map(ticks_of, [self.running.pid, *self.children()])))
        return f"{ticks[1] - ticks[0]} of 10 ticks computed" if ticks[1] - ticks[0] > 5 else ""

    def wait_idle(self):
        deadline = time.monotonic() + IDLE_S
        while left := self.left_over() or self.still_computes():
            need(time.monotonic() < deadline, f"{IDLE_S} s after the attack there is still: {left}")
            time.sleep(0.02)

    def end(self):
        """Ends the server by SIGTERM, which must take bounded time. Returns the seconds it took."""
        children, began = self.children(), time.monotonic()
        self.running.send_signal(signal.SIGTERM)
        try:
            status = self.running.wait(END_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"still there {END_S} s after SIGTERM: {self.last_words()}") from None
        need(status in (0, 1), f"SIGTERM ended it with status {status}: {self.last_words()}")
        took = time.monotonic() - began
        while left := [pid for pid in children if Path(f"/proc/{pid}").exists()]:
            need(time.monotonic() - began < END_S, f"processes that it has started are still there: {left}")
            time.sleep(0.02)
        return took


