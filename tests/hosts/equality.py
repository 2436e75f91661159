#!/usr/bin/env python3
"""Ranks in processes and hosts of their own give exactly the answers of one rank: the same tokens and log-probabilities.

    tests/hosts/equality.py [--only WORD]
"""

import functools
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import harness
from cluster import QUESTIONS, ROOT, Cluster, OneRank, answers_of_one_rank, texts_of_one_rank
from netns import Hosts

STREAM_TOKENS = 64
OVERLAPPED = {"--overlap-schedule": "on"}
MOVING = {"--enable-eplb": True, "--eplb-rebalance-num-iterations": 8}
# Delta nets, and windows of 9 keys, beside full attention; the folders have no tokenizer.
HYBRID = {"--model-path": ROOT / "tests/golden/qwen3_5_moe"}
WINDOWED = {"--model-path": ROOT / "tests/golden/mimo_v2_flash"}


def check_answers(ranks):
    """Asks every question at every rank's port: one after another, all at once, and as streams."""
    ranks.wait_doors()
    for rank in range(ranks.num_ranks):
        assert ranks.answers(rank) == answers_of_one_rank(), f"rank {rank} answers otherwise"
    with ThreadPoolExecutor(ranks.num_ranks) as pool:
        for answers in pool.map(ranks.answers, range(ranks.num_ranks)):
            assert answers == answers_of_one_rank(), "together they answer otherwise"
    streams = [ranks.stream(i % ranks.num_ranks, text, STREAM_TOKENS) for i, text in enumerate(QUESTIONS)]
    texts = [stream.finish(60).text for stream in streams]
    assert texts == texts_of_one_rank(tuple(QUESTIONS), STREAM_TOKENS)
    for rank in range(ranks.num_ranks):
        assert ranks.metric(rank, "generation_tokens_total") > 0, f"rank {rank} had no request"
        assert ranks.metric(rank, "forwarded_requests_total") > 0, f"rank {rank} handed no request on"
        ranks.check_pages(rank)


def check_aborts(ranks):
    """Clients leave whose requests run on their rank or on another one: these requests end, all others go on."""
    rounds = range(2 * ranks.num_ranks)
    leaving = [ranks.stream(i % ranks.num_ranks, f"away {i}", 3000) for i in rounds]
    staying = [ranks.stream(i % ranks.num_ranks, f"here {i}", 200) for i in rounds]
    for stream in leaving:
        stream.wait_blocks(2)
        stream.leave()
    assert all(stream.finish(60).done for stream in staying), [stream.tells() for stream in staying]
    for rank in range(ranks.num_ranks):
        ranks.check_pages(rank)


def continue_tokens(ranks, rank):
    """Returns the answers to eight prompts of random tokens, all at once: tokens and log-probabilities."""
    draw = random.Random(1)
    prompts = [[draw.randrange(10, 480) for _ in range(draw.randrange(5, 200))] for _ in range(8)]

    def ask(seed):
        sampling = {"max_new_tokens": 24, "ignore_eos": True, "temperature": seed % 2 * 0.8, "sampling_seed": seed}
        body = {"input_ids": prompts[seed], "return_logprob": True, "sampling_params": sampling}
        status, _, text = ranks.call(rank, "/generate", body)
        assert status == 200, text
        return json.loads(text)["output_ids"], json.loads(text)["meta_info"]["output_token_logprobs"]

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, range(len(prompts))))


@functools.cache
def tokens_of_one_rank(path):
    with OneRank({"--model-path": path}) as one:
        return continue_tokens(one, 0)


def mixed_layers(model, num_ranks, hosts=None, flags=None):
    """A model of two kinds of layers on several ranks; the second round finds its prompts in the prefix cache."""
    with Cluster(num_ranks, hosts, flags=model | (flags or {})) as ranks:
        ranks.wait_doors()
        for _ in range(2):
            for rank in range(num_ranks):
                assert continue_tokens(ranks, rank) == tokens_of_one_rank(model["--model-path"]), f"rank {rank} answers otherwise"
        for rank in range(num_ranks):
            ranks.check_pages(rank)
            assert flags != MOVING or ranks.metric(rank, "expert_layers_moved_total") > 0, "no experts moved"


