"""Keys, limits, HTTPS, draining, --strict and `hocket doctor`, tested from outside."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

from conftest import BINARY, MODEL, free_port


def run(*arguments, **environment):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, env=dict(os.environ, **environment))


def wait_log(server, text, patience_s=10):
    deadline = time.monotonic() + patience_s
    while text not in server.log_path.read_text():
        assert time.monotonic() < deadline, server.log_path.read_text()
        time.sleep(0.02)


def generate(server, key, tokens=4, **options):
    body = json.dumps({"text": "17 + 25 =", "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}})
    return server.call("/generate", body.encode(), {"x-api-key": key, **options})


def make_certificate(folder, name):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_keys_of_a_file(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann ann-key requests_per_minute=2\nroot root-key admin\n")
    keys.chmod(0o600)
    server = start("--api-key-file", str(keys))
    assert generate(server, "nobody")[0] == 401
    assert generate(server, "ann-key")[0] == 200
    status, headers, _ = generate(server, "ann-key")
    assert (status, headers["x-ratelimit-remaining-requests"]) == (200, "0")
    status, headers, body = generate(server, "ann-key")
    assert (status, json.loads(body)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(headers["Retry-After"]) <= 30
    with pytest.raises(openai.RateLimitError):
        server.client(api_key="ann-key").chat.completions.create(model="x", messages=[{"role": "user", "content": "1"}])
    assert server.get("/flush_cache", headers={"x-api-key": "ann-key"})[0] == 403
    assert server.get("/flush_cache", headers={"x-api-key": "root-key"})[0] == 200

    keys.write_text("bob bob-key\nroot root-key admin\n")
    server.process.send_signal(signal.SIGHUP)
    wait_log(server, "reload: keys and certificates are read again")
    assert generate(server, "ann-key")[0] == 401
    assert generate(server, "bob-key")[0] == 200
    keys.write_text("bob bob-key concurrency=none\n")
    server.process.send_signal(signal.SIGHUP)
    wait_log(server, "line 1: concurrency is not a number")
    assert generate(server, "bob-key")[0] == 200
    assert "bob-key" not in server.log_path.read_text() and "ann-key" not in server.log_path.read_text()
    assert server.stop() == 0


def test_https_and_a_new_certificate(start, tmp_path, monkeypatch):
    cert, key = make_certificate(tmp_path, "first")
    # The fixture would wait for /readyz over plain HTTP, which this server refuses with a reason.
    port = free_port()
    log = tmp_path / "tls.log"
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "serve", "--model-path", str(MODEL), "--port", str(port), "--ssl-certfile", str(cert), "--ssl-keyfile", str(key)],
                                   stdout=out, stderr=subprocess.STDOUT)
    try:
        context = ssl.create_default_context(cafile=str(cert))
        url = f"https://localhost:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                if urllib.request.urlopen(url + "/readyz", context=context, timeout=10).status == 200:
                    break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, log.read_text()
                time.sleep(0.05)
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", http_client=openai.DefaultHttpxClient(verify=context))
        chunks = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "What is 17 + 25?"}], temperature=0, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "42"
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"https://" in plain.recv(4096)

        bench = run("bench", "serving", "--url", f"https://127.0.0.1:{port}", "--ssl-ca", str(cert), "--num-prompts", "4", "--random-output-len", "4")
        assert bench.returncode == 0, bench.stderr + bench.stdout
        assert run("bench", "serving", "--url", f"https://127.0.0.1:{port}", "--num-prompts", "1").returncode != 0  # not trusted without --ssl-ca

        other, other_key = make_certificate(tmp_path, "second")
        cert.write_bytes(other.read_bytes())
        key.write_bytes(other_key.read_bytes())
        process.send_signal(signal.SIGHUP)
        new = ssl.create_default_context(cafile=str(other))
        deadline = time.monotonic() + 10
        while True:
            try:
                assert urllib.request.urlopen(url + "/livez", context=new, timeout=10).status == 200
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_drain_ends_what_runs_and_says_so(start):
    server = start("--shutdown-timeout", "20")
    client = server.client()
    stream = client.chat.completions.create(model="x", messages=[{"role": "user", "content": "1"}], stream=True, temperature=0, max_tokens=2000,
                                            extra_body={"ignore_eos": True})
    seen, ended = [], []

    def read():
        for chunk in stream:
            seen.append(chunk)
        ended.append(seen[-1].choices[0].finish_reason)

    reader = threading.Thread(target=read)
    reader.start()
    while len(seen) < 3:
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    wait_log(server, "draining")
    statuses = set()
    while reader.is_alive():
        try:
            statuses.add(server.get("/readyz", timeout=5)[0])
        except OSError:
            break  # the last request was answered, and the port is closed
        time.sleep(0.01)
    reader.join(30)
    assert ended == ["length"] and statuses == {503}
    assert server.process.wait(30) == 0


def strict(*flags):
    """Runs a server that may open 512 files, which is too few, so that --strict always has a reason to refuse."""
    bounded = f"ulimit -n 512; exec {BINARY} serve --model-path {MODEL} --port {free_port()} --strict {' '.join(flags)}"
    return subprocess.run(["bash", "-c", bounded], capture_output=True, text=True, timeout=60)


def test_strict_refuses_what_would_be_changed():
    ended = strict()
    assert ended.returncode == 2
    assert "--max-connections 4096 -> 352" in ended.stderr and "error[HK003]" in ended.stderr


OPEN = "--host 0.0.0.0: no key is asked for"


def test_a_server_that_is_open_to_all_says_so(start):
    server = start("--host", "0.0.0.0")
    assert f"slow: {OPEN}" in server.log_path.read_text()
    assert OPEN.split(":")[0] in [path["what"] for path in json.loads(server.get("/get_server_info")[2])["slow_paths"]]
    assert "slow" in run("doctor", "--host", "0.0.0.0").stdout.split(OPEN)[1]
    assert OPEN not in run("doctor", "--host", "0.0.0.0", HOCKET_API_KEY="k").stdout
    assert OPEN not in run("doctor").stdout
    refused = strict("--host", "0.0.0.0")
    assert refused.returncode == 2 and OPEN in refused.stderr
    for private in (strict("--host", "localhost"), strict("--host", "0.0.0.0", "--api-key", "k")):
        assert private.returncode == 2 and OPEN not in private.stderr


def test_strict_refuses_a_cluster_that_is_open_to_strangers():
    here = ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "127.0.0.1:1", "--rank-wait", "1")
    serve = ("serve", "--model-path", MODEL, "--port", "0", *here, "--insecure-cluster")
    assert "slow: --insecure-cluster: anyone who reaches 127.0.0.1:1" in run(*serve).stderr
    refused = run(*serve, "--strict")
    assert refused.returncode == 2 and "--insecure-cluster" in refused.stderr and "--cluster-token-file" in refused.stderr


def test_only_own_names_are_answered(start):
    server = start("--allowed-hosts", "llm.example")
    for host, status in (("localhost", 200), ("127.0.0.1:1", 200), ("llm.example", 200), ("evil.example", 403)):
        assert server.get("/v1/models", headers={"Host": host})[0] == status, host
        assert server.get("/livez", headers={"Host": host})[0] == 200
    refused = json.loads(server.get("/flush_cache", headers={"Host": "evil.example"})[2])["error"]
    assert refused["code"] == "forbidden" and "--allowed-hosts evil.example" in refused["hint"]


def test_changes_are_told(start):
    server = start()
    info = json.loads(server.get("/get_server_info")[2])
    assert isinstance(info["changes"], list)
    for path in info["slow_paths"]:
        assert set(path) == {"what", "why", "fix"} and f"slow: {path['what']}" in server.log_path.read_text()


@pytest.mark.parametrize("typed, ours", [
    ("--max-model-len=4096", "--context-length"), ("-c", "--context-length"), ("--ctx-size", "--context-length"),
    ("--gpu-memory-utilization", "--mem-fraction-static"), ("--max-num-seqs", "--max-running-requests"), ("-np", "--max-running-requests"),
    ("--max-num-batched-tokens", "--chunked-prefill-size"), ("--enable-expert-parallel", "--ep-size N"),
    ("--enable-dbo", "--enable-two-batch-overlap"), ("-m", "--model-path"), ("-t", "--cpu-bind"), ("--allowed-origins", "--cors-origins"),
    ("--dp", "--ep-size N: each of its ranks"), ("--deepep-mode", "nothing: rows travel per rank"),
    ("--elastic-ep-backend", "--tolerate-ranks K"), ("--draft-max", "--speculative-num-steps"),
    ("--draft-min", "nothing: hocket measures"), ("-md", "--speculative-algorithm NEXTN"), ("--spec-type", "--speculative-algorithm auto"),
    ("--speculative-config", "num_speculative_tokens"), ("--eplb-config", "--enable-eplb"),
    ("--expert-distribution-recorder-buffer-size", "takes buffer_size"), ("--ep-dispatch-algorithm", "nothing: each rank spreads"),
    ("--eplb-rebalance-layers-per-chunk", "nothing: experts move"), ("--enable-expert-distribution-metrics", "nothing: /metrics"),
    ("--eplb-min-rebalancing-utilization-threshold", "nothing: experts move if"),
    ("--prot", "--port"), ("--admin-api-kye", "--admin-api-key")])
def test_other_names_are_translated(typed, ours):
    ended = run("serve", typed)
    assert ended.returncode == 2 and "error[HK002]" in ended.stderr and ours in ended.stderr


def test_variables_of_others_are_translated():
    ended = run("serve", "--model-path", "/nowhere", SGLANG_CPU_OMP_THREADS_BIND="0-3", HOCKET_PROT="1")
    assert ended.returncode == 3
    assert "SGLANG_CPU_OMP_THREADS_BIND does nothing: --cpu-bind" in ended.stderr
    assert "HOCKET_PROT is no setting: HOCKET_PORT?" in ended.stderr


def test_doctor_finds_what_is_in_the_way():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = run("doctor", "--json", "--port", str(taken.getsockname()[1]))
    findings = {f["name"]: f for f in map(json.loads, ended.stdout.splitlines())}
    assert ended.returncode == 1
    assert findings["port"]["weight"] == "bad" and "--port" in findings["port"]["remedy"]
    assert {"processor", "memory", "NUMA nodes", "huge pages", "clock", "governor", "open files", "listen backlog"} <= set(findings)
    for finding in findings.values():
        assert (finding["remedy"] == "") == (finding["weight"] == "fine"), finding
    free = run("doctor", "--port", str(free_port()))
    assert "is free" in free.stdout


def test_a_forced_level_is_named():
    def findings(isa):
        return {f["name"]: f for f in map(json.loads, run("doctor", "--json", HOCKET_ISA=isa).stdout.splitlines())}

    assert re.search(r"REF by HOCKET_ISA, else (AVX|AMX)", run("version", HOCKET_ISA="ref").stdout)
    assert " by HOCKET_ISA" not in run("version", HOCKET_ISA="").stdout
    low = findings("ref")
    assert low["HOCKET_ISA"]["weight"] == "slow" and low["HOCKET_ISA"]["value"].startswith("ref is used, not ")
    assert "few rows" not in low
    tiles = findings("amx_emulated")
    if tiles["HOCKET_ISA"]["weight"] == "bad":
        pytest.skip(tiles["HOCKET_ISA"]["value"])
    assert tiles["HOCKET_ISA"]["weight"] == "slow" and tiles["HOCKET_ISA"]["value"].startswith("amx_emulated is used, not ")
    assert re.fullmatch(r"below 8 rows bf16 is multiplied by (FMA|VDPBF16PS \(avx512_bf16\))", tiles["few rows"]["value"])
