"""Forced tool calls for a question that needs no tool, through the clients of OpenAI, Anthropic and LangChain."""

import json

import anthropic
import jsonschema
import pytest

from conftest import MODEL_NAME, SUM

pytestmark = pytest.mark.needs("calls on demand")
# Values are bounded, and there are no other properties: a small model that is forced to call may write a value without end (111111...).
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
MINUTES = {"type": "object", "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 600}}, "required": ["minutes"],
           "additionalProperties": False}
SCHEMAS = {"get_weather": CITY, "set_timer": MINUTES}
CHAT_TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
FUNCTION_TOOLS = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]


def check(name, arguments):
    """Checks a tool's name, and its arguments against its schema."""
    assert name in SCHEMAS
    jsonschema.validate(arguments, SCHEMAS[name])


def ask(client, choice, **options):
    """Asks a question that needs no tool."""
    return client.chat.completions.create(model=MODEL_NAME, messages=[{"role": "user", "content": SUM}], tools=CHAT_TOOLS, tool_choice=choice,
                                          max_tokens=300, **options)


@pytest.mark.parametrize("temperature", [0, 1])
def test_chat_required(client, temperature):
    answer = ask(client, "required", temperature=temperature, seed=5).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.tool_calls
    for call in answer.message.tool_calls:
        check(call.function.name, json.loads(call.function.arguments))


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_chat_named(client, name):
    answer = ask(client, {"type": "function", "function": {"name": name}}, temperature=1, seed=6).choices[0]
    (call,) = answer.message.tool_calls
    assert call.function.name == name
    check(name, json.loads(call.function.arguments))


def test_chat_stream(client):
    with client.chat.completions.stream(model=MODEL_NAME, messages=[{"role": "user", "content": SUM}], tools=CHAT_TOOLS, tool_choice="required",
                                        parallel_tool_calls=False, temperature=0, max_tokens=300) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    check(call.function.name, json.loads(call.function.arguments))


@pytest.mark.parametrize("choice, names", [("required", set(SCHEMAS)), ({"type": "function", "name": "set_timer"}, {"set_timer"})])
def test_responses(client, choice, names):
    answer = client.responses.create(model=MODEL_NAME, input=SUM, tools=FUNCTION_TOOLS, tool_choice=choice, temperature=0, max_output_tokens=300)
    calls = [item for item in answer.output if item.type == "function_call"]
    assert answer.status == "completed" and calls and {c.name for c in calls} <= names
    for call in calls:
        check(call.name, json.loads(call.arguments))


@pytest.mark.parametrize("choice, names", [({"type": "any"}, set(SCHEMAS)), ({"type": "tool", "name": "set_timer"}, {"set_timer"})])
def test_messages(server, choice, names):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
    tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    answer = claude.messages.create(model=MODEL_NAME, max_tokens=300, tools=tools, tool_choice=choice, messages=[{"role": "user", "content": SUM}],
                                    extra_body={"temperature": 0})
    uses = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and uses and {u.name for u in uses} <= names
    for use in uses:
        check(use.name, use.input)


@pytest.mark.parametrize("responses", [False, True])
def test_langchain_structured_output(server, responses):
    """LangChain forces a named tool, and reads the object from its arguments."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL_NAME, base_url=server.url + "/v1", api_key="none", temperature=0, max_retries=0, max_tokens=300,
                       use_responses_api=responses)
    shape = {"title": "Timer", "description": "A timer.", **MINUTES}
    made = model.with_structured_output(shape, method="function_calling").invoke(SUM)
    jsonschema.validate(made, MINUTES)
