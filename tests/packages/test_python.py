"""The Python package: installed from the wheel into a venv, and used as in docs/embedding.md."""

import json
import os
import re
import subprocess
import textwrap

from conftest import BINARY, MODEL, ROOT, run


def play(python, script, **options):
    """Runs a script outside of the repository, with `engine` open; returns its output."""
    options.setdefault("timeout", 120)
    text = f"""
import asyncio, gc, json, os, sys, threading, time
import hocket
engine = hocket.Engine({str(MODEL)!r}, max_total_tokens=8192, num_threads=1)
SUM = [{{"role": "user", "content": "What is 17 + 25?"}}]
STORY = [{{"role": "user", "content": "Tell me a story about a fox and a lantern."}}]
""" + textwrap.dedent(script)
    environment = {k: v for k, v in os.environ.items() if k != "HOCKET_LIBRARY"}
    return run(python, "-c", text, cwd="/", env=environment, **options)


def test_a_sum(python):
    assert play(python, "print(engine.generate(SUM, temperature=0))").startswith("Output(text='42', tokens=[")


def test_a_stream_joins_to_the_whole(python):
    said = play(
        python,
        """
        pieces = list(engine.stream(STORY, temperature=0, max_tokens=48))
        whole = engine.generate(STORY, temperature=0, max_tokens=48)
        print("".join(p.text for p in pieces) == whole.text, len(pieces) >= 40, pieces[-1].finish_reason, whole.finish_reason)
        print([p.token for p in pieces if p.token is not None] == whole.tokens, engine.detokenize(whole.tokens) == whole.text)
        """,
    )
    assert said.split() == ["True", "True", "length", "length", "True", "True"]


def test_the_same_answer_as_the_server_program(python):
    command = run(BINARY, "run", "--model-path", MODEL, "-p", "Tell me a story about a fox and a lantern.", "--seed", "5", "--max-tokens", "64")
    said = play(python, "print(json.dumps(engine.generate(STORY, seed=5, max_tokens=64).text))")
    assert json.loads(said) == command.splitlines()[-1] or json.loads(said) in command


def test_many_at_once_are_as_one_by_one(python):
    said = play(
        python,
        """
        prompts = [[{"role": "user", "content": f"What is {n} + {n + 3}?"}] for n in range(20)]
        together = [o.text for o in engine.generate_many(prompts, temperature=0)]
        print(together == [engine.generate(p, temperature=0).text for p in prompts], together[4])
        """,
    )
    assert said.split() == ["True", "11"]


def test_asyncio(python):
    said = play(
        python,
        """
        async def main():
            answers = await asyncio.gather(*(engine.agenerate(SUM, temperature=0) for _ in range(8)))
            print({a.text for a in answers})
            async for piece in engine.astream(STORY, ignore_eos=True, max_tokens=4000):
                break
            task = asyncio.create_task(engine.agenerate(STORY, ignore_eos=True, max_tokens=4000))
            await asyncio.sleep(0.05)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                print("cancelled")
            began = time.monotonic()
            print((await engine.agenerate(SUM, temperature=0)).text, time.monotonic() - began < 5)
        asyncio.run(main())
        """,
    )
    assert said.split() == ["{'42'}", "cancelled", "42", "True"]


def test_a_stream_that_is_left_cancels_its_request(python):
    """Only one request fits at a time, so the second can only begin when the first is cancelled."""
    said = play(
        python,
        """
        small = hocket.Engine(engine_path, max_total_tokens=4096, max_running_requests=1, num_threads=1)
        stream = small.stream(STORY, ignore_eos=True, max_tokens=3900)
        print(next(stream).finish_reason)
        del stream
        began = time.monotonic()
        print(small.generate(SUM, temperature=0).text, time.monotonic() - began < 3)
        """.replace("engine_path", repr(str(MODEL))),
    )
    assert said.split() == ["None", "42", "True"]


def test_sampling_and_logprobs(python):
    said = play(
        python,
        """
        out = engine.generate(SUM, temperature=0, logprobs=2, max_tokens=1)
        second = [t for t in out.top_logprobs[0] if t != out.tokens[0]][0]
        print(len(out.top_logprobs[0]), out.logprobs[0] <= 0)
        print(engine.generate(SUM, temperature=0, max_tokens=1, logit_bias={second: 100}).tokens == [second])
        story = engine.generate(STORY, temperature=0, max_tokens=60).text
        stop = story[20:28]
        cut = engine.generate(STORY, hocket.Sampling(temperature=0, max_tokens=60, stop=stop))
        print(cut.text == story[:story.index(stop)], cut.stop_text == stop, cut.finish_reason)
        """,
    )
    assert said.split() == ["2", "True", "True", "True", "True", "stop"]


