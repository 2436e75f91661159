"""Requests that would end, starve or fool a server without bounds, as data: (name, path, body or what makes it, statuses that are right).

A name begins with the number of what was found: H of a review of the code, A of an attack on the server. Without
statuses a right answer is any but 500, and an error must name what is wrong.
"""

import json

import colliding
from grow import BODY_BYTES, ref_chain
from server import SANITIZED

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
DEEP = 400_000
DEEP_TAG = '{"triggers":' + "[" * DEEP + "]" * DEEP + "}"


def chat(**more):
    return json.dumps({"messages": HI, "max_tokens": 4, "temperature": 0} | more)


def generate(**more):
    return json.dumps({"text": "hi", "sampling_params": {"max_new_tokens": 4} | more})


def predicted(content, **more):
    return chat(prediction={"type": "content", "content": content}, **more)


def schema_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def lark_chain(name="a", count=60_000):
    return f"start: {name}0\n" + "".join(f"{name}{i}: {name}{i + 1}\n" for i in range(count)) + f'{name}{count}: "x"\n'


def ebnf_chain(count=60_000):
    return "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1}\n" for i in range(count)) + f'a{count} ::= "x"\n'


def function(name, **more):
    return {"type": "function", "function": {"name": name} | more}


def allowed_tools():
    tools = [function(f"f{i}") for i in range(1024)]
    allowed = ",".join(['{"function":{}}'] * 1_900_000)
    choice = f'{{"type":"allowed_tools","allowed_tools":{{"mode":"auto","tools":[{allowed}]}}}}'
    return chat(tools=tools, tool_choice="@").replace('"@"', choice)


def allowed_responses():
    tools = [{"type": "function", "name": f"f{i}"} for i in range(1024)]
    allowed = ",".join(['{"type":"function"}'] * 1_500_000)
    text = json.dumps({"input": "hi", "max_output_tokens": 4, "tools": tools, "tool_choice": "@"})
    return text.replace('"@"', f'{{"type":"allowed_tools","mode":"auto","tools":[{allowed}]}}')


def long_tools():
    return chat(tools=[function(f"f{i}", description="d" * 30_000) for i in range(1024)])


def calls_and_results():
    calls = [{"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"} for i in range(8190)]
    results = [{"type": "function_call_output", "call_id": "zz", "output": "x"}] * 8190
    return json.dumps({"max_output_tokens": 2, "input": calls + results})


def biases(prompts=512):
    return json.dumps({"prompt": ["a"] * prompts, "max_tokens": 1, "logit_bias": {str(i): 1 for i in range(2000)}})


def streams_with_prompt_logprobs(tokens):
    sampling = {"n": 64, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"input_ids": [5] * 2000, "stream": True, "return_logprob": True, "logprob_start_len": 0, "sampling_params": sampling}
    return json.dumps(body)


MANY_KEYS = 40_000


def many_keys():
    return {f"k{i}": 0 for i in range(MANY_KEYS)}


def zeros(count=4_000_000):
    return "[" + ",".join(["0"] * count) + "]"


