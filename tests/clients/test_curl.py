"""Shell pipelines with curl, as people write them."""

import json
import subprocess

import pytest


@pytest.fixture
def sh(server):
    def run(script):
        ended = subprocess.run(["sh", "-ceu", script], env={"URL": server.url, "PATH": "/usr/bin:/bin"},
                               capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


SUM = '{"messages":[{"role":"user","content":"What is 17 + 25?"}],"temperature":0%s}'


def test_an_answer(sh):
    out = sh(f"curl -sf $URL/v1/chat/completions -d '{SUM % ''}'")  # without a Content-Type of JSON
    assert json.loads(out)["choices"][0]["message"]["content"] == "42"


def test_a_stream_line_by_line(sh):
    stream = SUM % ',"stream":true'
    out = sh(f"curl -sfN $URL/v1/chat/completions -d '{stream}' | sed -n 's/^data: //p' | grep -v DONE")
    text = "".join(c["delta"].get("content") or "" for line in out.splitlines() for c in json.loads(line)["choices"])
    assert text == "42"


def test_a_body_from_a_pipe_and_a_status(sh):
    body = SUM % ',"temperature_":1'
    out = sh(f"echo '{body}' | curl -s -o /dev/null -w '%{{http_code}}' -H 'Expect: 100-continue' -d @- $URL/v1/chat/completions")
    assert out == "400"


def test_head_of_a_stream_then_gone(sh, server):
    body = SUM.replace("What is 17 + 25?", "Tell me a story.") % ',"stream":true,"ignore_eos":true'
    out = sh(f"curl -sN $URL/v1/chat/completions -d '{body}' | head -n 3")
    assert out.startswith("data: {")
    server.wait_metric("num_running_reqs", 0)


def test_events_of_the_other_apis(sh):
    out = sh("""curl -sfN $URL/v1/messages -H 'anthropic-version: 2023-06-01' -H 'x-api-key: none' \
        -d '{"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}' | grep '^event:'""").splitlines()
    assert out[0] == "event: message_start" and out[-1] == "event: message_stop"
    out = sh("""curl -sfN $URL/v1/responses -d '{"input":"Hi","stream":true}' | grep '^event:'""").splitlines()
    assert out[0] == "event: response.created" and out[-1] == "event: response.completed"


def test_one_connection_many_questions(sh):
    one = f"-d '{SUM % ''}' $URL/v1/chat/completions"
    out = sh(f"curl -sf -w '%{{num_connects}}' {one} --next -sf -w '%{{num_connects}}' {one}")
    assert out.endswith("}0")