def test_answers_have_the_form_that_is_asked_for(python):
    said = play(
        python,
        """
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
                  "required": ["n", "ok"], "additionalProperties": False}
        for seed in range(8):
            made = json.loads(engine.generate(SUM, seed=seed, temperature=1, json_schema=schema).text)
            assert sorted(made) == ["n", "ok"] and 0 <= made["n"] <= 99, made
        assert json.loads(engine.generate(SUM, seed=1, json_schema=json.dumps(schema)).text)
        print(engine.generate(SUM, temperature=2, seed=3, regex="(ab){2}").text)
        print(engine.generate(SUM, temperature=2, seed=3, ebnf='root ::= "x" [0-9] "y"').text)
        print(engine.generate(SUM, temperature=2, seed=3, lark='start: "p" "q"').text)
        print(engine.generate(SUM, temperature=2, seed=3, choice=["a.b (c)"]).text)
        tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "said"}}
        print(engine.generate(SUM, temperature=2, seed=3, structural_tag=tag).text)
        """,
    ).splitlines()
    assert re.fullmatch(r"x\dy", said[1])
    assert [said[0], *said[2:]] == ["abab", "pq", "a.b (c)", "said"]


def test_thoughts_come_before_the_form_where_the_model_is_asked_to_think(python):
    said = play(
        python,
        """
        for asked in (True, False):
            chat = engine.chat_tokens(SUM, chat_template_kwargs={"enable_thinking": asked})
            print(json.dumps(engine.generate(chat, temperature=0, max_tokens=300, regex="[0-9]{2}").text))
        print(json.dumps(engine.generate(list(chat), temperature=0, regex="[0-9]{2}").text))
        """,
    ).splitlines()
    thought, *plain = map(json.loads, said)
    assert re.fullmatch(r"\s*<think>.*\S.*</think>\s*[0-9]{2}", thought, re.S), thought
    assert plain == ["42", "42"]


def test_the_old_name_of_reasoning_still_works(python):
    said = play(
        python,
        """
        old, new = (engine.chat_tokens(SUM, chat_template_kwargs={"enable_thinking": True}) for _ in range(2))
        known = old.thoughts
        print(json.dumps(known != 0 and known == new.reasoning))
        old.thoughts = new.reasoning = 0
        print(json.dumps([old.reasoning, [engine.generate(chat, temperature=0, regex="[0-9]{2}").text for chat in (old, new)]]))
        """,
    ).splitlines()
    same, (reasoning, texts) = map(json.loads, said)
    assert same and reasoning == 0
    assert texts[0] == texts[1] and re.fullmatch("[0-9]{2}", texts[0])


def test_two_forms_and_bad_ones_are_refused(python):
    said = play(
        python,
        """
        for wishes in ({"regex": "a", "ebnf": "b"}, {"ebnf": "root ::= nothing"}, {"regex": "("}, {"json_schema": {"type": "nothing"}}):
            try:
                print(engine.generate(SUM, max_tokens=8, **wishes))
            except (hocket.HocketError, TypeError) as e:
                print(type(e).__name__, e)
        print(engine.generate(SUM, temperature=0).text)
        """,
    ).splitlines()
    assert said[0] == "TypeError an answer has one form, not both regex and ebnf"
    assert said[1].startswith("HocketError HK100: grammar cannot be made one: ") and "nothing" in said[1]
    assert said[2].startswith("HocketError HK100: ") and said[3].startswith("HocketError HK100: ")
    assert said[-1] == "42"


def test_a_larger_priority_goes_first(python):
    """The batch has one place, which is taken: the urgent request is answered before those that have waited longer."""
    said = play(
        python,
        """
        small = hocket.Engine(engine_path, max_running_requests=1, max_total_tokens=8192, num_threads=1,
                              enable_priority_scheduling=True, disable_priority_preemption=True)
        ended = []
        async def one(name, **wishes):
            await small.agenerate(STORY, temperature=0, max_tokens=wishes.pop("max_tokens", 4), ignore_eos=True, **wishes)
            ended.append(name)
        async def main():
            first = asyncio.create_task(one("first", priority=9, max_tokens=1500))
            await asyncio.sleep(0.02)
            tasks = [asyncio.create_task(one("none"))]
            await asyncio.sleep(0.01)
            tasks += [asyncio.create_task(one("low", priority=1))]
            await asyncio.sleep(0.01)
            tasks += [asyncio.create_task(one("high", priority=5))]
            await asyncio.gather(first, *tasks)
        asyncio.run(main())
        print(ended)
        """.replace("engine_path", repr(str(MODEL))),
    )
    assert said.strip() == "['first', 'high', 'low', 'none']"


