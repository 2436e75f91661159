"""The order in which requests are answered. The batch has one place: all requests wait for it, then it becomes free."""

import json
import re
import subprocess
import threading

import pytest

from conftest import BINARY, until

ONE_PLACE = ("--max-running-requests", "1", "--disable-radix-cache", "--log-requests")


def post(server, path, body):
    status, _, data = server.call(path, json.dumps(body).encode())
    assert status == 200, data
    return json.loads(data)


def order_of_answers(server, requests):
    """Returns names in the order in which the server ended their answers, by its log; `requests` are (name, user) in the order of arrival."""
    prompt_lens = {name: 10 + i for i, name in enumerate(["holder", *dict(requests)])}  # tell the lines of the log apart
    threads = []

    def ask(name, user, max_new_tokens):
        post(server, "/generate", {"input_ids": [300] * prompt_lens[name], "rid": name, "user": user,
                                   "sampling_params": {"max_new_tokens": max_new_tokens, "ignore_eos": True}})

    def ended():
        lens = re.findall(r"request_ended .* prompt_tokens=(\d+)", server.log_path.read_text())
        return [name for n in lens for name in prompt_lens if prompt_lens[name] == int(n)]

    def begin(*args):
        threads.append(threading.Thread(target=ask, args=args))
        threads[-1].start()

    begin("holder", "holder", 3900)
    server.wait_metric("num_running_reqs", 1)
    for i, (name, user) in enumerate(requests):
        begin(name, user, 16)
        server.wait_metric("num_queue_reqs", i + 1)
    assert post(server, "/abort_request", {"rid": "holder"}) == {"aborted": 1}
    for thread in threads:
        thread.join(30)
    until(lambda: len(ended()) == len(requests) + 1)  # a thread of its own writes the log
    order = ended()
    assert order[0] == "holder"
    return order[1:]


@pytest.fixture
def slow(start, monkeypatch):
    """start() with a slow server, so that the order of answers is clear and the first answer lasts until all requests wait."""
    monkeypatch.setenv("HOCKET_ISA", "ref")
    return start


HEAVY = [(f"heavy{i}", "heavy") for i in range(6)]


# Both policies serve one user's requests in their order. "fcfs" shows that the light user would wait behind the heavy one.
@pytest.mark.parametrize("policy, place", [("fcfs", 6), ("fair", 1)])
def test_a_light_user_among_a_heavy_one(slow, policy, place):
    order = order_of_answers(slow("--schedule-policy", policy, *ONE_PLACE), HEAVY + [("light", "light")])
    assert order.index("light") <= place, order
    assert [name for name in order if name != "light"] == [name for name, _ in HEAVY], order
    if policy == "fcfs":
        assert order.index("light") == place


def test_random_is_drawn_from_the_seed(slow):
    def order(seed):
        return order_of_answers(slow("--schedule-policy", "random", "--schedule-seed", seed, *ONE_PLACE), HEAVY)

    first = order("1")
    assert sorted(first) == [name for name, _ in HEAVY]
    assert first != [name for name, _ in HEAVY]
    assert order("1") == first
    assert order("2") != first


def test_settings_are_told(start):
    own = start("--prefill-policy", "mixed", "--max-chunked-requests", "3", "--overlap-schedule", "on", "--decode-log-interval", "7")
    info = json.loads(own.get("/get_server_info")[2])
    settings = info["settings"]
    assert (settings["prefill_policy"], settings["max_chunked_requests"], settings["decode_log_interval"]) == ("mixed", 3, 7)
    assert settings["itl_slo_ms"] == 100 and settings["max_overtaken"] == 512
    assert info["overlap_schedule"] is True


PREFILL = (r"Prefill batch, #new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+), token usage: \d\.\d\d, #running-req: (\d+), "
           r"#queue-req: (\d+), #pending-token: (\d+), cuda graph: False, input throughput \(token/s\): \d+\.\d\d, cache hit rate: (?:\d+\.\d\d)%")
