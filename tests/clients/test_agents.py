"""Traffic of coding agents: long system prompts, many tools, results of parallel calls, conversations side by side, and aborts."""

import concurrent.futures
import copy
import json
import pathlib
import random
import socket
import time

import pytest

from conftest import WEATHER_ANSWER, WEATHER_RESULT

pytestmark = pytest.mark.needs("tools")
TRAFFIC = pathlib.Path(__file__).resolve().parent / "traffic"


def recorded(name):
    return json.loads((TRAFFIC / f"{name}.json").read_text())


def send(server, request, body=None):
    status, headers, data = server.call(request["path"], json.dumps(body or request["body"]).encode(),
                                        {**request["headers"], "content-type": "application/json"})
    assert status == 200, data
    return headers, data


def events_of(data):
    """Returns the JSON of each event, and checks that the event's name is its type."""
    events = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), block
        events.append(json.loads(lines[1][6:]))
        assert events[-1]["type"] == lines[0][7:]
    return events


def blocks_of(events):
    """Returns the content blocks that a client of /v1/messages builds from a stream."""
    blocks = []
    for e in events:
        if e["type"] == "content_block_start":
            assert e["index"] == len(blocks)
            blocks.append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            kind, value = next((k, v) for k, v in e["delta"].items() if k != "type")
            key = "json" if kind == "partial_json" else kind
            blocks[e["index"]][key] += value
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks


def test_messages(server):
    request = recorded("messages_agent")
    headers, data = send(server, request)
    assert headers["Content-Type"].startswith("text/event-stream")
    events = events_of(data)
    assert [e["type"] for e in events][:1] == ["message_start"] and events[-1]["type"] == "message_stop"
    uses = [b for b in blocks_of(events) if b["type"] == "tool_use"]
    assert [(u["name"], u["input"]) for u in uses] == [("get_weather", {"city": "Paris"})]
    # The next turn holds the answer and the tool's result.
    body = copy.deepcopy(request["body"])
    body["messages"] += [{"role": "assistant", "content": blocks_of(events)},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": uses[0]["id"],
                                                       "content": [{"type": "text", "text": WEATHER_RESULT}]}]}]
    answer = events_of(send(server, request, body)[1])
    assert blocks_of(answer)[-1]["text"] == WEATHER_ANSWER
    assert answer[-2]["usage"]["cache_read_input_tokens"] > 200  # the tokens of the first turn come from the cache


def test_messages_are_counted_with_many_tools(server):
    count = json.loads(send(server, recorded("messages_count"))[1])["input_tokens"]
    few = recorded("messages_count")
    few["body"]["tools"] = few["body"]["tools"][-2:]
    assert count > json.loads(send(server, few)[1])["input_tokens"] + 500


def test_responses(server):
    request = recorded("responses_agent")
    events = events_of(send(server, request)[1])
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    output = events[-1]["response"]["output"]
    assert events[-1]["type"] == "response.completed"
    assert [i["item"] for i in events if i["type"] == "response.output_item.done"] == output
    calls = [i for i in output if i["type"] == "function_call"]
    assert [(c["name"], json.loads(c["arguments"])) for c in calls] == [("get_weather", {"city": "Paris"})]
    body = copy.deepcopy(request["body"])
    body["input"] += [*output, {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": WEATHER_RESULT}]
    final = events_of(send(server, request, body)[1])[-1]["response"]
    assert final["output"][-1]["content"][0]["text"] == WEATHER_ANSWER
    assert final["usage"]["input_tokens_details"]["cached_tokens"] > 200


def test_conversations_side_by_side_answer_as_alone(server):
    names = ["messages_agent", "responses_agent"] * 6
    together = []
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda name: events_of(send(server, recorded(name))[1]), names))
    for name, events in zip(names, together):
        alone = events_of(send(server, recorded(name))[1])
        if name == "messages_agent":
            def told(one): return [{k: v for k, v in b.items() if k != "id"} for b in blocks_of(one)]
        else:
            def told(one): return [i.get("arguments") or i.get("content") for i in one[-1]["response"]["output"]]
        assert told(events) == told(alone)


@pytest.mark.parametrize("name", ["messages_agent", "responses_agent"])
def test_a_user_who_presses_escape(server, name):
    """Connections are closed at random moments: no request goes on running, and the server serves others."""
    chance = random.Random(7)
    request = recorded(name)
    body = {**request["body"], "ignore_eos": True}
    body["max_tokens" if name == "messages_agent" else "max_output_tokens"] = 1500
    data = json.dumps(body).encode()
    head = f"POST {request['path']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    for _ in range(12):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            cut = chance.choice([len(data), len(data), len(data) // 2])
            s.sendall(head.encode() + data[:cut])
            time.sleep(chance.choice([0, 0.005, 0.05, 0.15]))
    server.wait_metric("num_running_reqs", 0)
    server.wait_metric("num_queue_reqs", 0)
    server.wait_metric("num_private_pages", 0)
    assert events_of(send(server, request)[1])
