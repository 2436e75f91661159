"""The bench of kept prefixes, without a server: its defaults, what it compares, and clients that fail."""

import os
import stat
import struct
import sys
import threading
import time
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
    assert apart.rates == "" and len(kept_prefixes.SHARES) == 3
    assert max(kept_prefixes.SHARES) < 1, "one core computes the prompts of the largest open load"
    agents = options("agents")
    assert (agents.sessions, agents.turns) == (100, 20)
    whole = agents.first_tokens + agents.turns * (agents.step_tokens + agents.output_len)
    for length in (agents.first_tokens, whole):
        assert 8 * length <= agents.pool_tokens <= 12.5 * length, "the pool holds about ten conversations in every turn"


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
            self.num_written += (len(ids) + num_tokens - 1) // 32

        def metric(self, name):
            return self.num_written if name == "backuped_pages_total" else 0

    monkeypatch.setattr(kept_prefixes, "Service", Service)
    chosen = options("writes", "--input-len", "64", "--rounds", "3", "--seconds", "0.01")
    chosen.pages = str(tmp_path)
    assert kept_prefixes.run_writes(str(tmp_path), chosen) in (0, 1, 2)
    out = capsys.readouterr().out
    assert "(standard error)" in out and "at most 2 %" in out


def test_a_verdict_is_given_where_the_error_allows_one():
    assert kept_prefixes.verdict([1.0, 1.001, 0.999])[0] is True
    assert kept_prefixes.verdict([1.05, 1.051, 1.049])[0] is False
    assert kept_prefixes.verdict([1.0, 1.2, 0.8])[0] is None
    assert kept_prefixes.verdict([1.0])[0] is None


def test_a_window_has_the_same_prompts_on_both_sides_and_one_before_them():
    def seen_of(num):
        seen = []
        service = types.SimpleNamespace(ask=lambda ids, _: seen.append(tuple(ids)))
        done, _ = kept_prefixes.time_window(service, options("writes", "--input-len", "32", "--seconds", "0.01"), 7, num)
        return seen, done

    first, done = seen_of(0)
    assert done >= 1 and len(first) == done + 1
    assert seen_of(done) == (first, done)


def test_what_is_not_known_has_a_status_of_its_own(monkeypatch, tmp_path):
    class Service:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, *_):
            pass

        def metric(self, _):
            return 100

    monkeypatch.setattr(kept_prefixes, "Service", Service)
    monkeypatch.setattr(kept_prefixes, "wait_written", lambda *_: 0.0)
    chosen = options("writes", "--input-len", "32", "--rounds", "2", "--seconds", "0.001")
    chosen.pages = str(tmp_path)
    assert kept_prefixes.run_writes(str(tmp_path), chosen) == 2, "pages were left out"


def test_loads_share_no_prompt_and_both_sides_have_the_same():
    def prompts_of(load):
        seen = []

        def ask(ids, *_):
            seen.append(tuple(ids))
            return kept_prefixes.Answer()

        answers, *_ = kept_prefixes.put_load([types.SimpleNamespace(ask=ask)], options("apart", "--seconds", "0.01"), 1000, load)
        assert sorted(a.asked for a in answers) == sorted(len(ids) for ids in seen)
        return set(seen)

    first = prompts_of(0)
    assert first == prompts_of(0)
    beginnings = [ids[:32] for load in range(3) for ids in prompts_of(load)]
    assert len(set(beginnings)) == len(beginnings)


def test_sides_are_compared_over_the_turns_that_both_have_done():
    turns = kept_prefixes.Turns()
    for number in (0, 1, 3):
        turns.add(number, ttft=0.1, asked=24, new=24, again=number, recomputed=0, ended=float(number + 1))
    assert turns.num_first() == 2
    line = turns.line(2, options("agents", "--pool-tokens", "320", "--output-len", "8"))
    assert line.startswith("first 2 turns in 2.0 s, 1.0 a second | the pool held 10.0 conversations (10.0-10.0) | ")
    assert "prompts 48 tokens, 1 of them computed again" in line and "without the first turns of conversations none" in line


