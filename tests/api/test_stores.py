"""Prefixes in a Redis that services share, and in a folder whose mount stops answering."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
from conftest import BINARY, MODEL, free_port, until

PROMPT = "The two halves of a hocket sing in turn, and each rests while the other sounds. " * 12
PLAIN = ("--max-total-tokens", "8192")
FLAGS = (*PLAIN, "--hicache-storage-prefetch-policy", "wait_complete")
REDIS = shutil.which("valkey-server") or shutil.which("redis-server")
PASSWORD = "opensesame"

# Every call that opens or looks for a file below $HANG_FOLDER waits while the file $HANG_WHEN is there.
HANGING_FILES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static void wait_for(const char* path) {
  const char* folder = getenv("HANG_FOLDER");
  const char* when = getenv("HANG_WHEN");
  struct stat info;
  if (folder == NULL || when == NULL || path == NULL || strncmp(path, folder, strlen(folder)) != 0) return;
  while (stat(when, &info) == 0) usleep(20000);
}
#define OPEN(name)                                                          \
  int name(const char* path, int flags, ...) {                              \
    va_list more;                                                           \
    va_start(more, flags);                                                  \
    const int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, int) : 0; \
    va_end(more);                                                           \
    wait_for(path);                                                         \
    return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
int access(const char* path, int mode) {
  wait_for(path);
  return ((int (*)(const char*, int))dlsym(RTLD_NEXT, "access"))(path, mode);
}
int mkdir(const char* path, mode_t mode) {
  wait_for(path);
  return ((int (*)(const char*, mode_t))dlsym(RTLD_NEXT, "mkdir"))(path, mode);
}
"""


def answer(server, prompt=PROMPT, timeout=60):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
    status, _, text = server.call("/v1/completions", json.dumps(body).encode(), timeout=timeout)
    assert status == 200, text
    said = json.loads(text)
    return said["choices"], said["usage"]["prompt_tokens_details"]


def tier(server, name, of):
    """One number of /metrics by the name of its tier."""
    text = server.get("/metrics")[2].decode()
    lines = [line for line in text.splitlines() if line.startswith(f"hocket:{name}{{") and f'tier="{of}"' in line]
    assert len(lines) == 1, f"{name} of {of}: {lines}"
    return float(lines[0].split()[-1])


