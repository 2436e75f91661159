"""Conversations of 20 turns with models of each kind of layer: no turn depends on the prefix cache, and none is computed twice."""

import concurrent.futures
import json
import random

import pytest
from conftest import ROOT

TURNS, ANSWER, EDITED_TURN = 20, 28, 12
PAGE, BORDER = 32, 64  # tokens of a page, and between two states of delta nets
VOCABULARY = range(10, 480)
OPENS = 9  # opens an answer, so each prompt ends with it

# Model, the most tokens beside the new ones that a turn may compute, and flags.
KINDS = [
    ("qwen3_moe", PAGE, ()),  # full attention
    ("mimo_v2_flash", PAGE, ()),  # sliding windows
    ("gpt_oss_mxfp4", PAGE, ()),
    ("llama4", BORDER + PAGE, ()),  # layers with chunks: an answer that leaves its chunk gives up the page in which its prompt ended
    ("qwen3_5_moe", BORDER + PAGE, ()),  # delta nets
    ("kimi_linear", BORDER + PAGE, ()),
    ("deepseek_v3", PAGE, ("--mla-form", f"answers:{OPENS}")),  # latents
    ("deepseek_v3", ANSWER + PAGE, ()),  # no token opens an answer, so the last answer is computed again
]


def generate(server, ids, seed):
    sampling = {"max_new_tokens": ANSWER, "temperature": 0.7, "sampling_seed": seed, "ignore_eos": True}
    status, _, text = server.call("/generate", json.dumps({"input_ids": ids, "sampling_params": sampling}).encode())
    assert status == 200, text
    return json.loads(text)


def converse(server, seed):
    """Returns the answers of all turns, and how many old tokens each turn computed again. In one turn the end of the
    history is edited."""
    draw = random.Random(seed)
    history, answers, again = [], [], []
    for turn in range(TURNS):
        if turn == EDITED_TURN:
            del history[-40:]
        message = [draw.choice(VOCABULARY) for _ in range(draw.randrange(4, 22))] + [OPENS]
        history += message
        got = generate(server, history, 100 * seed + turn)
        answers.append(got["output_ids"])
        usage = got["meta_info"]
        again.append(usage["prompt_tokens"] - usage["cached_tokens"] - len(message))
        history += [token if token < VOCABULARY.stop else VOCABULARY.start for token in got["output_ids"]]
    return answers, again


def converse_at_once(server):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda seed: converse(server, seed), (1, 2, 3)))


def test_latents_keep_answers_if_prompts_are_absorbed(start):
    model = ROOT / "tests" / "golden" / "glm4_moe_lite"
    flags = ("--context-length", "1024", "--max-total-tokens", "8192")
    by_default, absorbed = start(*flags, model=model), start(*flags, "--mla-form", "absorbed", model=model)
    note = "note: --mla-form auto: the prefix cache keeps no answers"
    assert note in by_default.log_path.read_text() and note not in absorbed.log_path.read_text()
    assert json.loads(absorbed.get("/get_server_info")[2])["notes"] == []
    _, again = converse(by_default, 1)
    assert ANSWER <= max(again) <= ANSWER + PAGE
    assert max(converse(absorbed, 1)[1]) <= PAGE


def test_tokens_that_are_computed_again_are_told(start):
    server = start("--context-length", "1024", model=ROOT / "tests" / "golden" / "qwen3_5_moe")
    ids = list(range(10, 210))
    assert "recomputed_tokens" not in generate(server, ids, 1)["meta_info"]
    # The first 100 tokens are cached, but no state among them; from then on there is one behind 64 of them.
    branches = [generate(server, ids[:100] + [other] * 60, 2)["meta_info"] for other in (300, 301)]
    assert [(meta["cached_tokens"], meta["recomputed_tokens"]) for meta in branches] == [(0, 100), (64, 36)]
    assert server.metric("recomputed_tokens_total") == 136


@pytest.mark.parametrize("model, most, form", KINDS, ids=[" ".join([model, *form]) for model, _, form in KINDS])
def test_twenty_turns(start, model, most, form):
    folder = ROOT / "tests" / "golden" / model
    flags = ("--context-length", "1024", "--max-total-tokens", "8192", *form)
    cached = converse_at_once(start(*flags, model=folder))
    computed = converse_at_once(start(*flags, "--disable-radix-cache", model=folder))
    assert [answers for answers, _ in cached] == [answers for answers, _ in computed]
    for _, again in cached:
        print(f"{model}: {max(again)} tokens of a turn were computed again, at most")
        assert max(again) <= most
