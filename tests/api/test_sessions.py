"""Conversations by name: kept while others pass, saved, and restored by the next process; and processes killed as they write."""

import http.client
import json
import random
import threading
import time

import pytest

FLAGS = ("--max-total-tokens", "2048", "--chunked-prefill-size", "64")
STORY = "The two halves of a hocket sing in turn, and each rests while the other sounds. " * 12


def answer(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields}
    status, _, text = server.call("/v1/completions", json.dumps(body).encode())
    assert status == 200, text
    said = json.loads(text)
    return said["choices"], said["usage"]["prompt_tokens_details"]["cached_tokens"]


def post(server, path, want=200, **body):
    status, _, text = server.call(path, json.dumps(body).encode())
    assert status == want, text
    return json.loads(text)


def test_a_session_outlives_other_traffic_and_the_process(start, tmp_path):
    folder = ("--kv-cache-dir", str(tmp_path / "pages"))
    first = start(*FLAGS, *folder)
    want, _ = answer(first, STORY, session_id="agent 1")
    for i in range(6):
        answer(first, f"{i}. {STORY}")
    assert first.metric("num_sessions") == 1
    got, cached = answer(first, STORY, session_id="agent 1")
    assert got == want and cached >= 256
    saved = post(first, "/sessions/agent%201/save")
    assert saved["session_id"] == "agent 1" and saved["tokens"] >= 256
    post(first, "/sessions/agent%202/save", 404)
    first.process.kill()
    second = start(*FLAGS, *folder)
    assert post(second, "/sessions/agent%201/restore")["tokens"] == saved["tokens"]
    read = second.metric("kv_store_read_pages_total")
    got, cached = answer(second, STORY, session_id="agent 1")
    assert got == want and cached >= 256
    assert second.metric("kv_store_read_pages_total") == read > 0
    post(second, "/sessions/agent%201/delete")
    post(second, "/sessions/agent%201/restore", 404)


def test_slots_of_llama_cpp(start, tmp_path):
    server = start(*FLAGS, "--kv-cache-dir", str(tmp_path / "pages"))
    want, _ = answer(server, STORY, id_slot=0)
    saved = post(server, "/slots/0?action=save", filename="slot.bin")
    assert saved["id_slot"] == 0 and saved["n_saved"] >= 256 and saved["timings"]["save_ms"] >= 0
    assert post(server, "/slots/0?action=erase")["n_erased"] == saved["n_saved"]
    assert server.call("/flush_cache", b"{}")[0] == 200
    assert post(server, "/slots/1?action=restore", filename="slot.bin")["n_restored"] == saved["n_saved"]
    got, cached = answer(server, STORY, id_slot=1)
    assert got == want and cached >= 256
    post(server, "/slots/1?action=restore", 404, filename="../slot.bin")


@pytest.mark.parametrize("seed", range(3))
def test_a_server_killed_while_it_writes_answers_the_same_afterwards(start, tmp_path, seed):
    plan = random.Random(seed)
    folder = ("--kv-cache-dir", str(tmp_path / "pages"), "--hicache-storage-prefetch-policy", "wait_complete")
    rounds = [[f"{k}.{i}. {STORY}" for i in range(4)] for k in range(3)]
    alone = start(*FLAGS)
    want = {prompt: answer(alone, prompt)[0] for prompts in rounds for prompt in prompts}
    for prompts in rounds:
        server = start(*FLAGS, *folder)

        def ask(prompt, server=server):
            try:
                assert answer(server, prompt)[0] == want[prompt]
            except (OSError, http.client.HTTPException):
                pass  # it was killed

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
        for thread in threads:
            thread.start()
        least, deadline = plan.randint(1, 12), time.monotonic() + 30
        while server.metric("backuped_pages_total") < least:
            assert time.monotonic() < deadline, f"{least} pages are written within 30 s"
            time.sleep(0.002)
        server.process.kill()
        for thread in threads:
            thread.join(60)
    last = start(*FLAGS, *folder)
    for prompt, said in want.items():
        assert answer(last, prompt)[0] == said
    assert last.metric("kv_store_read_pages_total") > 0, "what was written before the kills is read"
    assert last.metric("kv_store_damaged_pages_total") == 0
