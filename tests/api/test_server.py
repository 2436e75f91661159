"""Features that OpenAI's client does not cover: SGLang's /generate, tokens, probes, metrics, bad bytes."""

import base64
import json
import re
import socket
import struct
import threading
import time

import pytest

from conftest import ROOT


def post(server, path, body):
    status, _, data = server.call(path, json.dumps(body).encode())
    return status, json.loads(data)


def generate(server, **body):
    status, answer = post(server, "/generate", body)
    assert status == 200, answer
    return answer


def test_generate(server):
    answer = generate(server, text="17 + 25 =", rid="mine", sampling_params={"temperature": 0, "max_new_tokens": 3})
    meta = answer["meta_info"]
    assert "42" in answer["text"]
    assert meta["id"] == "mine"
    assert meta["prompt_tokens"] > 0 and meta["completion_tokens"] == len(answer["output_ids"])
    assert meta["finish_reason"]["type"] in ("stop", "length")
    assert meta["e2e_latency"] > 0 and meta["cached_tokens"] >= 0


def test_generate_by_ids_is_generate_by_text(server):
    ids = post(server, "/tokenize", {"text": "17 + 25 ="})[1]["tokens"]
    params = {"temperature": 0, "max_new_tokens": 6}
    assert (generate(server, input_ids=ids, sampling_params=params)["output_ids"]
            == generate(server, text="17 + 25 =", sampling_params=params)["output_ids"])


def test_generate_batch_and_n(server):
    params = {"temperature": 0, "max_new_tokens": 4}
    answers = generate(server, text=["17 + 25 =", "Once upon"], sampling_params=params)
    assert len(answers) == 2
    assert answers[0]["text"] == generate(server, text="17 + 25 =", sampling_params=params)["text"]
    assert len(generate(server, text="Once", sampling_params={"n": 3, "max_new_tokens": 2})) == 3


def test_generate_seeds(server):
    def text(name):
        return generate(server, text="Once upon a time", sampling_params={name: 9, "temperature": 1.5, "max_new_tokens": 12})

    assert text("seed")["text"] == text("sampling_seed")["text"]


def test_generate_logprobs(server):
    meta = generate(server, text="The capital of France is", return_logprob=True, logprob_start_len=0, top_logprobs_num=2,
                    return_text_in_logprobs=True, sampling_params={"temperature": 0, "max_new_tokens": 3})["meta_info"]
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
    assert meta["input_token_logprobs"][0][0] is None
    assert all(row[0] <= 0 for row in meta["input_token_logprobs"][1:])
    assert "".join(row[2] for row in meta["input_token_logprobs"]) == "The capital of France is"
    assert len(meta["output_token_logprobs"]) == meta["completion_tokens"]
    assert all(len(top) == 2 for top in meta["output_top_logprobs"])


