"""Forced tool calls in all three APIs; reasoning before structured output, and its budget. Clients and jsonschema check the answers,
independently of hocket."""

import concurrent.futures
import json

import jsonschema
import pytest

MODEL_NAME = "hocket-tiny-qwen3-moe"
SUM = [{"role": "user", "content": "What is 38 + 45?"}]
TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["train", "boat"]},
        "guests": {"type": "array", "maxItems": 2, "items": {
            "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"],
            "additionalProperties": False}},
    },
    "required": ["city", "days", "kind", "guests"],
    "additionalProperties": False,
}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
        "additionalProperties": False}
SCHEMAS = {"book_trip": TRIP, "get_weather": CITY, "now": {"type": "object", "properties": {}, "additionalProperties": False}}
NAMED = {"type": "function", "function": {"name": "book_trip"}}
THINK = {"chat_template_kwargs": {"enable_thinking": True}}
NO_THOUGHTS = {"chat_template_kwargs": {"enable_thinking": False}}


def tools(strict=False):
    return [{"type": "function", "function": {"name": n, "description": f"Does {n}.", "parameters": s, "strict": strict}}
            for n, s in SCHEMAS.items()]


def ask(client, messages=SUM, **options):
    options.setdefault("tools", tools())
    options.setdefault("temperature", 1)
    options.setdefault("max_tokens", 1200)
    return client.chat.completions.create(model=MODEL_NAME, messages=messages, **options)


def check(choice, names=tuple(SCHEMAS)):
    """Checks that a choice has only calls of these tools, with arguments that follow their schemas. Returns the calls."""
    assert choice.finish_reason == "tool_calls", choice
    assert not choice.message.content and choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert call.function.name in names
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    return choice.message.tool_calls


@pytest.mark.parametrize("seed", range(4))
def test_required(client, seed):
    for choice in ask(client, tool_choice="required", seed=seed, n=2, parallel_tool_calls=False, extra_body=NO_THOUGHTS).choices:
        assert len(check(choice)) == 1


def test_named(client):
    for choice in ask(client, tool_choice=NAMED, seed=1, n=4, extra_body=NO_THOUGHTS).choices:
        assert len(check(choice, ["book_trip"])) == 1


def test_named_greedy_is_what_was_asked_for(client):
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = ask(client, question, tool_choice={"type": "function", "function": {"name": "get_weather"}}, temperature=0).choices[0]
    assert json.loads(check(choice)[0].function.arguments) == {"city": "Paris"}


def test_a_stream_is_read_by_the_clients_own_accumulator(client):
    with client.chat.completions.stream(model=MODEL_NAME, messages=SUM, tools=tools(), tool_choice=NAMED, seed=3, temperature=1,
                                        max_tokens=1200, extra_body=NO_THOUGHTS) as stream:
        check(stream.get_final_completion().choices[0], ["book_trip"])


def test_strict_tools_are_followed_in_free_text(client):
    """Without a forced call the model writes text, or calls that follow the schemas."""
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    said = ask(client, question, tools=tools(strict=True), n=8, seed=5, temperature=1.5, max_tokens=300).choices
    for choice in said:
        if choice.finish_reason == "tool_calls":
            for call in choice.message.tool_calls:
                jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    greedy = ask(client, question, tools=tools(strict=True), temperature=0).choices[0]
    assert check(greedy)[0].function.name == "get_weather"


def test_a_form_of_the_text_leaves_room_for_calls(client):
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}
    for choice in ask(client, question, response_format=form, n=4, seed=2, extra_body=NO_THOUGHTS).choices:
        if choice.finish_reason == "tool_calls":
            assert choice.message.content is None
        else:
            assert choice.message.content in ("true", "false")
    assert ask(client, question, response_format=form, temperature=0).choices[0].finish_reason == "tool_calls"


def messages(server, **fields):
    """Asks /v1/messages and returns the answer."""
    body = {"model": MODEL_NAME, "max_tokens": 1200, "messages": SUM, **fields}
    status, _, data = server.call("/v1/messages", json.dumps(body).encode())
    assert status == 200, data
    return json.loads(data)


def test_messages(server):
    offered = [{"name": n, "description": n, "input_schema": s} for n, s in SCHEMAS.items()]
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "book_trip"}):
        answer = messages(server, tools=offered, tool_choice=choice, thinking={"type": "disabled"})
        assert answer["stop_reason"] == "tool_use"
        [block] = answer["content"]
        assert block["type"] == "tool_use" and (choice["type"] == "any" or block["name"] == "book_trip")
        jsonschema.validate(block["input"], SCHEMAS[block["name"]])


