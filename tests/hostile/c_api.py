#!/usr/bin/env python3
"""Hostile arguments to libhocket.so, in this process. A caller of the C API gets an answer or an error, as a client does.

    c_api.py SEED SECONDS        prints what it did; its caller checks that no signal ended it

HOCKET_LIBRARY names the library. Under HOSTILE_STACK_KIB its threads must have stacks of that size. The structs are those of python/hocket.
"""

import ctypes
import json
import os
import random
import sys
import time
from ctypes import byref, c_char_p, c_float, c_int32, c_size_t, c_void_p

import grow
from cases import DEEP_TAG, ebnf_chain, lark_chain
from server import MODEL, ROOT, check_stacks

sys.path.insert(0, str(ROOT / "python"))
from hocket._library import Handler, Request, Text, Tokens, library  # noqa: E402

JSON_SCHEMA, REGEX, EBNF, LARK, CHOICE, STRUCTURAL_TAG = range(1, 7)
REALS = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
INTEGERS = ("max_new_tokens", "min_new_tokens", "top_k", "logprobs", "reasoning", "grammar_kind", "priority", "reserved")
EXTREMES = (0, -1, 1, 1e308, -1e308, 1e-45, 5e-324, float("nan"), float("inf"), -float("inf"), 2.5, 0.5)
WHOLE = (0, -1, 1, 2**31 - 1, -(2**31), 64, 65, 1025, 100_000)
NAMED = (
    (STRUCTURAL_TAG, DEEP_TAG),
    (JSON_SCHEMA, "[" * 400_000 + "]" * 400_000),
    (JSON_SCHEMA, json.dumps(grow.ref_chain(20_000))),
    (JSON_SCHEMA, '{"type":"integer","multipleOf":999983}'),
    (CHOICE, "[" * 400_000 + "]" * 400_000),
    (EBNF, 'root ::= "a"' + "+" * 900_000),
    (EBNF, ebnf_chain(50_000)),
    (LARK, lark_chain(count=50_000)),
    (REGEX, "(a{1000}){1000}"),
)


def opened():
    options, engine = library.hocket_options_new(), c_void_p()
    for name, value in (("model-path", MODEL), ("max-total-tokens", 8192), ("num-threads", 1), ("cpu-bind", "none")):
        library.hocket_options_set(options, name.encode(), str(value).encode())
    code = library.hocket_engine_open(options, byref(engine))
    assert code == 0, library.hocket_error_message()
    return engine


class Asked:
    """One request, and whether its last event has come."""

    def __init__(self, engine, **fields):
        self.request = Request(struct_size=ctypes.sizeof(Request))
        library.hocket_request_init(engine, byref(self.request))
        self.prompt = (c_int32 * 4)(16, 17, 18, 19)
        self.request.prompt, self.request.prompt_count, self.request.max_new_tokens = self.prompt, 4, 4
        for name, value in fields.items():
            setattr(self.request, name, value)
        self.finish = 0
        self.handler = Handler(self.event)
        self.code = library.hocket_submit(engine, byref(self.request), self.handler, None, None)

    def event(self, event, _):
        self.finish = event.contents.finish or self.finish
        return 0

    def wait(self, limit_s=30):
        """Waits for its last event and returns how it ended, as a word."""
        deadline = time.monotonic() + limit_s
        while self.code == 0 and not self.finish:
            assert time.monotonic() < deadline, f"no last event after {limit_s} s"
            time.sleep(0.001)
        return f"refused {self.code}" if self.code else f"ended {self.finish}"


def texts(engine, made):
    """Sends a hostile text as a chat, as its extra fields, and as a prompt."""
    tokens, text = Tokens(), Text()
    said = json.dumps([{"role": "user", "content": made}]).encode()
    for messages, extra in ((said, None), (made.encode(), None), (b'[{"role":"user","content":"a"}]', made.encode())):
        if library.hocket_chat_prompt(engine, messages, extra, byref(tokens), None) == 0:
            library.hocket_tokens_free(byref(tokens))
    raw = made.encode()
    if library.hocket_tokenize(engine, raw, len(raw), byref(tokens)) == 0:
        if library.hocket_detokenize(engine, tokens.data, tokens.count, byref(text)) == 0:
            library.hocket_text_free(byref(text))
        library.hocket_tokens_free(byref(tokens))


def one(engine, rng):
    way = rng.randrange(6)
    if way == 0:
        Asked(engine, ignore_eos=1, **{rng.choice(REALS): rng.choice(EXTREMES), rng.choice(REALS): rng.choice(EXTREMES)}).wait()
    elif way == 1:
        Asked(engine, **{rng.choice(INTEGERS): rng.choice(WHOLE)}).wait()
    elif way == 2:
        kind = rng.randint(1, 6)
        make = {JSON_SCHEMA: lambda r, n: json.dumps(grow.schema(r, n)), REGEX: grow.regex, EBNF: grow.ebnf, LARK: grow.lark}
        make |= {CHOICE: lambda r, n: grow.repeated('"a"', n), STRUCTURAL_TAG: grow.structural_tag}
        text = make[kind](rng, rng.choice((100, 10_000, 900_000)))
        Asked(engine, grammar_kind=kind, grammar=text.encode(errors="replace").replace(b"\0", b" ")).wait()
    elif way == 3:
        count = rng.choice((1, 64, 65, 100_000))
        stops = (c_char_p * count)(*[rng.choice((b"a", b"", b"b" * 2000))] * count)
        Asked(engine, stop_texts=stops, stop_text_count=c_size_t(count)).wait()
    elif way == 4:
        count = rng.choice((1, 100, 2048, 100_000))
        ids, bias = (c_int32 * count)(*range(count)), (c_float * count)(*[rng.choice((100, -100, 1e38, float("nan"), float("inf")))] * count)
        penalty = rng.choice((1, 1e-45, 1e-3, 1e3, 1e308))
        Asked(engine, bias_tokens=ids, bias=bias, bias_count=count, repetition_penalty=penalty, temperature=1.0, top_p=0.9).wait()
    else:
        texts(engine, rng.choice((lambda: grow.nested(rng, 400_000), lambda: rng.choice(grow.PIECES).replace("\0", " ") * 20_000))())


def main():
    seed, seconds = sys.argv[1], float(sys.argv[2])
    library.hocket_set_log_level(b"off")
    engine, count = opened(), 0
    if stack_kib := int(os.environ.get("HOSTILE_STACK_KIB", "0")):
        check_stacks(os.getpid(), stack_kib)
    for kind, text in NAMED:
        Asked(engine, grammar_kind=kind, grammar=text.encode()).wait()
    texts(engine, "[" * 400_000 + "]" * 400_000)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        one(engine, random.Random(f"{seed}:{count}"))
        count += 1
    assert Asked(engine).wait() in ("ended 1", "ended 2"), "an honest request is not answered"
    library.hocket_engine_close(engine)
    print(f"{len(NAMED)} named and {count} drawn")


if __name__ == "__main__":
    main()
