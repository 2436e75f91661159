"""Drafts, tested from outside: they change no answer, and the server says what they gained."""

import json

import pytest

TEXT = "the fox and the lantern, the fox and the lantern, the fox and the"


def generate(server, seed):
    body = {"text": TEXT, "return_logprob": True,
            "sampling_params": {"max_new_tokens": 96, "temperature": 0.7, "sampling_seed": seed, "ignore_eos": True}}
    status, _, data = server.call("/generate", json.dumps(body).encode())
    assert status == 200, data
    answer = json.loads(data)
    return answer["output_ids"], answer["meta_info"]["output_token_logprobs"], answer["meta_info"]


def same_answer(server, other, seed):
    """Asks both servers the same and returns the first one's meta_info."""
    ids, logprobs, meta = generate(server, seed)
    assert (ids, logprobs) == generate(other, seed)[:2]
    return meta


def speculation(server):
    return json.loads(server.get("/speculation")[2])


@pytest.mark.parametrize("flags", [[], ["--speculative-num-steps", "3"]], ids=["chosen", "fixed"])
def test_answers_are_those_without_drafts(server, start, flags):
    drafting = start("--speculative-algorithm", "NGRAM", *flags, "--decode-log-interval", "4")
    metas = [same_answer(drafting, server, seed) for seed in range(6)]
    assert sum(meta["spec_verify_ct"] for meta in metas) == drafting.metric("spec_verified_total")
    assert "spec_verify_ct" not in generate(server, 0)[2]
    told = speculation(drafting)
    assert told["algorithm"] == "NGRAM"
    (rank,) = told["ranks"]
    assert rank["fixed"] == bool(flags)
    assert rank["steps"] > 0
    if flags:
        assert 0 < rank["accepted"] < rank["drafts"]
        assert drafting.metric("spec_drafts_total") == rank["drafts"]
        assert drafting.metric("spec_accepted_total") == rank["accepted"]
        assert drafting.metric("spec_accept_length") == pytest.approx(1 + drafting.metric("spec_accepted_total") / drafting.metric("spec_verified_total"))
        held = sum(meta["spec_verify_ct"] * (meta["spec_accept_length"] - 1) for meta in metas)
        assert held == pytest.approx(drafting.metric("spec_accepted_total"))
        assert all(0 <= meta["spec_accept_rate"] <= 1 for meta in metas)
        (state,) = json.loads(drafting.get("/get_server_info")[2])["internal_states"]
        assert state["avg_spec_accept_length"] == pytest.approx(drafting.metric("spec_accept_length"))
        assert "accept len: " in drafting.log_path.read_text()
        # Drafts that were accepted took no step of their own.
        assert rank["steps"] < 6 * 96
    else:
        assert any(size["text"] for size in rank["sizes"])
    assert drafting.stop() == 0


def chat(server, body):
    body = {"model": "hocket", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 64, "temperature": 0.8,
            "seed": 5, "n": 3, "logprobs": True, **body}
    status, _, data = server.call("/v1/chat/completions", json.dumps(body).encode())
    assert status == 200, data
    answer = json.loads(data)
    return answer["choices"], answer["usage"]["completion_tokens"]


def test_ends_in_the_middle_of_drafts(server, start):
    """Stop strings, several choices and structure end answers where they end without drafts."""
    drafting = start("--speculative-algorithm", "NGRAM", "--speculative-num-steps", "6")
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 20}, "b": {"type": "integer"}},
              "required": ["a", "b"], "additionalProperties": False}
    for body in ({}, {"stop": [" the"]}, {"stop": ["e", "nothing"]}, {"max_tokens": 7}, {"min_tokens": 20, "stop": ["a"]},
                 {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
                 {"regex": "(the fox and the lantern, ){3}", "stop": ["lantern, the fox and"]}):
        assert chat(drafting, body) == chat(server, body), body
    assert drafting.metric("spec_accepted_total") > 0
    assert drafting.stop() == 0


def test_a_prediction_is_drafted_and_changes_no_answer(server, start):
    drafting = start("--speculative-algorithm", "NGRAM", "--speculative-num-steps", "4")
    body = {"messages": [{"role": "user", "content": "Tell me a story about a fox and a lantern."}], "max_tokens": 96,
            "temperature": 0.7, "seed": 3}

    def ask(of, **more):
        status, _, data = of.call("/v1/chat/completions", json.dumps({**body, **more}).encode())
        assert status == 200, data
        answer = json.loads(data)
        return answer["choices"], answer["usage"].get("completion_tokens_details", {})

    choices, details = ask(server)
    assert "accepted_prediction_tokens" not in details
    text = choices[0]["message"]["content"]
    edited = text.replace("the", "some")
    accepted = {}
    for content in (text, [{"type": "text", "text": edited}], ""):
        prediction = {"type": "content", "content": content}
        told, details = ask(drafting, prediction=prediction)
        assert told == choices
        accepted[str(content)] = details["accepted_prediction_tokens"]
        assert details["rejected_prediction_tokens"] >= 0
        # Without drafts it has no effect.
        told, details = ask(server, prediction=prediction)
        assert told == choices
        assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0
    assert accepted[text] > 48
    assert accepted[""] == 0
    assert drafting.stop() == 0


def story(server, **sampling):
    body = {"messages": [{"role": "user", "content": "Tell me a story about a fox and a lantern."}], "max_tokens": 160, "logprobs": True, **sampling}
    status, _, data = server.call("/v1/chat/completions", json.dumps(body).encode())
    assert status == 200, data
    return json.loads(data)["choices"][0]["logprobs"]["content"]


@pytest.mark.parametrize("num_drafts", [1, 3])
def test_the_bundled_models_own_drafts_hold_and_change_no_answer(server, start, num_drafts):
    drafting = start("--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(num_drafts))
    for sampling in ({"temperature": 0}, {"temperature": 0.7, "seed": 3}):
        assert story(drafting, **sampling) == story(server, **sampling)
    told = speculation(drafting)
    assert told["algorithm"] == "NEXTN"
    (rank,) = told["ranks"]
    assert rank["accepted"] > 0.4 * rank["drafts"] > 0
    assert drafting.metric("spec_accept_length") > 1.4
    assert drafting.stop() == 0


def test_a_server_without_drafts_says_so(server):
    assert speculation(server) == {"algorithm": "none", "max_drafts": 0, "most_drafts": 0, "gained_seconds": 0, "ranks": []}
    assert server.metric("spec_accept_length") == 0
