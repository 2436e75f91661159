"""Clients come back to a stream: what they get is the rest, and nothing twice."""

import json
import re

CHAT = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 48, "temperature": 0.8, "seed": 3, "ignore_eos": True, "stream": True}
IDS = {"X-Hocket-Event-Ids": "true", "Content-Type": "application/json"}


def events(stream):
    return [event for event in stream.decode().split("\n\n") if event]


def without_times(event):
    return re.sub(r'"timings":\{[^}]*\}|"cached_tokens":\d+|,"cached_tokens_details":\{[^}]*\}|"completed_at":\d+', "", event)


def test_openai_client_reads_a_response_on(client):
    begun, had = client.responses.create(model="tiny", input="Once upon a time", max_output_tokens=48, stream=True), []
    for event in begun:
        had.append(event)
        if len(had) == 12:
            break
    begun.response.close()
    id = had[0].response.id
    rest = list(client.responses.retrieve(id, stream=True, starting_after=had[-1].sequence_number))
    assert [event.sequence_number for event in had + rest] == list(range(len(had + rest)))
    assert rest[-1].type in ("response.completed", "response.incomplete")
    deltas = "".join(event.delta for event in had + rest if event.type == "response.output_text.delta")
    assert deltas == rest[-1].response.output_text
    assert client.responses.retrieve(id).output_text == deltas  # it is kept as if it had never been cut


def test_chat_goes_on_from_each_event(server):
    status, _, whole = server.call("/v1/chat/completions", json.dumps(CHAT).encode(), IDS)
    assert status == 200
    all_events = events(whole)
    ids = [event.split("\nid: ")[1] for event in all_events[:-1]]
    assert all_events[-1] == "data: [DONE]" and len(ids) > 20
    answer = ids[0].rsplit(":")[0]
    assert ids == [f"{answer}:{i}" for i in range(len(ids))]
    for i in (0, 7, len(ids) - 2, len(ids) - 1):
        status, _, rest = server.get(f"/v1/streams/{answer}", headers={"Last-Event-ID": ids[i]})
        assert status == 200
        assert list(map(without_times, events(rest))) == list(map(without_times, all_events[i + 1 :]))
        status, _, rest = server.call("/v1/chat/completions", b"", {"Last-Event-ID": ids[i]})
        assert status == 200 and len(events(rest)) == len(all_events) - i - 1


def test_a_stream_without_ids_is_counted(server):
    status, _, whole = server.call("/v1/chat/completions", json.dumps(CHAT).encode())
    assert status == 200 and b"id: " not in whole
    answer = json.loads(events(whole)[0][6:])["id"]
    _, _, rest = server.get(f"/v1/streams/{answer}?starting_after=9")
    assert list(map(without_times, events(rest))) == list(map(without_times, events(whole)[10:]))


def test_wrong_places_are_refused(server):
    status, _, whole = server.call("/v1/chat/completions", json.dumps(CHAT).encode(), IDS)
    answer = json.loads(events(whole)[0].split("\n")[0][6:])["id"]
    for place in ("", ":", f"{answer}:", f"{answer}:x", f"{answer}:1,1", "other:3", ":" * 9000, f"{answer}:{'9' * 400}"):
        status, _, body = server.get(f"/v1/streams/{answer}", headers={"Last-Event-ID": place or " :"})
        assert status == 400 and json.loads(body)["error"]["param"] == "Last-Event-ID", (place, body)
    for after in ("-1", "x", "1e3", "9" * 400):
        status, _, body = server.get(f"/v1/streams/{answer}?starting_after={after}")
        assert status == 400 and json.loads(body)["error"]["param"] == "starting_after", after
    for unknown in ("/v1/streams/chatcmpl-0", "/v1/streams/" + "a" * 5000, "/v1/responses/resp_0?stream=true"):
        status, _, body = server.get(unknown)
        assert status == 404 and "there is no stream" in json.loads(body)["error"]["message"]
    for path in ("keep", "news", "take"):
        assert server.call(f"/ranks/streams/{path}", b"{}")[0] == 404


def test_another_key_gets_none(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann ann-key\nbob bob-key\n")
    server = start("--api-key-file", str(keys))
    status, _, whole = server.call("/v1/chat/completions", json.dumps(CHAT).encode(), IDS | {"x-api-key": "ann-key"})
    assert status == 200
    path = "/v1/streams/" + json.loads(events(whole)[0].split("\n")[0][6:])["id"]
    assert server.get(path, headers={"x-api-key": "bob-key"})[0] == 404
    assert server.get(path)[0] == 401
    status, _, again = server.get(path, headers={"x-api-key": "ann-key"})
    assert status == 200 and len(events(again)) == len(events(whole))
