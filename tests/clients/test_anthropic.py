"""Anthropic's Python client: messages, streams, tools, reasoning, counting, and errors as it reports them."""

import anthropic
import pytest

from conftest import MODEL_NAME, STORY, SUM, TOOLS, WEATHER, WEATHER_ANSWER, WEATHER_RESULT

TOOL_LIST = [{"name": n, "description": d, "input_schema": p} for n, d, p in TOOLS]


@pytest.fixture
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


def ask(client, question=SUM, **options):
    options.setdefault("max_tokens", 400)
    options["extra_body"] = {"temperature": 0, **options.get("extra_body", {})}  # the client has no field for it
    messages = question if isinstance(question, list) else [{"role": "user", "content": question}]
    return client.messages.create(model=MODEL_NAME, messages=messages, **options)


def test_message(claude):
    answer = ask(claude)
    assert [b.type for b in answer.content] == ["text"] and answer.content[0].text == "42"
    assert answer.stop_reason == "end_turn" and answer.stop_sequence is None
    assert answer.role == "assistant" and answer.id.startswith("msg_")
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == 18
    assert answer.usage.output_tokens == 3


def test_stream(claude):
    whole = ask(claude, STORY, max_tokens=60)
    with claude.messages.stream(model=MODEL_NAME, max_tokens=60, extra_body={"temperature": 0},
                                messages=[{"role": "user", "content": STORY}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 60
    events = [e.type for e in ask(claude, stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]


def test_system_and_stop_sequences(claude):
    assert ask(claude, "What is the capital of France?", system="Answer in one word.").content[0].text.strip(".") == "Paris"
    system = [{"type": "text", "text": "Answer in one word.", "cache_control": {"type": "ephemeral"}}]
    assert ask(claude, "What is the capital of France?", system=system).content[0].text.strip(".") == "Paris"
    whole = ask(claude, STORY, max_tokens=60).content[0].text
    stopped = ask(claude, STORY, max_tokens=60, stop_sequences=[whole[20:27]])
    assert stopped.content[0].text == whole[:whole.index(whole[20:27])]
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", whole[20:27])


@pytest.mark.needs("tools")
def test_tool_use(claude):
    first = ask(claude, WEATHER, tools=TOOL_LIST)
    assert first.stop_reason == "tool_use"
    use = next(b for b in first.content if b.type == "tool_use")
    assert (use.name, use.input) == ("get_weather", {"city": "Paris"})
    second = ask(claude, [{"role": "user", "content": WEATHER}, {"role": "assistant", "content": first.content},
                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                        "content": WEATHER_RESULT}]}], tools=TOOL_LIST)
    assert second.content[0].text == WEATHER_ANSWER


@pytest.mark.needs("tools")
def test_tool_use_streams(claude):
    with claude.messages.stream(model=MODEL_NAME, max_tokens=400, extra_body={"temperature": 0}, tools=TOOL_LIST,
                                messages=[{"role": "user", "content": WEATHER}]) as stream:
        pieces = [e.partial_json for e in stream if e.type == "input_json"]
        final = stream.get_final_message()
    assert "".join(pieces)
    assert final.content[-1].input == {"city": "Paris"} and final.stop_reason == "tool_use"


def test_tool_choice_none(claude):
    answer = ask(claude, tools=TOOL_LIST, tool_choice={"type": "none"})
    assert answer.content[0].text == "42"


@pytest.mark.needs("thoughts")
def test_thinking(claude):
    answer = ask(claude, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert [b.type for b in answer.content] == ["thinking", "text"]
    assert "42" in answer.content[1].text and answer.content[0].thinking
    again = ask(claude, [{"role": "user", "content": SUM}, {"role": "assistant", "content": answer.content},
                         {"role": "user", "content": "What is 2 + 2?"}], thinking={"type": "disabled"})
    assert "4" in again.content[-1].text


@pytest.mark.needs("tools")
def test_count_tokens(claude):
    messages = [{"role": "user", "content": SUM}]
    assert claude.messages.count_tokens(model=MODEL_NAME, messages=messages).input_tokens == 18
    more = claude.messages.count_tokens(model=MODEL_NAME, messages=messages, tools=TOOL_LIST, system="Be brief.")
    assert more.input_tokens > 18


def test_prefill_goes_on(claude):
    messages = [{"role": "user", "content": SUM}, {"role": "assistant", "content": "4"}]
    assert ask(claude, messages).content[0].text == "2"


def test_errors(claude, start):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, extra_body={"temperature": 9})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.body["error"]["param"] == "temperature"
    with pytest.raises(anthropic.BadRequestError):
        ask(claude, max_tokens=4090)
    with pytest.raises(anthropic.BadRequestError):
        ask(claude, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    guarded = start("--api-key", "secret")
    with pytest.raises(anthropic.AuthenticationError):
        ask(anthropic.Anthropic(base_url=guarded.url, api_key="wrong", max_retries=0))
    assert ask(anthropic.Anthropic(base_url=guarded.url, api_key="secret")).content[0].text == "42"


def test_a_closed_stream_frees_its_pages(claude, server):
    with claude.messages.stream(model=MODEL_NAME, max_tokens=3000, messages=[{"role": "user", "content": STORY}],
                                extra_body={"ignore_eos": True}) as stream:
        next(iter(stream.text_stream))
    server.wait_metric("num_running_reqs", 0)
    server.wait_metric("num_private_pages", 0)