def cached(server):
    """The tokens of hocket:cached_tokens_total by their source."""
    lines = re.findall(r'^hocket:cached_tokens_total\{.*cache_source="(\w+)".*\} (\S+)$', server.get("/metrics")[2].decode(), re.M)
    return {source: float(value) for source, value in lines}


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}"
        command = [REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self.process = subprocess.Popen([*command, "--requirepass", PASSWORD], stdout=subprocess.DEVNULL)
        until(self.answers)

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False


@pytest.fixture
def redis(tmp_path):
    if REDIS is None:
        pytest.skip("neither valkey-server nor redis-server is installed")
    running = Redis(tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


def test_two_services_share_a_redis(start, redis):
    want, details = answer(start(*PLAIN))
    assert "cached_tokens_details" not in details
    first = start(*FLAGS, "--kv-cache-store", redis.url)
    assert answer(first)[0] == want
    until(lambda: tier(first, "kv_tier_written_pages_total", "redis") >= 256 / 32)
    second = start(*FLAGS, "--kv-cache-store", redis.url)
    got, details = answer(second)
    assert got == want
    read = details["cached_tokens_details"]["redis"]
    assert read >= 256 and read == details["cached_tokens"] == tier(second, "kv_tier_tokens_total", "redis")
    assert details["cached_tokens_details"]["memory"] == 0
    assert cached(second) == {"device": 0, "storage_file": 0, "storage_redis": read, "storage_peer": 0}
    # By now all of it is in memory.
    details = answer(second)[1]
    assert "cached_tokens_details" not in details
    assert cached(second)["device"] == details["cached_tokens"] and cached(second)["storage_redis"] == read
    info = json.loads(second.get("/get_server_info")[2])
    assert PASSWORD not in json.dumps(info) and f"127.0.0.1:{redis.port}" in json.dumps(info)
    assert second.stop() == 0
    log = second.log_path.read_text()
    assert "prefixes in a store: redis://127.0.0.1" in log and PASSWORD not in log


def test_a_redis_that_dies_is_announced_once_and_costs_nothing(start, redis):
    prompts = [f"{i}. {PROMPT}" for i in range(4)]
    alone = start(*PLAIN)
    want = [answer(alone, prompt)[0] for prompt in prompts]
    server = start(*FLAGS, "--kv-cache-store", redis.url)
    assert answer(server, prompts[0])[0] == want[0]
    redis.process.kill()
    assert [answer(server, prompt)[0] for prompt in prompts] == want
    until(lambda: tier(server, "kv_tier_unavailable", "redis") == 1)
    assert server.stop() == 0
    said = [line for line in server.log_path.read_text().splitlines() if "stored prefixes: " in line and "hashed" not in line]
    assert len(said) == 1, said


def test_plan_and_doctor_say_what_is_wrong_with_a_store(redis, tmp_path):
    def run(*words):
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    plan = ("plan", "--model-path", str(MODEL), "--peak-gflops", "100", "--peak-gops", "200", "--read-gbs", "10")
    status, said = run(*plan, "--kv-cache-store", redis.url)
    assert status == 0 and f"store    redis://127.0.0.1:{redis.port}" in said
    wrong = redis.url.replace(PASSWORD, "wrong")
    status, said = run(*plan, "--kv-cache-store", wrong)
    assert status == 0 and "refuses: WRONGPASS" in said
    status, said = run(*plan, "--kv-cache-store", f"127.0.0.1:{redis.port}")
    assert status == 2 and "begins with none of redis://, valkey://, rediss://, valkeys://" in said
    status, said = run("doctor", "--kv-cache-store", wrong)
    assert status == 1 and "WRONGPASS" in said
    status, said = run("doctor", "--kv-cache-store", f"redis://127.0.0.1:{free_port()}")
    assert status == 1 and "cannot be reached: Connection refused" in said
    assert "noeviction" in run("doctor", "--kv-cache-store", redis.url)[1]


@pytest.fixture
def hanging_files(tmp_path, monkeypatch):
    """Servers that are started from here on wait for files of tmp_path / "pages" while tmp_path / "hang" is there."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler for files that hang")
    (tmp_path / "hang.c").write_text(HANGING_FILES)
    library = tmp_path / "hang.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "hang.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("HANG_FOLDER", str(tmp_path / "pages"))
    monkeypatch.setenv("HANG_WHEN", str(tmp_path / "hang"))
    return tmp_path / "hang"


def test_a_folder_that_hangs_stops_neither_answers_nor_the_end(start, tmp_path, hanging_files):
    prompts = [f"{i}. {PROMPT}" for i in range(3)]
    alone = start(*PLAIN)
    want = [answer(alone, prompt)[0] for prompt in prompts]
    server = start(*FLAGS, "--kv-cache-dir", str(tmp_path / "pages"))
    assert answer(server, prompts[0])[0] == want[0]
    until(lambda: tier(server, "kv_tier_written_pages_total", "file") >= 256 / 32)
    hanging_files.touch()
    assert server.call("/flush_cache", b"{}")[0] == 200
    assert [answer(server, prompt, 30)[0] for prompt in prompts] == want
    until(lambda: tier(server, "kv_tier_unavailable", "file") == 1)
    begin = time.monotonic()
    assert [answer(server, prompt, 30)[0] for prompt in prompts] == want
    assert time.monotonic() - begin < 5, "nobody waits for the folder now"
    assert server.stop(20) == 0
    log = server.log_path.read_text()
    assert log.count("has not answered for 5 s") == 1, log


def test_a_folder_that_hangs_for_a_moment_loses_nothing(start, tmp_path, hanging_files):
    server = start(*FLAGS, "--kv-cache-dir", str(tmp_path / "pages"))
    want = answer(server)[0]
    until(lambda: tier(server, "kv_tier_written_pages_total", "file") >= 256 / 32)
    assert server.call("/flush_cache", b"{}")[0] == 200
    hanging_files.touch()
    later = threading.Timer(2, hanging_files.unlink)
    later.start()
    got, details = answer(server)
    later.join()
    assert got == want and details["cached_tokens_details"]["file"] >= 256
    assert tier(server, "kv_tier_unavailable", "file") == 0