def test_generate_routed_experts(server):
    """The form that SGLang's clients read: 32-bit numbers in base64, [tokens without the last][layers][experts a token]."""
    def routed(**more):
        meta = generate(server, text="Once upon a time", return_routed_experts=True,
                        sampling_params={"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}, **more)["meta_info"]
        ids = struct.unpack(f"<{len(base64.b64decode(meta['routed_experts'])) // 4}i", base64.b64decode(meta["routed_experts"]))
        return ids, meta["prompt_tokens"] + meta["completion_tokens"] - 1

    model = json.loads((ROOT / "models/hocket-tiny-qwen3-moe/config.json").read_text())
    layers, top_k = model["num_hidden_layers"], model["num_experts_per_tok"]
    ids, tokens = routed()
    assert len(ids) == tokens * layers * top_k
    assert all(len(set(ids[i:i + top_k])) == top_k for i in range(0, len(ids), top_k))
    assert all(0 <= i < model["num_experts"] for i in ids)
    assert routed(return_logprob=True)[0] == ids
    assert "routed_experts" not in generate(server, text="Once", sampling_params={"max_new_tokens": 2})["meta_info"]


def test_generate_stream(server):
    params = {"temperature": 0, "max_new_tokens": 12}
    whole = generate(server, text="Once upon a time", sampling_params=params)
    data = server.call("/generate", json.dumps({"text": "Once upon a time", "sampling_params": params, "stream": True}).encode())[2]
    blocks = [b[6:] for b in data.decode().split("\n\n") if b.startswith("data: ")]
    assert blocks[-1] == "[DONE]"
    answers = [json.loads(b) for b in blocks[:-1]]
    for before, after in zip(answers, answers[1:]):
        assert after["text"].startswith(before["text"])
        assert len(after["output_ids"]) > len(before["output_ids"])
    assert answers[-1]["text"] == whole["text"] and answers[-1]["output_ids"] == whole["output_ids"]
    assert answers[-1]["meta_info"]["finish_reason"]["type"] == "length"


@pytest.mark.parametrize("text", ["Hello, world!", "né 你好 🦊", "  two  spaces\n\n", "<|im_end|>"])
def test_tokens_round_trip(server, text):
    tokens = post(server, "/tokenize", {"prompt": text})[1]
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == 4096
    assert post(server, "/detokenize", {"tokens": tokens["tokens"]})[1]["text"] == text


def test_infos(server):
    info = json.loads(server.get("/get_model_info")[2])
    assert info["is_generation"] and info["max_model_len"] == 4096
    everything = json.loads(server.get("/get_server_info")[2])
    assert "settings" in everything and isinstance(everything["changes"], list)
    load = json.loads(server.get("/get_load")[2])
    assert [set(r) for r in load] == [{"dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens", "num_pending_tokens", "ts_tic"}]
    for path in ("/health", "/health_generate", "/livez", "/readyz"):
        assert server.get(path)[0] == 200


def test_metrics(server):
    generate(server, text="x", sampling_params={"max_new_tokens": 2})
    text = server.get("/metrics")[2].decode()
    families = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            families[name] = kind
        elif line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            assert any(name.startswith(f) for f in families), line
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "num_pages", "num_free_pages", "num_cached_pages",
                 "num_private_pages"):
        assert families[f"hocket:{name}"] == "gauge"
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"):
        assert families[f"hocket:{name}"] == "histogram"
    page = (ROOT / "docs" / "api.md").read_text()
    table = page[page.index("**`/metrics`**"):]
    table = table[:table.index("\n## ")]
    named = {f"hocket:{name}" for name in re.findall(r"`(\w+)(?:\{\w+\})?`", table[table.index("| Names"):])}
    told = {name for name in families if not name.startswith("hocket:http_")}
    values = {f"hocket:{v}" for v in ("input", "device_hit", "storage_hit", "device", "storage_file", "storage_redis",
                                      "storage_peer", "prefill_compute", "prefill_cache", "decode", "prefill", "mixed", "idle",
                                      "prefill_forward", "decode_forward", "file", "redis", "peer", "no_buffer", "late",
                                      "store_away", "write_failed", "shutdown", "no_memory", "expected_slower",
                                      "queue_full", "attn_core", "delta_core")}
    assert told == named - values


def test_flush_cache(server):
    server.wait_metric("num_running_reqs", 0)
    assert post(server, "/flush_cache", {}) == (200, {"flushed": True})
    server.wait_metric("num_cached_pages", 0)


def test_abort_by_rid(server):
    answer = {}

    def ask():
        answer.update(generate(server, text="Once upon a time", rid="doomed",
                               sampling_params={"max_new_tokens": 4000, "ignore_eos": True}))

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.monotonic() + 10
    while post(server, "/abort_request", {"rid": "doomed"})[1]["aborted"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    thread.join(10)
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    server.wait_metric("num_private_pages", 0)


BODIES = [b"", b"{", b"[]", b"nonsense", b'{"text": "\xff"}', b'{"text": "x", "text": "y"}', b'{"a":' + b"[" * 5000,
          b'{"text": "\\ud800"}']


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_bad_bodies(server, body):
    for path in ("/generate", "/v1/completions", "/tokenize"):
        status, _, data = server.call(path, body)
        error = json.loads(data)["error"]
        assert status == 400 and error["type"] == "invalid_request_error" and error["message"]


def raw(server, data, timeout=5):
    """Sends raw bytes and returns the answer's status line; empty if the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        s.sendall(data)
        return s.recv(4096).split(b"\r\n")[0].decode()


def test_huge_content_length(server):
    assert " 413 " in raw(server, b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")


def test_header_flood(server):
    flood = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 100) for i in range(400))
    assert " 431 " in raw(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")


def test_keep_alive(server):
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
        for _ in range(3):
            s.sendall(request)
            assert s.recv(4096).startswith(b"HTTP/1.1 200")


def test_unknown_paths_and_methods(server):
    status, _, data = server.get("/v1/chat/completion")
    assert status == 404 and "/v1/chat/completions" in json.loads(data)["error"]["hint"]
    status, headers, _ = server.get("/generate")
    assert status == 405 and headers["Allow"] == "POST"


def test_readiness_tells_of_the_end(start):
    own = start()
    with socket.create_connection(("127.0.0.1", own.port), timeout=5) as stream:
        body = json.dumps({"text": "Once", "stream": True, "sampling_params": {"max_new_tokens": 300, "ignore_eos": True}}).encode()
        stream.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = stream.recv(65536)
        own.process.terminate()
        while True:
            piece = stream.recv(65536)
            if not piece:
                break
            data = data[-64:] + piece
        assert b"[DONE]" in data
    assert own.process.wait(10) == 0