def mixed_layers_on_hosts(model, num_ranks, flags=None):
    harness.need_hosts()
    with Hosts(num_ranks, "1gbit") as hosts:
        mixed_layers(model, num_ranks, hosts, flags)


def moving_on_hosts(num_ranks, flags):
    """Experts move between hosts while questions are answered."""
    harness.need_hosts()
    with Hosts(num_ranks, "1gbit") as hosts, Cluster(num_ranks, hosts, flags=MOVING | flags) as ranks:
        check_answers(ranks)
        check_aborts(ranks)
        moved = [ranks.metric(rank, "expert_layers_moved_total") for rank in range(num_ranks)]
        assert min(moved) > 0, "no experts moved"
        return f"{moved[0]:.0f} layers changed"


def on_one_machine(num_ranks, style, flags=None):
    with Cluster(num_ranks, style=style, flags=flags) as ranks:
        check_answers(ranks)
        check_aborts(ranks)
        return ranks.info(0)["network"]


def on_hosts(num_ranks, ranks_per_node=1, flags=None):
    harness.need_hosts()
    with Hosts(num_ranks // ranks_per_node, "1gbit") as hosts, Cluster(num_ranks, hosts, ranks_per_node, flags) as ranks:
        check_answers(ranks)
        check_aborts(ranks)
        return ranks.info(0)["network"]


CASES = (
    ("2 ranks, one machine, told by variables", lambda: on_one_machine(2, "variables")),
    ("3 ranks, one machine, told by flags", lambda: on_one_machine(3, "flags")),
    ("4 ranks, one machine, told by flags", lambda: on_one_machine(4, "flags")),
    ("4 ranks, one machine, overlapped steps", lambda: on_one_machine(4, "flags", OVERLAPPED)),
    ("2 ranks, 2 hosts", lambda: on_hosts(2)),
    ("2 ranks, one machine, over TLS", lambda: on_one_machine(2, "flags", {"--cluster-tls": "on"})),
    ("2 ranks, 2 hosts, without TLS", lambda: on_hosts(2, flags={"--cluster-tls": "off"})),
    ("2 ranks, 2 hosts, overlapped steps", lambda: on_hosts(2, flags=OVERLAPPED)),
    ("4 ranks, 4 hosts", lambda: on_hosts(4)),
    ("4 ranks, 2 hosts, 2 ranks a node", lambda: on_hosts(4, 2)),
    ("2 ranks, 2 hosts, experts move", lambda: moving_on_hosts(2, {})),
    ("4 ranks, 4 hosts, experts and replicas move, overlapped steps", lambda: moving_on_hosts(4, OVERLAPPED | {"--ep-num-redundant-experts": 4})),
    ("2 ranks, one machine, hybrid model", lambda: mixed_layers(HYBRID, 2)),
    ("2 ranks, 2 hosts, hybrid model", lambda: mixed_layers_on_hosts(HYBRID, 2)),
    ("4 ranks, 4 hosts, hybrid model", lambda: mixed_layers_on_hosts(HYBRID, 4)),
    ("2 ranks, 2 hosts, hybrid model, experts move", lambda: mixed_layers_on_hosts(HYBRID, 2, MOVING)),
    ("2 ranks, one machine, model with windows", lambda: mixed_layers(WINDOWED, 2)),
    ("2 ranks, 2 hosts, model with windows, overlapped steps", lambda: mixed_layers_on_hosts(WINDOWED, 2, OVERLAPPED)),
    ("4 ranks, 4 hosts, model with windows", lambda: mixed_layers_on_hosts(WINDOWED, 4)),
)

if __name__ == "__main__":
    sys.exit(not harness.run(CASES, harness.arguments(__doc__)))
