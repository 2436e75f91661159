"""LiteLLM and LangChain, which use their own clients for the server."""

import json
import os

import pytest

from conftest import CHAT_TOOLS, MODEL_NAME, STORY, SUM, WEATHER, WEATHER_ANSWER, WEATHER_RESULT

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices from the network
os.environ.setdefault("LANGSMITH_TRACING", "false")


@pytest.fixture
def lite(server):
    import litellm

    litellm.telemetry = False

    def complete(provider="openai", **options):
        base = server.url if provider == "anthropic" else server.url + "/v1"
        options.setdefault("temperature", 0)
        options.setdefault("max_tokens", 200)
        return litellm.completion(model=f"{provider}/{MODEL_NAME}", api_base=base, api_key="none", **options)

    return complete


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm(lite, provider):
    answer = lite(provider, messages=[{"role": "user", "content": SUM}])
    assert answer.choices[0].message.content == "42"
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens == 3
    stream = lite(provider, messages=[{"role": "user", "content": SUM}], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "42"


@pytest.mark.needs("tools")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm_tools(lite, provider):
    messages = [{"role": "user", "content": WEATHER}]
    first = lite(provider, messages=messages, tools=CHAT_TOOLS).choices[0]
    call = first.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}]
    assert lite(provider, messages=messages, tools=CHAT_TOOLS).choices[0].message.content == WEATHER_ANSWER


def test_litellm_responses(server):
    import litellm

    answer = litellm.responses(model=f"openai/{MODEL_NAME}", input=SUM, api_base=server.url + "/v1", api_key="none")
    assert answer.output[0].content[0].text == "42"


@pytest.fixture(params=["chat", "responses"])
def langchain(server, request):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL_NAME, base_url=server.url + "/v1", api_key="none", temperature=0, max_retries=0,
                      use_responses_api=request.param == "responses")


def text_of(message):
    return str(message.text)


def test_langchain(langchain):
    answer = langchain.invoke(SUM)
    assert text_of(answer) == "42"
    assert answer.usage_metadata["input_tokens"] == 18
    assert "".join(text_of(piece) for piece in langchain.stream(SUM)) == "42"
    assert [text_of(a) for a in langchain.batch(["What is 1 + 1?", "What is 2 + 3?"])] == ["2", "5"]


@pytest.mark.needs("tools")
def test_langchain_tools(langchain):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """Get the weather for a city."""
        return WEATHER_RESULT

    @tool
    def set_timer(minutes: int) -> str:
        """Set a timer."""
        return "done"

    bound = langchain.bind_tools([get_weather, set_timer])
    first = bound.invoke(WEATHER)
    assert [(c["name"], c["args"]) for c in first.tool_calls] == [("get_weather", {"city": "Paris"})]
    result = ToolMessage(get_weather.invoke(first.tool_calls[0]["args"]), tool_call_id=first.tool_calls[0]["id"])
    assert "21" in text_of(bound.invoke([HumanMessage(WEATHER), first, result]))
    merged = None
    for piece in bound.stream(WEATHER):
        merged = piece if merged is None else merged + piece
    assert [(c["name"], c["args"]) for c in merged.tool_calls] == [("get_weather", {"city": "Paris"})]


def test_langchain_says_what_is_wrong(langchain):
    import openai

    with pytest.raises(openai.BadRequestError):
        langchain.invoke(STORY, temperature=9)