DECODE = (r"Decode batch, #running-req: (\d+), #token: (\d+), token usage: \d\.\d\d, cuda graph: False, "
          r"gen throughput \(token/s\): (\d+\.\d\d), #queue-req: (\d+)")


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_log_lines_and_counters(start, overlap):
    own = start("--decode-log-interval", "5", "--overlap-schedule", overlap, "--chunked-prefill-size", "32")
    ids = list(range(300, 380))
    for _ in range(2):
        post(own, "/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 11, "ignore_eos": True}})
    own.wait_metric("num_running_reqs", 0)
    log = own.log_path.read_text()
    rows = [[int(n) for n in row] for row in re.findall(r"\] I " + PREFILL + "$", log, re.M)]
    assert rows == [[1, 32, 0, 0, 0, 48], [1, 32, 0, 0, 0, 16], [1, 16, 0, 0, 0, 0], [1, 16, 64, 0, 0, 0]]
    assert len(rows) == log.count("Prefill batch")
    decodes = re.findall(r"\] I " + DECODE + "$", log, re.M)
    assert len(decodes) == log.count("Decode batch") >= 4  # 10 rows an answer, and perhaps one too many
    assert all(row[0] == "1" and float(row[2]) > 0 for row in decodes)
    assert own.metric("num_steps_total") >= 4 + 20
    assert own.metric("realtime_tokens_total") >= 160 + 20
    assert own.metric("prefill_effective_tokens_total") == own.metric("prompt_tokens_total") == 160
    assert own.metric("cache_hit_rate") == pytest.approx(64 / 160)
    assert own.metric("input_throughput") == 0  # idle
    assert "cache hit rate: 40.00%" in log
    assert (own.metric("num_overlapped_steps_total") > 0) == (overlap == "on")


def test_a_bad_interval_is_refused(start):
    with pytest.raises(AssertionError, match="--decode-log-interval is 0, must be at least 1"):
        start("--decode-log-interval", "0")


def test_simulate_schedules_as_the_server_does(tmp_path):
    """Its defaults are those of serve. With a log it takes the options of that log's server, unless a flag says otherwise."""

    def hocket(*words):
        done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def prompts(*words):
        said = hocket("simulate", "--policies", "fcfs", "--num-requests", 5, *words)
        return re.search(r"^pool .* \| chunk -?\d+ \| (.*)$", said, re.M).group(1)

    assert prompts() == "latency, 100 ms, 50 % for prompts"
    assert prompts("--chunked-prefill-size", -1) == "prefill-first"
    assert prompts("--enable-mixed-chunk") == "mixed"
    assert prompts("--prefill-policy", "latency", "--itl-slo-ms", 40) == "latency, 40 ms, 0 % for prompts"
    for number, (flags, logged) in enumerate([((), prompts()), (("--prefill-policy", "prefill-first"), "prefill-first")]):
        log = tmp_path / f"{number}.jsonl"
        hocket("bench", "serving", *flags, "--num-prompts", 3, "--random-input-len", 8, "--random-output-len", 4, "--log", log)
        assert prompts("--trace", log) == logged
        assert prompts("--trace", log, "--prefill-policy", "mixed") == "mixed"


def test_simulate_plays_every_policy_on_several_hosts(tmp_path):
    def rows(*words):
        command = [BINARY, "simulate", "--disaggregation-hosts", "2", "--num-requests", "5", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout, re.findall(r"^(\S.*(?:do both|for prompts))  ", done.stdout, re.M)

    said, played = rows("--policies", "fcfs,lpm")
    assert played == ["fcfs, 2 do both", "fcfs, 1 of 2 for prompts", "lpm, 2 do both", "lpm, 1 of 2 for prompts"]
    assert len(re.findall(r"^(fcfs|lpm): prefill apart from decode ", said, re.M)) == 2
    said, played = rows("--max-total-tokens", "32", "--input-len", "10000")
    assert played == ["2 do both", "1 of 2 for prompts"]
    assert "fcfs: prefill apart from decode does not pay" in said, "no host completes a token"
