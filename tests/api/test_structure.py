"""Structured output as clients request it. jsonschema or re checks every answer, independently of hocket."""

import concurrent.futures
import json
import random
import re

import jsonschema
import openai
import pydantic
import pytest

ASK = [{"role": "user", "content": "What is 17 + 25?"}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
        "boss": {"anyOf": [{"$ref": "#/$defs/short"}, {"type": "null"}]},
    },
    "required": ["name", "age", "tags", "boss"],
    "additionalProperties": False,
    "$defs": {"short": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 99}},
                        "required": ["id"], "additionalProperties": False}},
}


def ask(client, **fields):
    fields.setdefault("max_tokens", 300)
    return client.chat.completions.create(model="any", messages=ASK, **fields)


def strict(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


@pytest.mark.parametrize("temperature", [0, 1])
def test_json_schema(client, temperature):
    answer = ask(client, response_format=strict(PERSON), temperature=temperature, seed=3, n=4)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), PERSON)


def test_streamed(client):
    text, finish = "", None
    for block in ask(client, response_format=strict(PERSON), stream=True, seed=5):
        text += block.choices[0].delta.content or ""
        finish = block.choices[0].finish_reason or finish
    assert finish == "stop"
    jsonschema.validate(json.loads(text), PERSON)


def test_pydantic_models_of_the_client(client):
    class Sum(pydantic.BaseModel):
        left: int = pydantic.Field(ge=0, le=99)
        right: int = pydantic.Field(ge=0, le=99)
        correct: bool

    answer = client.chat.completions.parse(model="any", messages=ASK, response_format=Sum, max_tokens=200, seed=1)
    assert isinstance(answer.choices[0].message.parsed, Sum)


def test_json_object(client):
    answer = ask(client, response_format={"type": "json_object"}, seed=2, temperature=0, max_tokens=600,
                 extra_body={"stop_token_ids": []})
    text = answer.choices[0].message.content
    assert text.lstrip().startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


TEXTS = [
    ({"regex": "^[A-Z][a-z]{2,8}: [0-9]{1,3}$"}, r"[A-Z][a-z]{2,8}: [0-9]{1,3}"),
    ({"ebnf": 'root ::= "(" root ")" | digit{2}\ndigit ::= [0-9]'}, r"\(*[0-9]{2}\)*"),
    ({"guided_choice": ["forty-two", "17 (seventeen)", "?"]}, r"forty-two|17 \(seventeen\)|\?"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, r"yes|no"),
    ({"structured_outputs": {"regex": "a{3}"}}, r"aaa"),
    ({"guided_grammar": 'start: "x" /[0-9]/'}, r"x[0-9]"),
    ({"structural_tag": {"format": {"type": "tag", "begin": "<n>", "end": "</n>",
                                    "content": {"type": "regex", "pattern": "[0-9]{3}"}}}}, r"<n>[0-9]{3}</n>"),
]


@pytest.mark.parametrize("fields,pattern", TEXTS, ids=[next(iter(f)) for f, _ in TEXTS])
def test_texts(client, fields, pattern):
    answer = ask(client, extra_body=fields, temperature=1, seed=4, n=3)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.message.content), choice.message.content
    plain = client.completions.create(model="any", prompt="17 + 25 =", max_tokens=60, extra_body=fields, seed=4)
    assert re.fullmatch(pattern, plain.choices[0].text), plain.choices[0].text


def test_native(server):
    for fields, pattern in [({"regex": "[0-9]{2}"}, r"[0-9]{2}"), ({"ebnf": 'root ::= "a" | "b"'}, r"a|b"),
                            ({"json_schema": json.dumps({"type": "boolean"})}, r"\s*(true|false)")]:
        body = {"text": "17 + 25 =", "sampling_params": {"max_new_tokens": 60, "temperature": 1, **fields}}
        status, _, answer = server.call("/generate", json.dumps(body).encode())
        assert status == 200, answer
        said = json.loads(answer)
        assert re.fullmatch(pattern, said["text"]), said
        assert said["meta_info"]["finish_reason"]["type"] == "stop"