def test_errors_are_exceptions_with_a_remedy(python):
    said = play(
        python,
        """
        def told(call):
            try:
                call()
            except hocket.HocketError as e:
                print(e.code, "|", e.message, "|", e.fix)
        told(lambda: engine.generate(SUM, temperature=9))
        told(lambda: engine.generate([], max_tokens=1))
        told(lambda: hocket.Engine("/nowhere"))
        told(lambda: hocket.Engine("/nowhere", contxt_length=1))
        engine.close()
        told(lambda: engine.generate(SUM))
        """,
    ).splitlines()
    assert said[0] == "100 | temperature is 9, must be between 0 and 2 | "
    assert said[1].startswith("100 | the prompt has no tokens")
    assert said[2].startswith("20 | ")
    assert said[3] == "3 | contxt-length is not an option | context-length?"
    assert said[4].startswith("106 | ")


def test_an_open_engine_does_not_hold_up_the_end(python):
    said = play(python, "stream = engine.stream(STORY, ignore_eos=True, max_tokens=4000); print(next(stream).token is not None)", timeout=30)
    assert said.split() == ["True"]


def test_structs_are_those_of_the_header(python, tmp_path):
    """Structs have the same size, and fields the same offsets, as in the C compiler's view."""
    names = json.loads(
        run(
            python, "-c",
            "import json, hocket._library as lib; print(json.dumps({s.__name__: [f[0] for f in s._fields_] for s in"
            " (lib.Info, lib.Request, lib.Event, lib.Tokens, lib.Text)}))",
        )
    )  # fmt: skip
    lines = [f'P("{n}.{f}", offsetof(hocket_{n.lower()}, {f}));' for n, fields in names.items() for f in fields]
    lines += [f'P("{n}", sizeof(hocket_{n.lower()}));' for n in names]
    (tmp_path / "sizes.c").write_text(
        "#include <hocket/hocket.h>\n#include <stdio.h>\n#define P(name, n) printf(name \" %zu\\n\", (size_t)(n))\nint main(void) {\n"
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    run("cc", f"-I{ROOT / 'include'}", tmp_path / "sizes.c", "-o", tmp_path / "sizes")
    said = run(
        python, "-c",
        "import ctypes, hocket._library as lib\nfor s in (lib.Info, lib.Request, lib.Event, lib.Tokens, lib.Text):\n"
        "  for f in s._fields_: print(f'{s.__name__}.{f[0]} {getattr(s, f[0]).offset}')\n"
        "for s in (lib.Info, lib.Request, lib.Event, lib.Tokens, lib.Text): print(s.__name__, ctypes.sizeof(s))",
    )  # fmt: skip
    assert said == run(tmp_path / "sizes")


def test_options_are_the_flags_of_the_program(python):
    """Flags of `hocket run` except those of the group Run are options, and options except the library's own are flags of `serve`."""
    own = {"grammar-trials"}  # the program sets it itself
    flags = {f["name"]: f["group"] for f in json.loads(run(BINARY, "run", "--help=json"))["flags"]}
    served = {f["name"] for f in json.loads(run(BINARY, "serve", "--help=json"))["flags"]}
    names = run(python, "-c", "import hocket._library as l, itertools\nfor i in itertools.count():\n  n = l.library.hocket_option_name(i)\n"
                "  if n is None: break\n  print(n.decode())").split()  # fmt: skip
    assert own <= set(names) <= served | own
    missing = {name for name, group in flags.items() if group != "Run"} - set(names)
    assert not missing, f"add to src/capi/options.cc: {missing}"


def test_without_the_library_the_import_says_what_to_do(python):
    environment = dict(os.environ, HOCKET_LIBRARY="/nowhere/libhocket.so")
    done = subprocess.run([python, "-c", "import hocket"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "install libhocket0, or name the library in HOCKET_LIBRARY" in done.stderr