def test_responses(client):
    offered = [{"type": "function", "name": n, "parameters": s, "strict": True} for n, s in SCHEMAS.items()]
    for choice in ("required", {"type": "function", "name": "book_trip"}):
        answer = client.responses.create(model=MODEL_NAME, input=SUM[0]["content"], tools=offered, tool_choice=choice,
                                         parallel_tool_calls=False, max_output_tokens=1200, extra_body=NO_THOUGHTS)
        [item] = answer.output
        assert item.type == "function_call" and (choice == "required" or item.name == "book_trip")
        jsonschema.validate(json.loads(item.arguments), SCHEMAS[item.name])


# Formats of calls by model family: the bundled model knows one, and a grammar makes it write the others.
FAMILIES = ["qwen3_coder", "mimo", "glm45", "glm47", "minimax_m2", "kimi_k2", "gpt_oss", "gemma4",
            "deepseek_v3", "deepseek_v31", "llama3_json", "pythonic", "mistral", "json"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(start, family):
    channels = ("--reasoning-parser", "gpt-oss") if family == "gpt_oss" else ()
    server = start("--tool-call-parser", family, *channels)
    client = server.client()

    def one(seed):
        return ask(client, tool_choice=NAMED if seed % 2 else "required", seed=seed, parallel_tool_calls=False,
                   extra_body=NO_THOUGHTS).choices[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for choice in pool.map(one, range(4)):
            assert len(check(choice)) == 1
    assert server.stop() == 0


def test_reasoning_comes_before_structure(client):
    number = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    choice = ask(client, tools=[], response_format=number, temperature=0, extra_body=THINK).choices[0]
    assert choice.message.reasoning_content == "30 + 40 = 70. 8 + 5 = 13. 70 + 13 = 83."
    assert choice.message.content == "83" and choice.finish_reason == "stop"
    choice = ask(client, tool_choice=NAMED, temperature=0, extra_body=THINK).choices[0]
    check(choice, ["book_trip"])


def test_reasoning_ends_at_its_budget(client):
    def thought(budget, **fields):
        answer = ask(client, tools=[], temperature=0, extra_body={**THINK, "thinking_budget": budget, **fields})
        return answer.choices[0].message, answer.usage.completion_tokens_details.reasoning_tokens

    free, all_tokens = thought(1000)
    assert free.content == "83"
    for budget in (0, 1, 7):
        message, tokens = thought(budget)
        assert budget < tokens <= budget + 3  # the marks around the reasoning count as well
        assert free.reasoning_content.startswith(getattr(message, "reasoning_content", None) or "")
        assert message.content  # the model answers after its reasoning was cut
    assert thought(all_tokens)[0].content == "83"  # reasoning within the budget is not changed
    message, _ = thought(3, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}})
    assert message.content in ("true", "false")


def test_the_same_budget_in_other_words(server, client):
    ours = ask(client, tools=[], temperature=0, extra_body={**THINK, "thinking_budget": 7}).choices[0].message
    theirs = messages(server, temperature=0, thinking={"type": "enabled", "budget_tokens": 7})["content"]
    assert theirs[0]["type"] == "thinking" and theirs[0]["thinking"] == ours.reasoning_content


@pytest.mark.parametrize("flags", [("--ep-size", "2"), ("--disable-overlap-schedule",), ("--chunked-prefill-size", "32")])
def test_the_same_answers_however_they_are_computed(start, client, flags):
    other = start(*flags)

    def said(asked):
        thought = ask(asked, tools=[], seed=4, n=2, extra_body={**THINK, "thinking_budget": 9}, max_tokens=60)
        called = ask(asked, tool_choice=NAMED, seed=4, n=2, extra_body={**THINK, "thinking_budget": 9})
        return [(c.message.content, getattr(c.message, "reasoning_content", None),
                 [t.function.arguments for t in c.message.tool_calls or []]) for a in (thought, called) for c in a.choices]

    assert said(other.client()) == said(client)


def test_effort_is_told(server):
    answers = json.loads(server.get("/get_server_info")[2])["answers"]
    assert answers["reasoning_effort_budgets"]["low"] == 1024 and not answers["template_tells_reasoning_effort"]
    assert "no words for reasoning_effort" in server.log_path.read_text()


def test_what_cannot_be_is_refused(start):
    server = start("--grammar-backend", "none")
    body = {"messages": SUM, "tools": tools(), "tool_choice": "required"}
    status, _, data = server.call("/v1/chat/completions", json.dumps(body).encode())
    refusal = json.loads(data)["error"]
    assert status == 400 and refusal["param"] == "tool_choice" and "no structured output" in refusal["message"]
    assert server.stop() == 0
