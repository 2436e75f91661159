"""Every number in a flag, a variable or the file has a range; a command with a number outside of it ends with an error message."""

import json
import os
import resource
import subprocess
import time

import pytest

from conftest import BINARY

COMMANDS = ["serve", "demo", "run", "check", "plan", "simulate", "trace", "replay", "top", "crash", "doctor", "bench kernels", "bench one-batch",
            "bench serving", "bench streams", "bench scheduler", "bench grammar", "bench speculation", "bench all2all", "bench overlap", "bench peers",
            "bench machine"]


def run(*words, timeout=60, **variables):
    return subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **variables))


def numbers_of(command):
    told = run(*command.split(), "--help=json")
    assert told.returncode == 0, told.stderr
    return [flag for flag in json.loads(told.stdout)["flags"] if flag["range"]]


def refused(ended, name):
    assert ended.returncode == 2, (name, ended.returncode, ended.stderr)
    assert "error[HK003]" in ended.stderr and name in ended.stderr


def outside(flag):
    least, most = flag["range"]
    values = ["nan"]
    if abs(least) < 1e15:
        values.append(str(int(least) - 1))
    if most < 1e16:
        values.append(str(int(most) * 2 + 1))
    return values


def test_every_number_of_serve_is_refused_outside_of_its_range():
    numbers = numbers_of("serve")
    assert len(numbers) > 40
    for flag in numbers:
        for value in outside(flag):
            refused(run("serve", f"--{flag['name']}={value}"), flag["name"])


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_numbers_of_other_commands_too(command):
    for flag in numbers_of(command):
        refused(run(*command.split(), f"--{flag['name']}=nan"), flag["name"])
        if flag["range"][1] < 1e16:
            refused(run(*command.split(), f"--{flag['name']}={outside(flag)[-1]}"), flag["name"])


def test_variables_and_the_file_too(tmp_path):
    for value in ("inf", "-inf", "1e400", "x"):
        refused(run("serve", f"--schedule-conservativeness={value}"), "schedule-conservativeness")
    refused(run("serve", HOCKET_SCHEDULE_CONSERVATIVENESS="nan"), "schedule-conservativeness")
    refused(run("serve", HOCKET_MAX_RUNNING_REQUESTS="2147483647"), "max-running-requests")
    (tmp_path / "c.yaml").write_text("idle-timeout: 1e10\n")
    refused(run("serve", "--config", str(tmp_path / "c.yaml")), "idle-timeout")
    assert run("serve", "--config", "/dev/zero").returncode == 2


LINE = '{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [1]}\n'


@pytest.mark.parametrize("words, status", [
    (["simulate", "--policies", "fcfs", "--input-len", "2147483647", "--num-requests", "2"], 2),
    (["simulate", "--policies", "fcfs", "--shared-prefix", "2147483647", "--num-requests", "2"], 2),
    (["simulate", "--policies", "fcfs", "--input-len", "1000000000", "--shared-prefix", "1000000000", "--num-requests", "2"], 2),
    (["simulate", "--policies", "fcfs", "--max-running-requests", "1000000000", "--num-requests", "2"], 2),
    (["simulate", "--num-requests", "2000000000"], 2),
    (["simulate", "--trace", "/dev/zero"], 2),
    (["simulate", "--trace", "/"], 1),
    (["simulate", "--step-model", "/dev/zero"], 2),
    (["replay", "--virtual", "/dev/zero"], 2),
    (["replay", "/dev/zero"], 2),
    (["replay", "/"], 1),
    (["trace", "/dev/zero"], 2),
    (["trace", "/"], 1),
    (["crash", "/dev/zero"], 2),
    (["crash", "/"], 1),
])
def test_tools_end_with_a_sentence(words, status):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    ended = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert ended.returncode == status and "error[HK" in ended.stderr, (ended.returncode, ended.stderr)


@pytest.mark.parametrize("lines, what", [
    (LINE % (0, 2000000000, 2000000000), "input_length"),
    (LINE % (0, 10, 10) + LINE % (1000000000000000, 10, 10), "timestamp"),
    ('{"timestamp": 0, "input_length": 10, "output_length": 10, "hash_ids": [' + "1," * (9 << 20) + "1]}\n", "longer than"),
])
def test_a_trace_that_no_time_or_memory_holds_is_refused(tmp_path, lines, what):
    (tmp_path / "t.jsonl").write_text(lines)
    ended = run("simulate", "--policies", "fcfs", "--trace", str(tmp_path / "t.jsonl"))
    assert ended.returncode == 2 and what in ended.stderr, (ended.returncode, ended.stderr)


@pytest.mark.parametrize("words", [["version"], ["help"], ["simulate", "--num-requests", "20"], ["serve", "--help"], ["doctor"], ["docs", "flags"]])
def test_an_output_that_takes_nothing_is_no_crash(words):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([BINARY, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 1 and "No space left" in ended.stderr, (ended.returncode, ended.stderr)
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([BINARY, *words], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert ended.returncode >= 0 and "terminate" not in ended.stderr, (ended.returncode, ended.stderr)


def ask(server, prompt, max_tokens):
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}).encode()
    return server.call("/v1/completions", body, {"Content-Type": "application/json"})[0]


def test_a_log_on_a_full_device_stops_no_server(start):
    with open("/dev/full", "wb") as full:
        server = start(stderr=full)
    assert ask(server, "a", 3) == 200
    assert server.metric("log_lines_lost_total") > 0
    assert server.stop() == 0


def test_a_log_whose_reader_leaves_ends_nothing(start):
    reader, writer = os.pipe()
    server = start(stderr=writer)
    os.close(writer)
    os.close(reader)
    before = server.metric("log_lines_lost_total")
    for i in range(20):
        assert ask(server, f"a{i}", 3) == 200
    assert server.metric("log_lines_lost_total") > before
    assert server.stop() == 0


def test_a_log_whose_reader_pauses_stops_nothing(start):
    reader, writer = os.pipe()
    server = start("--decode-log-interval", "1", stderr=writer)
    os.close(writer)
    # The log has some 400 KB, and a pipe holds 64 KB.
    for i in range(40):
        assert ask(server, f"a{i}", 40) == 200
    begin = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begin < 10
    os.close(reader)
