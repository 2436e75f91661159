"""OpenAI's Python client: the Responses API, tools in both its APIs, and errors as it reports them."""

import concurrent.futures
import json
import time

import openai
import pydantic
import pytest

from conftest import CHAT_TOOLS, MODEL_NAME, STORY, SUM, TOOLS, WEATHER, WEATHER_ANSWER, WEATHER_RESULT

FUNCTION_TOOLS = [{"type": "function", "name": n, "description": d, "parameters": p, "strict": False} for n, d, p in TOOLS]


def respond(client, question=SUM, **options):
    options.setdefault("temperature", 0)
    return client.responses.create(model=MODEL_NAME, input=question, **options)


def test_response(client):
    answer = respond(client, metadata={"a": "b"})
    assert answer.output_text == "42"
    assert answer.status == "completed" and answer.object == "response"
    assert answer.id.startswith("resp_") and answer.metadata == {"a": "b"}
    assert answer.usage.input_tokens == 18 and answer.usage.output_tokens == 3
    assert [item.type for item in answer.output] == ["message"]


def test_response_stream(client):
    whole = respond(client, STORY, max_output_tokens=60)
    with client.responses.stream(model=MODEL_NAME, input=STORY, temperature=0, max_output_tokens=60) as stream:
        events = list(stream)
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
        done = [e for e in events if e.type == "response.output_text.done"]
        assert [e.text for e in done] == [whole.output_text]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(model=MODEL_NAME, input=SUM, temperature=0) as stream:
        final = stream.get_final_response()
    assert final.output_text == "42" and final.usage.output_tokens == 3


def test_conversation_by_its_last_response(client):
    first = respond(client, "My name is Ana.")
    second = respond(client, "What is my name?", previous_response_id=first.id)
    assert second.output_text == "Your name is Ana."
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [i.role for i in items] == ["user", "assistant", "user"]
    assert client.responses.retrieve(second.id).output_text == second.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert "Ana" in respond(client, "What is my name?", previous_response_id=second.id).output_text


def test_conversation_by_its_items(client):
    answer = respond(client, [
        {"role": "user", "content": "My name is Ana."},
        {"role": "assistant", "content": "Nice to meet you, Ana!"},
        {"role": "user", "content": [{"type": "input_text", "text": "What is my name?"}]}], store=False)
    assert answer.output_text == "Your name is Ana."
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


@pytest.mark.needs("tools")
def test_response_calls_a_tool(client):
    first = respond(client, WEATHER, tools=FUNCTION_TOOLS)
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    result = [{"type": "function_call_output", "call_id": call.call_id, "output": WEATHER_RESULT}]
    second = respond(client, result, previous_response_id=first.id, tools=FUNCTION_TOOLS)
    assert second.output_text == WEATHER_ANSWER
    # The answer is the same if all items are sent again.
    items = [{"role": "user", "content": WEATHER}, *[i.model_dump() for i in first.output], *result]
    assert respond(client, items, tools=FUNCTION_TOOLS, store=False).output_text == WEATHER_ANSWER


@pytest.mark.needs("tools")
def test_response_streams_a_call(client):
    with client.responses.stream(model=MODEL_NAME, input=WEATHER, tools=FUNCTION_TOOLS, temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert json.loads(arguments) == {"city": "Paris"}
    assert [i.type for i in final.output] == ["function_call"] and final.output[0].arguments == arguments


def test_background(client):
    running = respond(client, STORY, background=True, max_output_tokens=40)
    assert running.status in ("queued", "in_progress")
    deadline = time.monotonic() + 20
    while running.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        running = client.responses.retrieve(running.id)
    assert running.output_text
    endless = respond(client, STORY, background=True, max_output_tokens=3000, extra_body={"ignore_eos": True})
    assert client.responses.cancel(endless.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(respond(client).id)


class Capital(pydantic.BaseModel):
    city: str
    population: int


@pytest.mark.needs("grammar")
def test_structured_output(client):
    question = "Answer in JSON with city and population: what is the capital of France?"
    chat = client.chat.completions.parse(model=MODEL_NAME, messages=[{"role": "user", "content": question}],
                                         response_format=Capital, temperature=0, max_tokens=200)
    assert isinstance(chat.choices[0].message.parsed, Capital)
    answer = client.responses.parse(model=MODEL_NAME, input=question, text_format=Capital, temperature=0,
                                    max_output_tokens=200)
    assert isinstance(answer.output_parsed, Capital)


@pytest.mark.needs("thoughts")
def test_thoughts_are_items_of_their_own(client):
    answer = respond(client, SUM, extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    kinds = [i.type for i in answer.output]
    assert kinds == ["reasoning", "message"], answer.output
    assert "<think>" not in answer.output_text and "42" in answer.output_text
    assert answer.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.needs("tools")
def test_chat_calls_a_tool(client):
    messages = [{"role": "user", "content": WEATHER}]
    first = client.chat.completions.create(model=MODEL_NAME, messages=messages, tools=CHAT_TOOLS, temperature=0)
    call = first.choices[0].message.tool_calls[0]
    assert first.choices[0].finish_reason == "tool_calls"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}]
    second = client.chat.completions.create(model=MODEL_NAME, messages=messages, tools=CHAT_TOOLS, temperature=0)
    assert second.choices[0].message.content == WEATHER_ANSWER


@pytest.mark.needs("tools")
def test_chat_stream_accumulates_a_call(client):
    with client.chat.completions.stream(model=MODEL_NAME, messages=[{"role": "user", "content": WEATHER}],
                                        tools=CHAT_TOOLS, temperature=0) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}


@pytest.mark.parametrize("fields,param", [
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 9}, "temperature"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"truncation": "auto"}, "truncation"),
    ({"extra_body": {"max_tokens": 5}}, "max_tokens"),
])
def test_bad_responses_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL_NAME, input=SUM, **fields)
    assert caught.value.param == param


def test_input_is_counted(client):
    assert client.responses.input_tokens.count(model=MODEL_NAME, input=SUM).input_tokens == 18


def test_async_client_and_many_streams(server):
    import asyncio

    async def one(client, i):
        stream = await client.responses.create(model=MODEL_NAME, input=f"What is {i} + 5?", temperature=0, stream=True)
        return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*[one(client, i) for i in range(16)])

    together = asyncio.run(all_of_them())
    client = server.client()
    assert together == [respond(client, f"What is {i} + 5?").output_text for i in range(16)]


def test_a_closed_stream_frees_its_pages(client, server):
    stream = client.responses.create(model=MODEL_NAME, input=STORY, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    server.wait_metric("num_running_reqs", 0)
    server.wait_metric("num_private_pages", 0)


def test_keys(start):
    guarded = start("--api-key", "secret")
    assert respond(guarded.client(api_key="secret")).output_text == "42"
    with pytest.raises(openai.AuthenticationError):
        respond(guarded.client(api_key="wrong"))


def test_other_apis_share_the_prefix_cache(client):
    question = "Remember the word lantern. " * 30
    client.chat.completions.create(model=MODEL_NAME, messages=[{"role": "user", "content": question}], max_tokens=2)
    assert respond(client, question, max_output_tokens=2).usage.input_tokens_details.cached_tokens > 50


def test_threads(client):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda i: respond(client, f"What is {i} + 1?", store=i % 2 == 0).output_text, range(24)))
    assert texts[:4] == ["1", "2", "3", "4"]
