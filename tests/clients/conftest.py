"""The bundled model behind `hocket serve`, for third-party clients. Server and its fixtures are those of tests/api.

Tests ask for tool calls and sums: the bundled model knows these, so answers can be checked."""

import importlib.util
import json
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("api_conftest", HERE.parent / "api" / "conftest.py")
api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api)

Server = api.Server
server = api.server
start = api.start

MODEL_NAME = "hocket-tiny-qwen3-moe"
SUM = "What is 17 + 25?"
STORY = "Tell me a story about a fox and a lantern."
WEATHER = "What is the weather in Paris?"
WEATHER_RESULT = '{"temperature": 21, "sky": "sunny"}'
WEATHER_ANSWER = "It is 21 degrees and sunny in Paris."
CITY_SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "The name of the city."}},
               "required": ["city"]}
MINUTES_SCHEMA = {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}
# (name, description, parameters); each API writes them in its own form.
TOOLS = [("get_weather", "Get the weather for a city.", CITY_SCHEMA), ("set_timer", "Set a timer.", MINUTES_SCHEMA)]
CHAT_TOOLS = [{"type": "function", "function": {"name": n, "description": d, "parameters": p}} for n, d, p in TOOLS]


@pytest.fixture
def client(server):
    return server.client()


ASK = {"tools": {"tools": CHAT_TOOLS},
       "calls on demand": {"tools": CHAT_TOOLS, "tool_choice": "required"},
       "thoughts": {"separate_reasoning": True, "chat_template_kwargs": {"enable_thinking": True}},
       "grammar": {"response_format": {"type": "json_object"}}}


def offers(server, feature):
    """Returns True if the server has a feature that a build or flag may leave out: tool calls, forced calls, reasoning, grammars."""
    body = {"messages": [{"role": "user", "content": SUM}], "max_tokens": 60, "temperature": 0, **ASK[feature]}
    status, _, data = server.call("/v1/chat/completions", json.dumps(body).encode())
    if feature == "thoughts":
        return status == 200 and bool(json.loads(data)["choices"][0]["message"].get("reasoning_content"))
    return status == 200


@pytest.fixture(autouse=True)
def needs(request):
    for mark in request.node.iter_markers("needs"):
        if not offers(request.getfixturevalue("server"), mark.args[0]):
            pytest.skip(f"this server offers no {mark.args[0]}")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(feature): skipped where the server does not offer it")
