"""The bench of kept prefixes, without a server: its defaults, what it compares, and clients that fail."""

import os
import stat
import sys
import types

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import kept_prefixes


def options(*words):
    return kept_prefixes.read_options(words)


def test_figures_have_defaults_that_measure_them():
    assert options("tiers").output_len == 1
    assert options("writes").output_len == options("apart").output_len == 128
    assert options("apart", "--output-len", "2").output_len == 2
    assert options("tiers").input_len == options("slots").input_len == 8192
    apart = options("apart")
    largest = max(float(rate) for rate in apart.rates.split(","))
    assert largest * apart.input_len < 375, "one slow core computes the prompts of the largest load"
    agents = options("agents")
    assert (agents.sessions, agents.turns) == (100, 20)
    whole = agents.first_tokens + agents.turns * (agents.step_tokens + agents.output_len)
    assert 10 * whole <= agents.pool_tokens < 11 * whole, "the pool holds ten conversations"


def test_a_client_that_fails_fails_the_bench():
    def fail():
        raise AssertionError("no answer")

    def ask(*_):
        fail()

    with pytest.raises(RuntimeError, match="1 of 2 clients failed"):
        kept_prefixes.run_threads([fail, lambda: None])
    with pytest.raises(RuntimeError, match="clients failed"):
        kept_prefixes.put_load([types.SimpleNamespace(ask=ask)], options("apart", "--seconds", "0.01"), 1000)


def test_a_side_is_timed_when_nothing_is_left_to_write():
    written = iter([3, 8, 8, 8, 9, 9, 9])
    last = 0

    def metric(name):
        nonlocal last
        if name == "backuped_pages_total":
            last = next(written)
            return last
        return 1

    kept_prefixes.wait_written(types.SimpleNamespace(metric=metric), 9)
    assert last == 9


def test_a_ratio_has_its_standard_error(monkeypatch, capsys, tmp_path):
    class Service:
        def __init__(self, *_):
            self.num_written = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, ids, num_tokens):
            self.num_written += len(ids) // 32

        def metric(self, name):
            return self.num_written if name == "backuped_pages_total" else 0

    monkeypatch.setattr(kept_prefixes, "Service", Service)
    chosen = options("writes", "--input-len", "64", "--rounds", "3")
    chosen.pages = str(tmp_path)
    kept_prefixes.run_writes(str(tmp_path), chosen)
    out = capsys.readouterr().out
    assert "(standard error)" in out and "at most 2 %" in out


def test_a_verdict_is_given_where_the_error_allows_one():
    assert kept_prefixes.verdict([1.0, 1.001, 0.999])[0] is True
    assert kept_prefixes.verdict([1.05, 1.051, 1.049])[0] is False
    assert kept_prefixes.verdict([1.0, 1.2, 0.8])[0] is None
    assert kept_prefixes.verdict([1.0])[0] is None


def test_loads_share_no_prompt_and_both_sides_have_the_same():
    def prompts_of(load):
        seen = []

        def ask(ids, *_):
            seen.append(tuple(ids))
            return kept_prefixes.Answer()

        answers, _ = kept_prefixes.put_load([types.SimpleNamespace(ask=ask)], options("apart", "--seconds", "0.01"), 1000, load)
        assert sorted(a.asked for a in answers) == sorted(len(ids) for ids in seen)
        return set(seen)

    first = prompts_of(0)
    assert first == prompts_of(0)
    beginnings = [ids[:32] for load in range(3) for ids in prompts_of(load)]
    assert len(set(beginnings)) == len(beginnings)


def test_sides_are_compared_over_the_turns_that_both_have_done():
    turns = kept_prefixes.Turns()
    for number in (0, 1, 3):
        turns.add(number, ttft=0.1, asked=10, again=number, ended=float(number + 1))
    assert turns.num_first() == 2
    assert turns.line(2).startswith("first 2 turns in 2.0 s, 1.0 a second | prompts 20 tokens, 1 of them computed again")


LLAMA_SERVER = """#!{python}
import http.server, json, sys
if "--help" in sys.argv:
    sys.exit(print("--cache-ram N"))
assert sys.argv[sys.argv.index("--cache-ram") + 1] == "0"
flag = lambda name: sys.argv[sys.argv.index(name) + 1]
known = []

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.answer("ok")

    def do_POST(self):
        global known
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        file = flag("--slot-save-path") + body.get("filename", "")
        if self.path.endswith("save"):
            json.dump(known, open(file, "w"))
        elif self.path.endswith("restore"):
            known = json.load(open(file))
        elif self.path.endswith("erase"):
            known = []
        else:
            computed = 1 if body["prompt"] == known else len(body["prompt"])
            known = body["prompt"]
            last = {{"content": "", "tokens": [], "timings": {{"prompt_n": computed}}}}
            return self.answer('data: {{"content": "a", "tokens": [7]}}\\n\\ndata: ' + json.dumps(last) + "\\n\\n")
        self.answer("{{}}")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(flag("--port"))), Handler).serve_forever()
"""


def test_the_slot_of_a_peer_is_saved_and_restored(capsys, tmp_path):
    program = tmp_path / "llama-server"
    program.write_text(LLAMA_SERVER.format(python=sys.executable), encoding="utf-8")
    program.chmod(stat.S_IRWXU)
    words = ("--peer-server", str(program), "--peer-model", "model.gguf", "--input-len", "64", "--rounds", "1")
    kept_prefixes.run_peer_slot(str(tmp_path), options("slots", *words), kept_prefixes.prompt(1, 64))
    rows = [line for line in capsys.readouterr().out.splitlines() if "| both" in line]
    assert [row.split("restore")[0].strip() for row in rows][0] == "llama-server, slot erased"
    assert len(rows) >= 2 and all(row.endswith("1 tokens computed, the same token") for row in rows)


def test_files_in_memory_are_not_called_cold():
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or not kept_prefixes.shutil.which("fincore"):
        pytest.skip("needs /dev/shm and fincore")
    with kept_prefixes.tempfile.TemporaryDirectory(dir=folder) as place:
        with open(os.path.join(place, "page"), "wb") as file:
            file.write(bytes(4 * 2**20))
        assert kept_prefixes.take_out_of_page_cache(place) == "4 of 4 MiB stay in memory"
