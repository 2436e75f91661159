"""`hocket plan`: its forecast equals what a server reports about itself; and its exit status."""

import json
import random
import re
import shutil
import subprocess

import pytest
from conftest import BINARY, MODEL, ROOT

SPEED = ("--read-gbs", "50", "--peak-gflops", "500")  # given, so that nothing is measured: quick, and the same on every machine


def plan(*flags):
    done = subprocess.run([BINARY, "plan", *SPEED, *flags], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def plan_json(*flags):
    status, out, err = plan("--json", *flags)
    return status, json.loads(out), err


def test_the_figures_are_those_of_serve(start):
    flags = ("--max-total-tokens", "8192", "--quantization", "int8", "--num-threads", "2")
    status, figures, _ = plan_json("--model-path", str(MODEL), *flags)
    assert status == 0 and figures["fits"]
    server = start(*flags)
    info = json.loads(server.get("/get_server_info")[2])["memory"]
    for key in ("weight_bytes", "work_bytes", "kv_bytes"):
        assert figures[key] == info[key], (key, figures, info)


def test_671_billion_parameters_on_a_laptop():
    status, figures, err = plan_json("--model-path", str(ROOT / "tests/configs/deepseek_v3"), "--memory-gb", "32")
    assert status == 4
    assert "error[HK040]" in err and "fix: " in err and "GB of available memory" in err
    assert not figures["fits"] and figures["largest_batch"] == 0
    assert abs(figures["parameters"] - 671.03e9) < 0.001 * 671e9
    assert figures["total_bytes"] > figures["weight_bytes"] > figures["budget_bytes"]
    assert figures["weight_bytes"] == sum(part["bytes"] for part in figures["parts"].values())
    assert figures["parts"]["experts"]["format"] == "fp8"
    assert 11e9 < figures["mtp_bytes"] < 13e9
    assert figures["kv_bytes_per_token"] == 61 * 576 * 2
    assert figures["advice"]["flag"] == "--quantization int4"
    assert 0.5 * figures["weight_bytes"] < figures["advice"]["needed_bytes"] < 0.7 * figures["weight_bytes"]


def test_the_memory_of_a_gguf_file_is_said_by_type():
    status, out, _ = plan("--model-path", str(ROOT / "tests/golden/gguf_qwen3moe"))
    assert status == 0
    lines = re.findall(r"^  changed .*weights (\S+), (\S+ \S+) -> (\S+) in groups of", out, re.M)
    assert ("Q6_K", "q6_k") in [(line[0], line[2]) for line in lines], out


def test_the_module_that_drafts_is_planned():
    flags = ("--model-path", str(ROOT / "tests/golden/deepseek_v3_mtp"), "--max-total-tokens", "1024")
    _, without, _ = plan_json(*flags)
    status, figures, _ = plan_json(*flags, "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3")
    assert status == 0
    assert figures["weight_bytes"] == without["weight_bytes"] + without["mtp_bytes"]
    assert 2 * figures["kv_bytes_per_token"] == 3 * without["kv_bytes_per_token"]  # the model has two layers


def test_the_advice_works():
    model = ("--model-path", str(ROOT / "tests/configs/qwen3_235b_a22b"), "--memory-gb", "400")
    status, figures, err = plan_json(*model)
    assert status == 4 and figures["advice"]["fits"]
    assert figures["advice"]["flag"] in err
    status, better, _ = plan_json(*model, *figures["advice"]["flag"].split())
    assert status == 0 and better["fits"]
    assert better["largest_context"] > 0 and better["decode_tokens_per_s"]["1"] > 0


def test_speeds_of_several_hosts_have_a_network_in_them():
    model = ("--model-path", str(ROOT / "tests/configs/deepseek_v3"), "--memory-gb", "512", "--ep-size", "16", "--nnodes", "16")
    guessed, said, faster = (plan_json(*model, *link)[1] for link in ((), ("--ep-link-gbit", "10"), ("--ep-link-gbit", "400")))
    assert guessed["link_gbit"] == 10 and faster["link_gbit"] == 400
    assert guessed["prefill_tokens_per_s"] == said["prefill_tokens_per_s"]
    assert guessed["decode_tokens_per_s"] == said["decode_tokens_per_s"]
    assert guessed["prefill_tokens_per_s"] < faster["prefill_tokens_per_s"]  # how much depends on the processor
    assert "another: --ep-link-gbit" in plan(*model)[1]


@pytest.mark.parametrize("ranks_a_host", (1, 2))
@pytest.mark.parametrize("model", ("qwen3_235b_a22b", "deepseek_v3", "qwen3_5_397b_a17b"))
def test_so_many_hosts_as_are_named_are_enough(model, ranks_a_host):
    machine = ("--model-path", str(ROOT / "tests/configs" / model), "--memory-gb", "200")
    status, figures, err = plan_json(*machine, "--nnodes", "1", "--ep-size", str(ranks_a_host))
    assert status == 4
    advised = figures["advice"]["flag"].split()
    assert figures["fitting_hosts"] == (figures["fitting"] or {}).get("hosts")  # the old name
    for key, flags in (("fitting", []), ("fitting_with_advice", advised)):
        found = figures[key]
        if not found:  # the flags are enough on this host, or spare none
            assert key == "fitting_with_advice"
            continue
        hosts, ranks, context = found["hosts"], found["ranks"], found["context_length"]
        command = ["--nnodes", str(hosts), "--ep-size", str(ranks), *flags]
        assert hosts > 1 and ranks == hosts * ranks_a_host
        assert f"; or {hosts} hosts like this one, for contexts of {context} tokens: {' '.join(command)}" in err
        status, then, _ = plan_json(*machine, *command)
        assert status == 0 and then["fits"] and then["context_length"] == context
        fewer = ("--nnodes", str(hosts - 1), "--ep-size", str(ranks - ranks_a_host))
        status, then, _ = plan_json(*machine, *fewer, *flags)
        assert status == 4 and not then["fits"]


def test_the_table_is_as_wide_as_a_terminal():
    for model in (MODEL, ROOT / "tests/configs/deepseek_v2_lite"):
        status, out, _ = plan("--model-path", str(model), "--memory-gb", "64")
        assert status == 0
        assert "largest batch" in out and "decode, batch 1" in out and "advice" in out
        assert max(map(len, out.splitlines())) <= 100


def test_exit_status():
    assert plan("--model-path", "/no/such/folder")[0] == 3
    assert plan("--quantization", "awq")[0] == 2
    status, _, err = plan("--cache-type-k", "q8_0")
    assert status == 2 and "--kv-cache-dtype" in err


def test_ranks_have_the_figures_of_serve(start):
    flags = ("--ep-size", "2", "--max-total-tokens", "8192", "--num-threads", "1")
    status, figures, _ = plan_json("--model-path", str(MODEL), *flags)
    assert status == 0 and figures["fits"] and figures["ranks"] == 2
    server = start(*flags)
    info = json.loads(server.get("/get_server_info")[2])["memory"]
    for key in ("weight_bytes", "work_bytes", "kv_bytes"):
        assert 2 * figures[key] == info[key], (key, figures, info)


def test_overlap_is_planned_for_sizes_and_links():
    model = ("--model-path", str(ROOT / "tests/configs/deepseek_v2_lite"), "--memory-gb", "64")
    status, figures, _ = plan_json(*model, "--overlap")
    assert status == 0 and figures["ranks"] == 2
    points = figures["overlap"]
    assert len(points) == 7 * (5 + 10)
    assert sorted({p["link_gbit"] for p in points}) == [0.2, 1, 2.5, 10, 25, 100, 400]
    assert all(0 <= p["gain"] < 0.5 and p["why"] and p["lower_bound_us"] <= p["step_us"] * 1.0001 for p in points)
    best = max(points, key=lambda p: p["gain"])
    assert best["gain"] > 0.1 and best["kind"] == "two-batch"
    status, figures, _ = plan_json(*model, "--overlap", "--ep-size", "4", "--nnodes", "2", "--ep-link-gbit", "5")
    assert status == 0 and figures["ranks"] == 4 and {p["link_gbit"] for p in figures["overlap"]} == {5}
    status, out, _ = plan(*model, "--overlap")
    assert status == 0 and "two-batch, " in out and "decode, 64 rows, 1 Gbit/s: " in out
    assert max(map(len, out.splitlines())) <= 100
    assert plan(*model, "--ep-size", "4", "--nnodes", "3")[0] == 2


# Models of random weights whose pools are large beside all else: changes of a golden config, the length of prompts, and flags.
POOLS = {
    "states": ("qwen3_next", {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 8, "linear_num_value_heads": 8},
               65, ()),
    "windows": ("gpt_oss", {"head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": 8, "sliding_window": 128}, 1000,
                ("--swa-full-tokens-ratio", "1")),
    "latents": ("deepseek_v3_bf16", {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 16}, 1000, ()),
}


def resident_bytes(server):
    """Resident memory without pages of files: of the program and its libraries, which no plan counts."""
    status = open(f"/proc/{server.process.pid}/status").read()
    return sum(int(kb) * 1024 for kb in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", status))


@pytest.mark.parametrize("name", POOLS)
def test_pools_take_the_memory_that_is_planned(start, tmp_path, name):
    """Two servers differ in the sizes of their pools alone. Once those are full, their memory differs as much as their plans, and
    the larger server has all that is planned for it."""
    golden, wide, prompt_tokens, more = POOLS[name]
    model = tmp_path / "model"
    shutil.copytree(ROOT / "tests/golden" / golden, model, ignore=shutil.ignore_patterns("*.safetensors", "reference*"))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / file, model)
    config = json.loads((model / "config.json").read_text())
    config |= {"vocab_size": 2048, "torch_dtype": "bfloat16", **wide}
    (model / "config.json").write_text(json.dumps(config))

    def measure(tokens):
        flags = ("--load-format", "dummy", "--max-total-tokens", str(tokens), "--max-running-requests", "1",
                 "--num-threads", "1", *more)
        status, figures, _ = plan_json("--model-path", str(model), *flags)
        assert status == 0
        server = start(*flags, model=model)
        draw = random.Random(tokens)
        while server.metric("num_evicted_pages_total") == 0:  # each prompt takes pages, and a state, that none had before
            prompts = [[draw.randrange(100, 2000) for _ in range(prompt_tokens)] for _ in range(16)]
            body = {"input_ids": prompts, "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}}
            assert server.call("/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})[0] == 200
        resident = resident_bytes(server)
        assert server.stop() == 0
        return figures["total_bytes"], resident

    small, large = measure(2048), measure(40960)
    planned, resident = (large[i] - small[i] for i in (0, 1))
    print(f"{name}: {planned / 1e6:.1f} MB more planned, {resident / 1e6:.1f} MB more resident; "
          f"the larger server: {large[0] / 1e6:.1f} MB planned, {large[1] / 1e6:.1f} MB resident")
    assert planned > 150e6
    assert abs(resident - planned) < 0.02 * planned
    # Work buffers of which these prompts touch a part are planned, and small allocations are not: some 20 MB each.
    assert large[0] > 600e6
    assert abs(large[1] - large[0]) < 0.02 * large[0]
