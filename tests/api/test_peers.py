"""Services that give each other pages: prompts computed apart from answers, and a prefill service that is killed."""

import http.client
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, free_port

sys.path.insert(0, str(ROOT / "tests" / "hosts"))

from page_proxy import PageProxy

PROMPT = "The two halves of a hocket sing in turn, and each rests while the other sounds. " * 12
FLAGS = ("--max-total-tokens", "8192", "--chunked-prefill-size", "32")


def prefill_service(start, folder):
    """Returns the service and the address at which it offers pages."""
    address = f"127.0.0.1:{free_port()}"
    flags = ("--disaggregation-mode", "prefill", "--kv-cache-listen", address, "--kv-cache-dir", str(folder))
    return start(*flags, *FLAGS), address


def decode_service(start, address):
    return start("--disaggregation-mode", "decode", "--disaggregation-prefill-url", address, *FLAGS)


def answer(server, prompt=PROMPT):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
    status, _, text = server.call("/v1/completions", json.dumps(body).encode())
    assert status == 200, text
    return json.loads(text)


def wait_for(is_so, what, limit_s=20):
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.005)


def test_prefill_apart_from_decode_gives_the_same_answer(start, tmp_path):
    prefill, address = prefill_service(start, tmp_path / "pages")
    decode = decode_service(start, address)
    got, want = answer(decode), answer(start(*FLAGS))
    assert got["choices"] == want["choices"]
    assert got["usage"]["prompt_tokens_details"]["cached_tokens_details"]["peer"] >= 256
    assert decode.metric("kv_peer_prefills_total") == 1
    assert prefill.metric("kv_served_prefills_total") == 1
    assert decode.metric("kv_peer_pages_total") == prefill.metric("kv_served_pages_total") > 0


