"""llama.cpp's llama-server with one slot, for kept_prefixes.py: it asks for one token and saves and restores the slot. And the shape of
its model, from the GGUF file."""

import http.client
import json
import os
import math
import pathlib
import struct
import subprocess
import time

from started_server import StartedServer

# Scalars of GGUF by the number of their type; 8 is a string, 9 an array.
SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")
STRING, ARRAY = 8, 9


def gguf_shape(name):
    """Returns the shape of the model in a GGUF file, by the names that kept_prefixes.py prints, and the bits of its file for each weight."""
    with open(name, "rb") as file:

        def take(form):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind):
            if kind == STRING:
                return file.read(take("Q")).decode(errors="replace")
            if kind == ARRAY:
                inner, count = take("I"), take("Q")
                return [value(inner) for _ in range(count)]
            return take(SCALARS[kind])

        assert file.read(4) == b"GGUF", f"{name} is not a GGUF file"
        take("I")  # the version
        num_tensors, num_values = take("Q"), take("Q")
        values = {}
        for _ in range(num_values):
            key = value(STRING)
            values[key] = value(take("I"))
        num_weights = 0
        for _ in range(num_tensors):
            value(STRING)
            num_weights += math.prod([take("Q") for _ in range(take("I"))])
            file.read(12)  # the type and the place

    def find(key):
        return values.get(f"{values['general.architecture']}.{key}", 0)

    heads = find("attention.head_count")
    shape = {
        "layers": find("block_count"),
        "hidden": find("embedding_length"),
        "heads": heads,
        "KV heads": find("attention.head_count_kv") or heads,
        "head": find("attention.key_length") or find("embedding_length") // max(1, heads),
        "experts": find("expert_count"),
        "of a token": find("expert_used_count"),
        "expert": find("expert_feed_forward_length") or find("feed_forward_length"),
    }
    return shape, 8 * os.path.getsize(name) / max(1, num_weights)


class LlamaServer(StartedServer):
    """Serves `model` with one slot of `num_tokens` on all cores of this process. A saved slot is a file in `folder`."""

    def __init__(self, program, model, folder, port, num_tokens, flags=(), timeout=600):
        self.port, self.timeout = port, timeout
        self.log = pathlib.Path(folder, f"llama-log-{port}")
        self.slots = pathlib.Path(folder, "llama-slots")
        self.slots.mkdir(exist_ok=True)
        command = [program, "-m", model, "-c", str(num_tokens), "-np", "1", "-t", str(len(os.sched_getaffinity(0)))]
        command += ["--host", "127.0.0.1", "--port", str(port), "--slot-save-path", f"{self.slots}/"]
        # It would copy each prompt to a cache in memory when the next one takes the slot; the copy is no part of the comparison.
        if "--cache-ram" in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
            command += ["--cache-ram", "0"]
        self.begin([*command, *flags], self.log, timeout)

    def is_ready(self):
        return self._answer("GET", "/health").status == 200

    def _answer(self, method, path, body=None):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        client.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        return client.getresponse()

    def change_slot(self, action):
        """Saves, restores or erases the slot; returns the seconds that took."""
        begin = time.monotonic()
        answer = self._answer("POST", f"/slots/0?action={action}", {"filename": "kept.bin"})
        text = answer.read()
        assert answer.status == 200, text
        return time.monotonic() - begin

    def slot_bytes(self):
        """The size of the saved slot."""
        return (self.slots / "kept.bin").stat().st_size

    def ask(self, ids):
        """Returns the seconds to the first token, that token, and how many tokens of the prompt were computed."""
        body = {"prompt": ids, "n_predict": 1, "temperature": 0, "ignore_eos": True, "stream": True, "cache_prompt": True, "id_slot": 0}
        begin = time.monotonic()
        answer = self._answer("POST", "/completion", body)
        assert answer.status == 200, answer.read()
        ttft, tokens, computed = 0.0, [], -1
        for line in answer:
            if not line.startswith(b"data: {"):
                assert not line.startswith(b"error"), line
                continue
            ttft = ttft or time.monotonic() - begin
            event = json.loads(line[6:])
            assert "error" not in event, event
            tokens += event.get("tokens", [])
            computed = event.get("timings", {}).get("prompt_n", computed)
        return ttft, tokens, computed
