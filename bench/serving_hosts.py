#!/usr/bin/env python3
"""bench serving over ranks on hosts of namespaces, a core and a link each. Needs root.

    bench/serving_hosts.py RANKS RATE [flags of bench serving]      bench/serving_hosts.py 2 1gbit --max-concurrency 8

It serves shape small with random weights, as `bench serving --shape small`, with HOCKET_BIN or build/release/hocket. The clients
run on h0 and ask rank 0, which passes requests on to other ranks. The printed waits are those of rank 0.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import netns

BINARY = str(pathlib.Path(os.environ.get("HOCKET_BIN", ROOT / "build/release/hocket")).resolve())
READY_S = 120
# The same config.json as that of bench/dummy_shape.cc.
SMALL = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_act": "silu",
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "intermediate_size": 4096,
    "norm_topk_prob": True,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def wait_ready(host, log):
    """Waits for /readyz; the request runs inside the host, since the port cannot be reached from outside."""
    until = time.monotonic() + READY_S
    probe = [sys.executable, "-c", f"import urllib.request as u; u.urlopen({'http://127.0.0.1:30000/readyz'!r}, timeout=1)"]
    while host.start(probe, stderr=subprocess.DEVNULL).wait() != 0:
        if time.monotonic() > until:
            sys.exit(f"the ranks are not ready; the first says:\n{log.read_text()}")
        time.sleep(0.5)


def main(count, rate, *flags):
    if netns.why_not():
        sys.exit(f"no hosts here: {netns.why_not()}")
    with tempfile.TemporaryDirectory() as folder, netns.Hosts(int(count), rate) as hosts:
        pathlib.Path(folder, "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        token = pathlib.Path(folder, "token")
        token.write_text(secrets.token_hex(), encoding="utf-8")
        token.chmod(0o600)
        cores = sorted(os.sched_getaffinity(0))
        serve = [BINARY, "serve", "--load-format", "dummy", "--model-path", folder, "--nnodes", count]
        serve += ["--dist-init-addr", "h0:5000", "--cluster-token-file", str(token), "--max-total-tokens", "65536"]
        ranks = []
        for i, host in enumerate(hosts):
            with open(pathlib.Path(folder, f"log{i}"), "wb") as log:
                command = [*serve, "--node-rank", str(i), "--cpu-bind", str(cores[i % len(cores)])]
                ranks.append(host.start(command, stdout=log, stderr=log))
        wait_ready(hosts[0], pathlib.Path(folder, "log0"))
        bench = [BINARY, "bench", "serving", "--port", "30000", "--endpoint", "generate", *flags]
        status = hosts[0].start(bench).wait()
        for rank in ranks:
            rank.terminate()
        for rank in ranks:
            rank.wait()
        return status


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