def test_roles_change_while_services_run(start, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    prefill = start("--kv-cache-listen", address, "--kv-cache-dir", str(tmp_path / "pages"), *FLAGS)
    decode = decode_service(start, address)

    def change(server, mode):
        status, _, text = server.call("/disaggregation_mode", json.dumps({"mode": mode}).encode())
        return status, json.loads(text)

    want = [answer(start(*FLAGS), f"{i}. {PROMPT}")["choices"] for i in range(3)]
    assert answer(decode, f"0. {PROMPT}")["choices"] == want[0]
    assert decode.metric("kv_peer_prefills_total") == 0, "the other computes no prompts of others yet"
    assert change(prefill, "prefill") == (200, {"disaggregation_mode": "prefill", "takes_prompts": True, "sends_prompts": False})
    assert answer(decode, f"1. {PROMPT}")["choices"] == want[1]
    assert decode.metric("kv_peer_prefills_total") == 1
    assert change(decode, "null")[0] == 200
    assert answer(decode, f"2. {PROMPT}")["choices"] == want[2]
    assert decode.metric("kv_peer_prefills_total") == 1
    for server, mode in ((prefill, "decode"), (decode, "prefill"), (decode, "auto"), (decode, "both")):
        assert change(server, mode)[0] == 400
    assert decode.get("/disaggregation_mode")[0] == 200
    info = json.loads(prefill.get("/get_server_info")[2])
    assert info["disaggregation"]["disaggregation_mode"] == "prefill"


def test_a_killed_prefill_service_costs_no_answer(start, tmp_path):
    alone = start(*FLAGS)
    prefill, address = prefill_service(start, tmp_path / "pages")
    proxy = PageProxy(address, 1)
    decode = decode_service(start, proxy.address)
    prompts = [f"{i}. {PROMPT}" for i in range(8)]
    got = {}

    def ask(i):
        got[i] = answer(decode, prompts[i])["choices"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    wait_for(lambda: decode.metric("kv_peer_pages_total") > 0 and proxy.held.is_set(), "pages come")
    prefill.process.kill()
    proxy.close()
    for thread in threads:
        thread.join(60)
    assert got == {i: answer(alone, prompt)["choices"] for i, prompt in enumerate(prompts)}
    assert answer(decode, PROMPT)["choices"] == answer(alone)["choices"]


STATES = {"before its prompt is taken": 0, "while its pages arrive": 3, "while it decodes": None}


@pytest.mark.parametrize("state", STATES)
def test_a_killed_decode_service_leaves_nothing_behind(start, tmp_path, state):
    """Its client sees the end of the connection at once; the prefill service frees all, and the next decode service gives the answer."""
    prefill, address = prefill_service(start, tmp_path / "pages")
    proxy = PageProxy(address, STATES[state])
    decode = decode_service(start, proxy.address)
    prompt, ends = "In turn they sing, and rest. " * 200, {}
    body = json.dumps({"prompt": prompt, "max_tokens": 1200, "temperature": 0, "ignore_eos": True, "stream": True}).encode()

    def ask():
        try:
            ends["status"], _, ends["text"] = decode.call("/v1/completions", body)
        except (OSError, http.client.HTTPException) as reason:
            ends["broke"] = repr(reason)

    client = threading.Thread(target=ask)
    client.start()
    if state == "before its prompt is taken":
        wait_for(lambda: decode.metric("num_decode_transfer_queue_reqs") == 1 and proxy.held.is_set(), "the request is held")
    elif state == "while its pages arrive":
        wait_for(lambda: decode.metric("kv_peer_pages_total") > 0 and proxy.held.is_set(), "pages come")
        assert decode.metric("num_decode_transfer_queue_reqs") == 1
    else:
        wait_for(lambda: decode.metric("generation_tokens_total") > 20, "tokens come")
    decode.process.kill()
    client.join(5)
    assert not client.is_alive(), "the client learns it within 5 s"
    assert "broke" in ends or b"[DONE]" not in ends["text"], "the answer had ended before the fault"
    proxy.close()
    for name in ("num_running_reqs", "num_queue_reqs", "num_private_pages"):
        wait_for(lambda name=name: prefill.metric(name) == 0, f"{name} is 0 at the prefill service")
    got = answer(decode_service(start, address), prompt)
    assert got["choices"] == answer(start(*FLAGS), prompt)["choices"]
    assert got["usage"]["prompt_tokens_details"]["cached_tokens"] >= 256


HANGING_NAMES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
int getaddrinfo(const char* host, const char* port, const struct addrinfo* hints, struct addrinfo** found) {
  while (host != NULL && strcmp(host, "peer.that.hangs") == 0) pause();
  return ((int (*)(const char*, const char*, const struct addrinfo*, struct addrinfo**))dlsym(RTLD_NEXT, "getaddrinfo"))(
      host, port, hints, found);
}
"""


def test_a_name_service_that_hangs_stops_neither_answers_nor_the_end(start, tmp_path, monkeypatch):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler for names that hang")
    want = answer(start(*FLAGS))["choices"]
    (tmp_path / "hang.c").write_text(HANGING_NAMES)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "hang.so", tmp_path / "hang.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "hang.so"))
    decode = decode_service(start, "peer.that.hangs:8998")
    begin = time.monotonic()
    assert answer(decode)["choices"] == want
    assert time.monotonic() - begin < 15
    assert decode.stop(15) == 0
    assert "has not answered for 5 s" in decode.log_path.read_text()


def test_an_outside_router_names_the_prefill_service(start, tmp_path):
    """It sends the request to both services, as SGLang's does; only hosts that the decode service knows are asked."""
    prefill, address = prefill_service(start, tmp_path / "pages")
    decode = decode_service(start, address)
    host, port = address.split(":")
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
    body |= {"bootstrap_host": host, "bootstrap_port": int(port), "bootstrap_room": 7}
    got = {}

    def ask(name, server):
        status, _, text = server.call("/v1/completions", json.dumps(body).encode())
        assert status == 200, text
        got[name] = json.loads(text)

    threads = [threading.Thread(target=ask, args=pair) for pair in (("prefill", prefill), ("decode", decode))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    want = answer(start(*FLAGS))
    assert got["decode"]["choices"] == want["choices"]
    assert got["decode"]["usage"]["prompt_tokens_details"]["cached_tokens"] >= 256
    assert got["prefill"]["usage"]["completion_tokens"] == 1
    assert prefill.metric("prompt_tokens_total") - prefill.metric("cached_tokens_total") < 1.5 * want["usage"]["prompt_tokens"]
    body["bootstrap_port"] = 1
    status, _, text = decode.call("/v1/completions", json.dumps(body).encode())
    assert status == 400 and "disaggregation-prefill-url" in text.decode()
    status, _, text = start(*FLAGS).call("/v1/completions", json.dumps(body).encode())
    assert status == 400 and "bootstrap_host" in text.decode()