def test_a_turn_begins_when_the_last_one_of_its_session_has_ended():
    lock, under_way, prompts = threading.Lock(), set(), []

    def ask(ids, num_tokens):
        with lock:
            assert ids[0] not in under_way, "two turns of one session at once"
            under_way.add(ids[0])
            prompts.append(len(ids))
        time.sleep(0.002)
        with lock:
            under_way.remove(ids[0])
        answer = kept_prefixes.Answer()
        answer.ids = [1] * num_tokens
        return answer

    words = ("--sessions", "3", "--turns", "5", "--clients", "3", "--first-tokens", "64", "--step-tokens", "24")
    turns = kept_prefixes.run_turns(types.SimpleNamespace(ask=ask), options("agents", *words))
    assert turns.num_first() == 15
    assert sorted(prompts) == sorted(3 * [64, 96, 128, 160, 192])
    assert turns.done[3]["again"] == 64, "tokens of 71 that are in whole pages"


def test_a_closed_load_counts_tokens_until_its_end():
    answer = kept_prefixes.Answer()
    answer.begun, answer.ttft, answer.gaps = 10.0, 1.0, [1.0, 1.0]
    assert [answer.num_tokens_until(end) for end in (10.5, 11.0, 12.5, 99.0)] == [0, 1, 2, 3]

    def ask(ids, _):
        time.sleep(0.005)
        return kept_prefixes.Answer()

    answers, tokens, took = kept_prefixes.put_closed_load([types.SimpleNamespace(ask=ask)], options("apart", "--seconds", "0.02"), 3)
    assert len(answers) >= kept_prefixes.CLOSED_CLIENTS and tokens == len(answers) and took == 0.02


def test_the_shape_of_a_gguf_file_is_read(tmp_path):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def number(key, value):
        return text(key) + struct.pack("<II", 4, value)

    file = tmp_path / "model.gguf"
    values = [text("general.architecture") + struct.pack("<I", 8) + text("qwen3moe")]
    values.append(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"))
    sizes = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2, "expert_count": 8}
    values += [number(f"qwen3moe.{key}", value) for key, value in sizes.items()]
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 100, 1, 0)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + b"".join(values) + tensor)
    shape, bits = kept_prefixes.gguf_shape(file)
    assert (shape["layers"], shape["heads"], shape["KV heads"], shape["head"], shape["experts"]) == (2, 4, 2, 16, 8)
    assert bits == 8 * file.stat().st_size / 6400


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
    peer = kept_prefixes.run_peer_slot(str(tmp_path), options("slots", *words), kept_prefixes.prompt(1, 64))
    rows = [line for line in capsys.readouterr().out.splitlines() if "| both" in line]
    assert [row.split("restore")[0].strip() for row in rows][0] == "llama-server, slot erased"
    assert len(rows) >= 2 and all(row.endswith("at most 1 tokens computed, the same token") for row in rows)
    assert peer.ok and "memory emptied" in peer.medians
    peer.show("memory emptied", "another", [(0.1, 0.1, 1, True), (0.1, 0.1, 64, True), (0.1, 0.1, 1, False)])
    assert not peer.ok, "each round is checked, not the last alone"
    assert "at most 64 tokens computed, ANOTHER TOKEN in 1 of 3 rounds" in capsys.readouterr().out


def test_files_in_memory_are_not_called_cold():
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or not kept_prefixes.shutil.which("fincore"):
        pytest.skip("needs /dev/shm and fincore")
    with kept_prefixes.tempfile.TemporaryDirectory(dir=folder) as place:
        with open(os.path.join(place, "page"), "wb") as file:
            file.write(bytes(4 * 2**20))
        assert kept_prefixes.take_out_of_page_cache(place) == "4 of 4 MiB stay in memory"
