"""Ranks that share the experts, tested from outside: their answers equal those of one rank."""

import concurrent.futures
import json
import re
import subprocess

from conftest import BINARY, MODEL

QUESTIONS = [f"{'Once upon a time ' * (i % 4)}there were {i}" for i in range(12)]


def generate(server, text):
    body = {"text": text, "return_logprob": True,
            "sampling_params": {"max_new_tokens": 24, "temperature": 0.8, "sampling_seed": 5, "ignore_eos": True}}
    status, _, data = server.call("/generate", json.dumps(body).encode())
    assert status == 200, data
    answer = json.loads(data)
    return answer["text"], answer["output_ids"], answer["meta_info"]["output_token_logprobs"]


def answers(server):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return list(pool.map(lambda text: generate(server, text), QUESTIONS))


def test_answers_are_those_of_one_rank(start):
    one = answers(start())
    for ranks, routing in (("2", "round-robin"), ("2", "cache-aware"), ("3", "round-robin")):
        several = start("--ep-size", ranks, "--dp-routing", routing)
        assert answers(several) == one
        assert several.metric("generation_tokens_total") == 24 * len(QUESTIONS)
        assert several.stop() == 0


def test_what_two_ranks_tell(start):
    server = start("--ep-size", "2", "--dp-routing", "round-robin")
    answers(server)
    log = server.log_path.read_text()
    assert "ranks: 2 over loopback, 16 combine groups, routing round-robin, overlap auto (" in log
    assert "experts 0-7" in log and "experts 8-15" in log
    assert "DP0 EP0 Prefill batch" in log and "DP1 EP1 Prefill batch" in log
    assert [load["dp_rank"] for load in json.loads(server.get("/get_load")[2])] == [0, 1]
    info = json.loads(server.get("/get_server_info")[2])
    assert info["num_ranks"] == 2 and info["combine_groups"] == 16
    assert [rank["experts"] for rank in info["ranks"]] == [list(range(8)), list(range(8, 16))]
    assert info["max_total_num_tokens"] == sum(rank["max_total_num_tokens"] for rank in info["ranks"])
    steps = re.findall(r'^hocket:num_steps_total\{dp_rank="(\d)".*mode="prefill"\} (\d+)$', server.get("/metrics")[2].decode(), re.M)
    assert [rank for rank, _ in steps] == ["0", "1"] and all(int(count) > 0 for _, count in steps)
    assert server.call("/flush_cache", b"{}")[0] == 200
    assert server.stop() == 0


def test_what_several_ranks_cannot_do_is_refused():
    def told(*flags):
        ended = subprocess.run([BINARY, "serve", "--model-path", str(MODEL), *flags], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2, ended
        return ended.stderr

    assert "--ep-size 17 is not in 1 to 16" in told("--ep-size", "17")
    assert "--combine-groups, one of 4, 8, 16" in told("--ep-size", "4", "--combine-groups", "2")
    assert "--kv-events" in told("--ep-size", "2", "--kv-events")
    assert "shortest, cache-aware, round-robin" in told("--ep-size", "2", "--dp-routing", "best")
    assert "--overlap two-batch" in told("--ep-size", "2", "--overlap", "none", "--enable-two-batch-overlap")
    assert "--overlap four-phase" in told("--ep-size", "2", "--overlap", "four-fase")
    assert "0 to 0.5" in told("--ep-size", "2", "--tbo-token-distribution-threshold", "0.7")