BAD = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nothing"}}}},
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "#/$defs/gone"}}}},
     "response_format.json_schema.schema"),
    ({"extra_body": {"regex": "(a"}}, "regex"),
    ({"extra_body": {"ebnf": "root ::= nowhere"}}, "ebnf"),
    ({"extra_body": {"regex": "a", "guided_choice": ["b"]}}, "guided_choice"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields,param", BAD, ids=[p for _, p in BAD])
def test_what_is_no_grammar_is_400(client, fields, param, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, stream=stream, **fields)
    assert caught.value.param == param
    assert "\n" not in caught.value.message


def random_schema(rng, depth=2):
    kind = rng.choice(["boolean", "integer", "enum", "string", "object", "array"] if depth else ["boolean", "integer", "enum"])
    if kind == "object":
        properties = {rng.choice("abcdefgh") * rng.randint(1, 3): random_schema(rng, depth - 1) for _ in range(rng.randint(0, 4))}
        return {"type": "object", "properties": properties, "additionalProperties": False,
                "required": [name for name in properties if rng.random() < 0.7]}
    if kind == "array":
        return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": rng.randint(0, 1), "maxItems": 3}
    if kind == "integer":
        low = rng.randint(-99, 99)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 999)}
    if kind == "string":
        return {"type": "string", "minLength": 1, "maxLength": rng.randint(1, 9)}
    return {"type": "boolean"} if kind == "boolean" else {"enum": ["red", "green", 3, None]}


def test_random_schemas_at_the_same_time(client):
    rng = random.Random(9)
    schemas = [random_schema(rng) for _ in range(60)]

    def one(i):
        choice = ask(client, response_format=strict(schemas[i]), temperature=1, seed=i, max_tokens=2000).choices[0]
        assert choice.finish_reason == "stop", choice
        jsonschema.validate(json.loads(choice.message.content), schemas[i])

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(len(schemas))))


FORM = {
    "type": "object",
    "properties": {"is_there_any_doubt": {"type": "boolean"}, "what_is_to_be_done": {"enum": ["nothing at all", "ask again"]}},
    "required": ["is_there_any_doubt", "what_is_to_be_done"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("fields", [
    {}, {"temperature": 1.5, "seed": 2, "n": 3}, {"stop": ["any_d"]}, {"stop": ["zzz", "be_done\": "]}, {"max_tokens": 3},
    {"max_tokens": 9}, {"max_tokens": 14}, {"frequency_penalty": 1.5}, {"extra_body": {"min_tokens": 30}}, {"stream": True},
])
def test_forced_text_is_what_is_drawn_token_by_token(client, server, fields):
    """Answers with log-probabilities need logits, so each of their tokens has a step; those without take forced tokens."""

    def told(**more):
        answer = ask(client, response_format=strict(FORM), **{"temperature": 0, **fields, **more})
        if not fields.get("stream"):
            return [(choice.message.content, choice.finish_reason) for choice in answer.choices], answer.usage.completion_tokens
        blocks = [block.choices[0] for block in answer if block.choices]
        return "".join(block.delta.content or "" for block in blocks), blocks[-1].finish_reason

    before = server.metric("grammar_forced_tokens_total")
    quick = told()
    between = server.metric("grammar_forced_tokens_total")
    assert quick == told(logprobs=True)
    assert before < between == server.metric("grammar_forced_tokens_total")


def test_metrics_and_info(client, server):
    ask(client, extra_body={"regex": "[a-c]{4}"})
    hits = server.metric("grammar_cache_hits_total")
    ask(client, extra_body={"regex": "[a-c]{4}"})
    assert server.metric("grammar_cache_hits_total") == hits + 1
    assert server.metric("num_grammars_compiled_total") > 0
    assert server.metric("grammar_compile_seconds_total") > 0
    assert server.metric("num_grammar_queue_reqs") == 0
    assert json.loads(server.get("/get_server_info")[2])["grammar_backend"] == "llguidance"


def test_backend_none(start):
    client = start("--grammar-backend", "none").client()
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, response_format={"type": "json_object"})
    assert "--grammar-backend none" in caught.value.message
    assert ask(client, max_tokens=4).choices[0].message.content


def test_two_ranks(start):
    client = start("--ep-size", "2").client()
    for seed in range(4):
        answer = ask(client, response_format=strict(PERSON), seed=seed, temperature=1)
        jsonschema.validate(json.loads(answer.choices[0].message.content), PERSON)
