"""Tools and reasoning through the official client: the bundled model calls a tool, gets the result, and answers."""

import json

import pytest

MODEL_NAME = "hocket-tiny-qwen3-moe"


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


# The model was trained on tools of this form.
CITY = {"type": "string", "description": "The name of the city."}
WEATHER = tool("get_weather", "Get the weather for a city.", city=CITY)
TIMER = tool("set_timer", "Set a timer.", minutes={"type": "integer"})
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(client, messages=QUESTION, **options):
    options.setdefault("tools", [WEATHER, TIMER])
    return client.chat.completions.create(model=MODEL_NAME, messages=messages, temperature=0, **options)


def test_a_call_and_what_came_of_it(client):
    choice = ask(client).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages = QUESTION + [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21, "sky": "sunny"}'},
    ]
    answer = ask(client, messages).choices[0]
    assert answer.finish_reason == "stop"
    assert "21" in answer.message.content


def test_a_stream_of_a_call(client):
    name, ids, pieces, reasons = "", [], [], []
    for chunk in ask(client, stream=True):
        for choice in chunk.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            for part in choice.delta.tool_calls or []:
                assert part.index == 0
                ids += [part.id] if part.id else []
                name += part.function.name or ""
                pieces += [part.function.arguments] if part.function.arguments else []
    assert name == "get_weather" and len(ids) == 1 and reasons == ["tool_calls"]
    assert len(pieces) > 1, "arguments come as they are written"
    assert json.loads("".join(pieces)) == {"city": "Paris"}


def test_the_clients_own_accumulator(client):
    with client.chat.completions.stream(
        model=MODEL_NAME, messages=QUESTION, tools=[WEATHER, TIMER], temperature=0
    ) as stream:
        final = stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_choice_none_leaves_tools_out(client):
    with_tools, without = ask(client, tool_choice="none"), ask(client, tools=[])
    assert with_tools.usage.prompt_tokens == without.usage.prompt_tokens
    assert with_tools.choices[0].message.tool_calls is None


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning(client, stream):
    kwargs = {"chat_template_kwargs": {"enable_thinking": True}}
    question = [{"role": "user", "content": "What is 38 + 45?"}]
    answer = ask(client, question, tools=[], stream=stream, extra_body=kwargs)
    if stream:
        deltas = [choice.delta for chunk in answer for choice in chunk.choices]
        thoughts = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
        content = "".join(d.content or "" for d in deltas)
    else:
        thoughts, content = answer.choices[0].message.reasoning_content, answer.choices[0].message.content
        assert 20 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens
    assert thoughts == "30 + 40 = 70. 8 + 5 = 13. 70 + 13 = 83."
    assert content == "83"


def test_without_reasoning(client):
    question = [{"role": "user", "content": "What is 38 + 45?"}]
    for options in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        message = ask(client, question, tools=[], extra_body=options).choices[0].message
        assert message.content == "83"
        assert getattr(message, "reasoning_content", None) is None


def test_what_was_chosen_is_told(server):
    answers = json.loads(server.get("/get_server_info")[2])["answers"]
    assert answers["tool_call_parser"] == "hermes" and answers["tool_call_parser_from"] == "chat template"
    assert answers["reasoning_parser"] == "think" and answers["template_shows_tools"]
    assert "tool calls as hermes (by the chat template)" in server.log_path.read_text()
