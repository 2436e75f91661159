"""Observability: spans (checked by OpenTelemetry's own parser), logs, dumps and their replay, the black box, the watchdog, and the board
and alerts of deploy/monitoring, compared with the metrics that exist."""

import base64
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import conftest
from conftest import BINARY, ROOT, until

CHAT = {"messages": [{"role": "user", "content": "What is 17 + 25?"}], "temperature": 0, "max_tokens": 16}


def ask(server, path="/v1/chat/completions", body=None, headers=None):
    status, _, data = server.call(path, json.dumps(body or CHAT).encode(), headers or {})
    return status, json.loads(data)


def hocket(*words, timeout=60):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=timeout)


class Collector:
    """Receives OTLP over HTTP as a collector does. A message that is not valid is an error."""

    def __init__(self):
        self.spans, self.resources, self.errors = [], [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                    outer.take(json.loads(body))
                    self.send_response(200)
                except Exception as e:
                    outer.errors.append(repr(e))
                    self.send_response(400)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1/traces"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def take(self, message):
        # OTLP's JSON writes ids in hex where protobuf's JSON has base64.
        for resource in message["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for key in ("traceId", "spanId", "parentSpanId"):
                        if key in span:
                            assert re.fullmatch(r"[0-9a-f]+", span[key])
                            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
        parsed = json_format.ParseDict(message, ExportTraceServiceRequest())  # refuses unknown fields and wrong types
        for resource in parsed.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.http.shutdown()
    assert not made.errors


def values(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_spans_are_what_opentelemetry_says(start, collector):
    own = start("--enable-trace", "--otlp-traces-endpoint", collector.url)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    status, answer = ask(own, headers={"traceparent": parent})
    assert status == 200
    ask(own, body={**CHAT, "temperature": 9})
    until(lambda: len(collector.spans) >= 6)
    assert own.stop() == 0
    root = next(s for s in collector.spans if s.parent_span_id.hex() == "00f067aa0ba902b7")
    assert root.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert root.name == "POST /v1/chat/completions" and root.kind == 2
    stages = {s.name: s for s in collector.spans if s.parent_span_id == root.span_id}
    assert set(stages) == {"text", "queue", "prefill", "decode"}
    for stage in stages.values():
        assert root.start_time_unix_nano <= stage.start_time_unix_nano <= stage.end_time_unix_nano <= root.end_time_unix_nano
    assert abs(root.start_time_unix_nano / 1e9 - time.time()) < 60
    told = values(root)
    assert told["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"]
    assert told["http.response.status_code"] == 200 and told["gen_ai.response.id"] == answer["id"]
    assert collector.resources[0]["service.name"] == "hocket"
    refused = next(s for s in collector.spans if values(s).get("http.response.status_code") == 400)
    assert values(refused)["error.type"] == "invalid_request" and not refused.parent_span_id
    assert "17 + 25" not in str(collector.spans)


def test_spans_of_several_processes_are_one_trace(start, collector, monkeypatch):
    """The rank that receives a request passes it on; the spans of the rank that computes are children of its span."""
    findings = map(json.loads, hocket("doctor", "--json").stdout.splitlines())
    if (ucx := next(f for f in findings if f["name"] == "UCX"))["remedy"]:
        pytest.skip(ucx["value"])
    port = conftest.free_port(2)
    monkeypatch.setattr(conftest, "free_port", lambda: port)
    service = start("--ranks-per-node", "2", "--dp-routing", "round-robin", "--max-total-tokens", "32768", "--enable-trace",
                    "--otlp-traces-endpoint", collector.url)
    handed_on = lambda: [s for s in collector.spans if "hocket.handed_on_to" in values(s)]
    below = lambda span: [s for s in collector.spans if s.parent_span_id == span.span_id]
    until(lambda: ask(service)[0] == 200 and len(handed_on()) >= 2)  # as soon as the first rank knows the other one
    for span in handed_on()[:2]:
        until(lambda: any(s.kind == 2 for s in below(span)))
        child = next(s for s in below(span) if s.kind == 2)
        assert child.trace_id == span.trace_id
        until(lambda: {s.name for s in below(child)} == {"text", "queue", "prefill", "decode"})


def test_json_logs(start):
    own = start("--log-format", "json", "--log-requests")
    status, answer = ask(own)
    assert status == 200 and own.stop() == 0
    lines = own.log_path.read_text().splitlines()
    records = [json.loads(line) for line in lines]  # every line is an object
    assert all({"time", "level"} <= set(r) and ("message" in r) != ("event" in r) for r in records)
    ended = next(r for r in records if r.get("event") == "request_ended")
    assert ended["id"] == answer["id"] and ended["status"] == 200
    assert ended["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert any("message" in r and r["message"].startswith("Prefill batch") for r in records)
    assert not any("17 + 25" in line for line in lines)


def test_configure_logging(start):
    own = start()
    ask(own)
    assert "request_ended" not in own.log_path.read_text()
    status, now = ask(own, "/configure_logging", {"log_requests": True, "log_requests_level": 2})
    assert status == 200 and now["log_requests"] and now["log_requests_level"] == 2
    ask(own)
    until(lambda: "request_answer" in own.log_path.read_text())
    assert "17 + 25" in own.log_path.read_text()
    assert ask(own, "/configure_logging", {"log_requests_levels": 2})[0] == 400


def dump_of(folder):
    return sorted(folder.glob("hocket-requests-*.jsonl"))


def test_dump_and_replay(start, server, tmp_path):
    """Dumped requests give the same bits when they are sent again, drawn seeds included; they can also run in virtual time."""
    folder = tmp_path / "dump"
    own = start("--dump-requests-folder", str(folder))
    for i in range(4):
        ask(own, body={**CHAT, "temperature": 1.3, "max_tokens": 24})
        own.call("/v1/chat/completions", json.dumps({**CHAT, "temperature": 0.9, "n": 2, "stream": True}).encode())
        own.call("/generate", json.dumps({"text": f"Once {i}", "sampling_params": {"temperature": 1, "max_new_tokens": 9}}).encode())
        own.call("/v1/completions", json.dumps({"prompt": "A", "max_tokens": 5, "stream": True}).encode())
    assert own.stop() == 0
    files = dump_of(folder)
    assert len(files) == 1 and files[0].stat().st_mode & 0o777 == 0o600
    again = hocket("replay", files[0], "--port", server.port, "--speed", 4)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "requests 16 ok, 0 failed" in again.stdout
    assert "answers  16 the same, 0 different, 0 not compared" in again.stdout
    played = hocket("replay", "--virtual", files[0])
    assert played.returncode == 0, played.stdout + played.stderr
    assert "20 requests" in played.stdout and "measured" in played.stdout and "fcfs" in played.stdout
    # A dump of another answer is noticed.
    text = files[0].read_text()
    hashes = re.findall(r'"ids_hash":"([0-9a-f]{16})"', text)
    (tmp_path / "other.jsonl").write_text(text.replace(hashes[0], "0" * 16, 1))
    other = hocket("replay", tmp_path / "other.jsonl", "--port", server.port, "--speed", 10)
    assert other.returncode == 1 and "1 different" in other.stdout


def test_a_crash_leaves_its_black_box(start, tmp_path):
    folder = tmp_path / "crash"
    own = start("--crash-dump-folder", str(folder))
    assert ask(own)[0] == 200
    body = {**CHAT, "max_tokens": 2000, "ignore_eos": True}
    threading.Thread(target=lambda: pytest.raises(Exception, ask, own, body=body), daemon=True).start()
    until(lambda: own.metric("num_running_reqs") == 1)
    os.kill(own.process.pid, signal.SIGSEGV)
    assert own.process.wait(10) == -signal.SIGSEGV
    (left,) = folder.iterdir()
    assert left.stat().st_mode & 0o777 == 0o600
    told = hocket("crash", left)
    assert told.returncode == 0, told.stderr
    assert "why      signal 11" in told.stdout
    assert "requests under way: 1\n" in told.stdout and "/v1/chat/completions" in told.stdout
    assert "requests that ended: 1" in told.stdout
    assert re.search(r"step \d+: 1 rows, 1 of answers", told.stdout)
    assert "VmRSS" in told.stdout and "backtrace" in told.stdout
    assert "17 + 25" not in left.read_text()


def test_the_watchdog_names_the_stage_and_ends_the_process(start, tmp_path):
    """The step takes longer than the watchdog waits: a long prompt in one chunk, on one thread."""
    folder = tmp_path / "crash"
    own = start("--watchdog-timeout", "0.01", "--chunked-prefill-size", "-1", "--num-threads", "1", "--crash-dump-folder", str(folder))
    ids = [5 + i % 1000 for i in range(3900)]

    def load():
        while own.process.poll() is None:
            try:
                body = {"input_ids": [[i, *ids] for i in range(8)], "sampling_params": {"max_new_tokens": 1}}
                own.call("/generate", json.dumps(body).encode(), timeout=20)
            except OSError:
                pass

    threading.Thread(target=load, daemon=True).start()
    assert own.process.wait(60) == 6
    log = own.log_path.read_text()
    assert re.search(r"error\[HK060\]: the engine has work and made no step for \d+\.\d s: it is in (forward|\w+)", log), log[-2000:]
    (left,) = folder.iterdir()
    assert "why      the engine has work" in hocket("crash", left).stdout


def names_of(text):
    return set(re.findall(r"\b((?:hocket|sglang|vllm):\w+)", text))


def told_names(server):
    names = set()
    for line in server.get("/metrics")[2].decode().splitlines():
        if line and not line.startswith("#"):
            names.add(re.match(r"[\w:]+", line)[0])
    return names


# A single process with one rank has no metrics of a cluster.
OF_SEVERAL = {"hocket:cluster_rank_up"}


def test_board_and_alerts_ask_for_what_there_is(server):
    told = told_names(server)
    for name in ("grafana/hocket.json", "alerts.yaml"):
        text = (ROOT / "deploy" / "monitoring" / name).read_text()
        if name.endswith(".json"):
            board = json.loads(text)
            assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
            assert all(p["targets"] for p in board["panels"] if p["type"] != "row")
        asked = names_of(text)
        assert len(asked) > 5
        assert asked - OF_SEVERAL <= told, asked - told


# The metrics that these boards query (sgl-project/sglang examples/monitoring, vllm-project/vllm examples/observability).
BOARDS = {
    "sglang": ["num_running_reqs", "num_queue_reqs", "gen_throughput", "cache_hit_rate", "num_used_tokens", "token_usage",
               "e2e_request_latency_seconds_bucket", "time_to_first_token_seconds_bucket", "time_to_first_token_seconds_sum",
               "inter_token_latency_seconds_bucket", "prompt_tokens_total", "generation_tokens_total", "num_requests_total"],
    "vllm": ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total",
             "request_success_total", "e2e_request_latency_seconds_bucket", "time_to_first_token_seconds_bucket",
             "inter_token_latency_seconds_bucket", "request_queue_time_seconds_bucket", "request_prefill_time_seconds_sum",
             "request_decode_time_seconds_sum", "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total"],
}


def test_aliases_for_other_boards(start, server):
    own = start("--metrics-compat", "sglang,vllm")
    ask(own)
    told = told_names(own)
    for prefix, names in BOARDS.items():
        assert {f"{prefix}:{n}" for n in names} <= told, prefix
        assert not any(n.startswith(prefix) for n in told_names(server))
    text = own.get("/metrics")[2].decode()
    assert re.search(r'vllm:request_success_total\{model_name="[\w-]+",engine="0",finished_reason="(stop|length)"\} 1\n', text)