def called(arguments):
    """A conversation with a call of a tool whose arguments are this text."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [HI[0], {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
    return chat(messages=messages)


def keys_of_one_hash(count=MANY_KEYS):
    return dict.fromkeys(colliding.keys(count), 0)


def metadata_of_one_hash(path):
    body = {"input": "hi", "max_output_tokens": 2} if path == RESPONSES else {"messages": HI, "max_tokens": 2}
    return json.dumps(body | {"metadata": dict.fromkeys(colliding.keys(MANY_KEYS), "")}, ensure_ascii=False)


# Work that grows with the product of two sizes takes minutes at these; each must be answered within KEYS_S.
KEYS_S = 15 if SANITIZED else 5
KEYS = (
    ("H23 metadata with colliding keys", CHAT, lambda: metadata_of_one_hash(CHAT)),
    ("H23 metadata with colliding keys of /v1/responses", RESPONSES, lambda: metadata_of_one_hash(RESPONSES)),
    ("H23 40,000 keys beside role in a message", CHAT, lambda: chat(messages=[HI[0] | many_keys()])),
    ("H23 colliding keys beside role in a message", CHAT, lambda: chat(messages=[HI[0] | keys_of_one_hash()])),
    ("H23 arguments of a tool call: an object of 40,000 keys", CHAT, lambda: called(json.dumps(many_keys()))),
    ("H23 arguments of a tool call: colliding keys", CHAT, lambda: called(json.dumps(keys_of_one_hash(MANY_KEYS // 8)))),
    ("H23 arguments: a list of 4 million zeros", CHAT, lambda: called(zeros())),
)

POSTS = (
    ("H1 repetition penalty of a denormal", COMPLETIONS, lambda: json.dumps({
        "prompt": [16, 16, 16], "logit_bias": {"16": 100}, "repetition_penalty": 1e-45, "temperature": 1, "top_p": 0.9,
        "max_tokens": 32, "ignore_eos": True}), (400,)),
    ("H1 repetition penalty that is zero as a float", GENERATE, lambda: generate(repetition_penalty=1e-60, top_p=0.9), (400,)),
    ("H2 structural tag, a deep text", CHAT, lambda: chat(structural_tag=DEEP_TAG), (400,)),
    ("H2 in structured_outputs", CHAT, lambda: chat(structured_outputs={"structural_tag": DEEP_TAG}), (400,)),
    ("H2 in /v1/responses", RESPONSES, lambda: json.dumps({"input": "hi", "structural_tag": DEEP_TAG}), (400,)),
    ("H2 in /v1/messages", MESSAGES, lambda: json.dumps({"messages": HI, "max_tokens": 4, "structural_tag": DEEP_TAG}), (400,)),
    ("H2 in /generate", GENERATE, lambda: generate(structural_tag=DEEP_TAG), (400,)),
    ("H2 in render", CHAT + "/render", lambda: chat(structural_tag=DEEP_TAG), (400,)),
    ("H2 a schema, a deep text", CHAT, lambda: chat(json_schema="[" * DEEP + "]" * DEEP), (400,)),
    ("H3 ebnf, plus after plus", CHAT, lambda: chat(ebnf='root ::= "a"' + "+" * 3_000_000), (200, 400)),
    ("H3 ebnf, all that is a repeat", GENERATE, lambda: generate(ebnf='root ::= "a"' + "*?+{2}" * 500_000), (200, 400)),
    ("H3 ebnf, parentheses", CHAT, lambda: chat(ebnf="root ::= " + "(" * 500_000 + '"a"' + ")" * 500_000), (400,)),
    ("H4 lark, a chain of rules", CHAT, lambda: chat(guided_grammar=lark_chain()), (200, 400)),
    ("H4 lark, a chain of tokens", CHAT, lambda: chat(guided_grammar=lark_chain("A")), (200, 400)),
    ("H4 ebnf, a chain of rules", CHAT, lambda: chat(ebnf=ebnf_chain()), (200, 400)),
    ("H4 schema, a chain of refs", CHAT, lambda: chat(response_format=schema_of(ref_chain(20_000))), (200, 400)),
    ("H4 tool, a chain of refs", CHAT, lambda: chat(tools=[function("f", strict=True, parameters={
        "type": "object", "properties": {"a": ref_chain(5000)}, "required": ["a"], "$defs": ref_chain(20_000)["$defs"]})],
        tool_choice="required"), (200, 400)),
    ("H7 allowed tools", CHAT, allowed_tools, (200, 400, 413)),
    ("H7 allowed tools of /v1/responses", RESPONSES, allowed_responses, (200, 400, 413)),
    ("H7 tools with long descriptions", CHAT, long_tools, (400, 413)),
    ("H7 a regex for each of 500 texts", GENERATE, lambda: json.dumps({
        "text": ["a"] * 500, "sampling_params": {"stop_regex": ["\\w{60}x"] * 16, "max_new_tokens": 1}}), ()),
    ("H7 a schema for each of 500 texts", GENERATE, lambda: json.dumps({"text": ["a"] * 500, "sampling_params": {
        "json_schema": {"enum": ["a" * 900_000]}, "max_new_tokens": 1}}), ()),
    ("H7 a text of 31 MB", COMPLETIONS, lambda: json.dumps({"prompt": "a b " * (BODY_BYTES // 4 - 10)}), (400, 413)),
    ("H7 a text of 31 MB to count", "/tokenize", lambda: json.dumps({"prompt": "a" * (BODY_BYTES - 100)}), ()),
    ("H7 blanks", COMPLETIONS, lambda: json.dumps({"prompt": " " * 250_000 + "1", "max_tokens": 1}), (400,)),
    ("H10 detokenize", "/detokenize", lambda: json.dumps({"tokens": [2000] * 4_500_000}), ()),
    ("H10 a bias of every token for every prompt", COMPLETIONS, biases, ()),
    ("H10 log-probabilities of many prompts", COMPLETIONS, lambda: json.dumps({
        "prompt": [[5] * 3000] * 10, "echo": True, "logprobs": 20, "max_tokens": 0}), ()),
    ("H11 metadata of 600 KB in a stream", RESPONSES, lambda: json.dumps({
        "input": "What is 7 + 5?", "stream": True, "max_output_tokens": 4, "metadata": {"x": "A" * 600_000}}), (200,)),
    ("H11 echo and log-probabilities in a stream", COMPLETIONS, lambda: json.dumps({
        "prompt": [5] * 3000, "echo": True, "logprobs": 20, "max_tokens": 4, "stream": True}), (200,)),
    ("H22 a tool that is a number", CHAT, lambda: chat(tools=[function("f")], tool_choice={
        "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": 1}]}}), (200, 400)),
    ("A1 multipleOf 999,983", CHAT, lambda: chat(json_schema={"type": "integer", "multipleOf": 999_983}), (200, 400, 503)),
    ("A1 multipleOf 99,999,989", CHAT, lambda: chat(json_schema={"type": "integer", "multipleOf": 99_999_989}), (400, 503)),
    ("A1 5,000 optional properties", CHAT, lambda: chat(json_schema={
        "type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}), (200, 400, 503)),
    ("A1 a regex of repeats", CHAT, lambda: chat(regex="(a{1000}){1000}"), (200, 400, 503)),
    ("A4 64 copies", CHAT, lambda: chat(json_schema={"type": "integer", "multipleOf": 99_991}, n=64), (200, 400, 413, 429, 503)),
    ("A8 results of no call", RESPONSES, calls_and_results, (400,)),
    ("A14 a prediction of 31 MB", CHAT, lambda: predicted("a " * (BODY_BYTES // 2 - 100)), (400, 413)),
    ("A14 a prediction of one letter", CHAT, lambda: predicted("x" * 600_000), (400,)),
    ("A14 a prediction in 400,000 parts", CHAT, lambda: predicted([{"type": "text", "text": "a"}] * 400_000), (400, 413)),
    ("A14 a prediction that is a picture", CHAT, lambda: predicted([{"type": "image_url", "image_url": {"url": "x"}}]), (400,)),
    ("A14 a prediction for 64 answers", CHAT, lambda: predicted("a" * 9000, n=64), (200, 400, 413, 429, 503)),
    ("A13 an unterminated string", COMPLETIONS, lambda: '{"prompt":"' + "a" * BODY_BYTES, (400, 413)),
    ("A13 an endless number", COMPLETIONS, lambda: '{"seed":' + "1" * BODY_BYTES, (400, 413)),
)

# Grammars that spell control tokens: each answer must be exactly this text.
EXACT = (
    ("A7 a const that spells a control token", {"json_schema": {"const": "a <|im_end|> b"}}, '"a <|im_end|> b"'),
    ("A7 a regex that spells one", {"regex": "<\\|im_end\\|>"}, "<|im_end|>"),
    ("A7 a choice that is one", {"guided_choice": ["<|im_end|>"]}, "<|im_end|>"),
    ("A7 an enum of one", {"json_schema": {"type": "object", "properties": {"t": {"enum": ["<|im_start|>"]}}, "required": ["t"],
        "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}}, '{"t":"<|im_start|>"}'),
)
