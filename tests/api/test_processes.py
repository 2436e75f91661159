"""Ranks of one host as processes: the first rank starts the others, passes signals on, and ends when one of them has ended."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import conftest
import jsonschema
import pytest
from conftest import BINARY, MODEL, free_port


LONG = 4000  # tokens; an answer takes seconds, long enough for the events of a test


@pytest.fixture
def two(start, monkeypatch):
    findings = subprocess.run([BINARY, "doctor", "--json"], capture_output=True, text=True, check=True).stdout
    ucx = next(finding for finding in map(json.loads, findings.splitlines()) if finding["name"] == "UCX")
    if ucx["remedy"]:
        pytest.skip(ucx["value"])
    other = free_port(2)
    monkeypatch.setattr(conftest, "free_port", lambda: other)
    flags = ("--dp-routing", "round-robin", "--max-total-tokens", "32768", "--shutdown-timeout", "240")
    server = start("--ranks-per-node", "2", *flags)
    for port in (server.port, server.port + 1):
        wait_until_joined(f"http://127.0.0.1:{port}")
    return server


def wait_until_joined(url, patience_s=20):
    """Returns when the rank answers a request. Until it has met the others it is ready, and refuses with 503."""
    deadline = time.monotonic() + patience_s
    request = urllib.request.Request(url + "/v1/completions", json.dumps({"prompt": "A", "max_tokens": 1}).encode())
    while True:
        try:
            urllib.request.urlopen(request, timeout=patience_s).close()
            return
        except (urllib.error.HTTPError, ConnectionError, urllib.error.URLError) as refused:
            assert time.monotonic() < deadline, refused
            time.sleep(0.05)


def other_rank(server):
    return int(re.search(r"started rank 1 as process (\d+)", server.log_path.read_text())[1])


def gone(pid, patience_s=10):
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def story(url, into):
    body = {"prompt": "Tell me a story", "max_tokens": LONG, "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            into.append((answer.status, json.loads(answer.read())))
    except urllib.error.HTTPError as answer:
        into.append((answer.code, json.loads(answer.read())))
    except OSError as gone:  # the rank that was asked has ended
        into.append((0, str(gone)))


def begin_stories(server):
    """Sends two requests to each rank's port, and returns when both ranks are decoding."""
    told = []
    urls = [f"http://127.0.0.1:{server.port + i % 2}" for i in range(4)]
    threads = [threading.Thread(target=story, args=(url, told)) for url in urls]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while not all(f"DP{rank} EP{rank} Decode batch" in server.log_path.read_text() for rank in (0, 1)):
        assert time.monotonic() < deadline, told
        time.sleep(0.01)
    return told, threads


def test_a_signal_lets_all_ranks_answer_first(two):
    told, threads = begin_stories(two)
    assert two.stop(patience_s=250) == 0  # other programs may slow the answers down
    for thread in threads:
        thread.join()
    assert [status for status, _ in told] == 4 * [200], told
    assert [answer["usage"]["completion_tokens"] for _, answer in told] == 4 * [LONG]
    log = two.log_path.read_text()
    assert "ranks: 2 over ucx" in log
    assert re.search(rf"rank 1 \| (listening|ready): http://127.0.0.1:{two.port + 1}\b", log)
    assert log.count("stopped: every request was answered") == 2
    assert gone(other_rank(two), 0.1)


def test_answers_by_a_schema_are_those_of_one_process(two, start, monkeypatch):
    """Eight requests run at once, four sent to each rank's port."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "quantity_in_stock": {"type": "integer", "minimum": 0, "maximum": 9999}},
        "required": ["name", "quantity_in_stock"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}

    def told(*ports):
        def one(seed):
            port = ports[seed // 2 % len(ports)]
            ask = [{"role": "user", "content": f"What is {seed} + {seed}?"}]
            body = {"messages": ask, "max_tokens": 200, "temperature": seed % 2, "seed": seed, "response_format": form}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=180) as answer:
                choice = json.loads(answer.read())["choices"][0]
            return choice["finish_reason"], choice["message"]["content"]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(one, range(8)))

    together = told(two.port, two.port + 1)
    assert {reason for reason, _ in together} == {"stop"}
    for _, text in together:
        jsonschema.validate(json.loads(text), schema)
    assert two.metric("grammar_forced_tokens_total") > 0
    log = two.log_path.read_text()
    assert "DP0 EP0 Prefill batch" in log and "DP1 EP1 Prefill batch" in log
    monkeypatch.undo()  # any free port
    alone = start()
    assert told(alone.port) == together
    two.stop()


def test_a_rank_that_ends_ends_its_host(two):
    told, threads = begin_stories(two)
    os.kill(other_rank(two), signal.SIGKILL)
    assert two.process.wait(10) == 5
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in told) == [0, 0, 503, 503], told  # connections to rank 1 broke with its end
    assert all("rank 1" in answer["error"]["message"] for status, answer in told if status == 503)
    assert "rank 1 was ended by signal 9 (Killed)" in two.log_path.read_text()


def test_no_rank_outlives_the_one_that_started_it(two):
    other = other_rank(two)
    two.process.kill()
    two.process.wait()
    assert gone(other)


def test_contradictions_are_refused():
    def told(*flags):
        ended = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), *flags], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2, ended
        return ended.stderr

    assert "--node-rank 0 on the first host" in told("--nnodes", "2")
    assert "--ranks-per-node P" in told("--dist-init-addr", "h0:5000")
    by_hand = ("--nnodes", "2", "--node-rank", "1")
    assert "etcd://h0:2379" in told(*by_hand, "--cluster-store", "h0:2379")
    cacert = ("--cluster-store-cacert", "ca.pem")
    assert "if it is not inside TLS" in told(*by_hand, "--cluster-store", "etcd://h0:2379", *cacert)
    cert = ("--cluster-store-cert", "cert.pem")
    assert "are of use together" in told(*by_hand, "--cluster-store", "etcds://h0:2379", *cert)
    assert "no user and no password" in told(*by_hand, "--cluster-store", "etcd://ann:secret@h0")
    assert "where no rank is special" in told(*by_hand, "--cluster-store", "etcd://h0", "--dist-init-addr", "h0:1")
    assert "nothing says that there is another rank" in told("--cluster-store", "etcd://h0")
    assert "without --cluster-store" in told(*by_hand, "--dist-init-addr", "h0:1", "--cluster-listen", "h1:1")
    assert "--rank-wait is 0 s" in told("--ranks-per-node", "2", "--rank-wait", "0")
    assert "--ep-size N alone" in told("--ranks-per-node", "2", "--ep-link-gbit", "1")
    assert "the number of ranks is 4 by --ep-size and 2 by" in told("--ranks-per-node", "2", "--ep-size", "4")
    assert "--ep-size N" in told("--dp-size", "2")
