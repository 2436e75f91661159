"""SGLang's expert distribution record, requested as scripts that place experts do."""

import json

import pytest
from conftest import MODEL

LAYERS, EXPERTS, TOP_K = "num_hidden_layers", "num_experts", "num_experts_per_tok"


def post(server, name, body=b""):
    status, _, data = server.call(f"/{name}_expert_distribution_record", body)
    return status, json.loads(data)


def generate(server, text, max_new_tokens):
    body = {"text": text, "sampling_params": {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}}
    status, _, data = server.call("/generate", json.dumps(body).encode())
    assert status == 200, data
    return json.loads(data)["meta_info"]


def rows_of(meta):
    return meta["prompt_tokens"] - meta["cached_tokens"] + meta["completion_tokens"] - 1


@pytest.fixture(scope="module")
def config():
    return json.loads((MODEL / "config.json").read_text())


def check(record, rows, config):
    """Checks that every row chose k different experts in every layer."""
    counts = record["logical_count"]
    assert record["num_tokens"] == rows
    assert len(counts) == config[LAYERS] and all(len(layer) == config[EXPERTS] for layer in counts)
    assert all(sum(layer) == rows * config[TOP_K] for layer in counts)
    assert all(0 <= count <= rows for layer in counts for count in layer)


def test_start_stop_dump(start, config):
    server = start("--overlap-schedule", "off")
    generate(server, "Before anybody asked", 4)
    assert post(server, "start") == (200, {"recording": True})
    rows = sum(rows_of(generate(server, text, 9)) for text in ("Once upon a time", "17 + 25 ="))
    assert post(server, "stop") == (200, {"recording": False})
    generate(server, "After it was stopped", 4)
    status, record = post(server, "dump")
    assert status == 200
    check(record, rows, config)
    assert record["mode"] == "stat" and record["num_steps"] == 2 * 9 and not record["recording"]
    assert record["expert_rank"] == [0] * config[EXPERTS]
    assert record["average_utilization_rate_over_window"] == 1
    for layer, evenness in zip(record["logical_count"], record["layer_balancedness"]["experts"]):
        assert evenness == pytest.approx(sum(layer) / len(layer) / max(layer))
    # The counter keeps its value, for rates. The gauge belongs to the record, which is gone once it was fetched.
    assert server.metric("expert_tokens_total") == rows * config[TOP_K] * config[LAYERS]
    assert server.metric("expert_balancedness") == 0
    assert server.stop() == 0


def test_a_record_that_is_not_stopped_goes_on(start, config):
    server = start("--overlap-schedule", "off")
    assert post(server, "start", b'{"mode": "per_pass", "buffer_size": 4}')[0] == 200
    for text in ("One", "Two and three"):
        meta = generate(server, text, 6)
        status, record = post(server, "dump", b"{}")
        assert status == 200 and record["recording"] and record["mode"] == "per_pass"
        check(record, rows_of(meta), config)
        assert record["num_steps"] == 6 and len(record["records"]) == 4  # the newest
        for one in record["records"]:
            check(one, 1, config)
        assert [one["forward_pass_id"] for one in record["records"]] == [2, 3, 4, 5]
    assert server.stop() == 0


def test_two_ranks_add_up_to_one(start):
    texts = [f"{i} is the first of many" for i in range(6)]
    records = []
    for flags in ((), ("--ep-size", "2", "--dp-routing", "round-robin")):
        server = start("--overlap-schedule", "off", "--disable-radix-cache", *flags)
        assert post(server, "start")[0] == 200
        for text in texts:
            generate(server, text, 5)
        assert post(server, "stop")[0] == 200
        records.append(post(server, "dump")[1])
        assert server.stop() == 0
    one, two = records
    assert two["logical_count"] == one["logical_count"] and two["num_tokens"] == one["num_tokens"]
    assert two["expert_rank"] == [0] * 8 + [1] * 8
    loads = [(sum(layer[:8]), sum(layer[8:])) for layer in two["logical_count"]]
    evenness = [sum(load) / 2 / max(load) for load in loads]
    assert two["layer_balancedness"]["ranks"] == pytest.approx(evenness)
    assert two["average_utilization_rate_over_window"] == pytest.approx(sum(evenness) / len(evenness))


def test_clear_errors(server):
    def refused(name, body=b""):
        status, answer = post(server, name, body)
        assert status == 400, answer
        return answer["error"]["message"], answer["error"]["hint"], answer["error"]["param"]

    message, hint, _ = refused("stop")
    assert message == "nothing is being recorded" and "/start_expert_distribution_record" in hint
    message, hint, _ = refused("dump")
    assert "no record" in message and "/start_expert_distribution_record" in hint
    assert refused("start", b'{"mode": "per_token"}')[0] == "mode is 'per_token', must be stat or per_pass"
    assert refused("start", b'{"mode": "per_pass", "buffer_size": 9999999}')[2] == "buffer_size"
    assert refused("start", b'{"buffer_size": 5}')[2] == "buffer_size"
    assert "mode" in refused("start", b'{"mod": "stat"}')[1]
    refused("start", b"stat")
    assert server.call("/start_expert_distribution_recor", b"")[0] == 404
