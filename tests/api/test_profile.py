"""Timelines: /start_profile, /stop_profile, and `hocket trace`, which reads the files that they wrote."""

import json
import subprocess
import time
from collections import defaultdict

import pytest
from conftest import BINARY


def post(server, path, body, expected=200):
    status, _, data = server.call(path, json.dumps(body).encode())
    assert status == expected, data
    return json.loads(data)


def generate(server, tokens):
    post(server, "/generate", {"text": ["One", "two", "three"], "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}})


def arrows(trace):
    ends = defaultdict(set)
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]].add(event["ph"])
    return ends


def steps(trace):
    return [event for event in trace["traceEvents"] if event.get("cat") == "step"]


def check_sums(trace):
    assert steps(trace)
    for event in steps(trace):
        args = event["args"]
        parts = sum(args[name] for name in ("compute_us", "other_us", "exposed_us", "waiting_us", "idle_us"))
        assert abs(parts - args["took_us"]) < 0.01


def text_of(*arguments):
    return subprocess.run([BINARY, "trace", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_a_profile_ends_after_its_steps(start, tmp_path, overlap):
    server = start("--overlap-schedule", overlap, "--admin-folder", str(tmp_path))
    told = post(server, "/start_profile", {"output_dir": "here", "num_steps": 3, "activities": ["CPU"]})
    assert told["profiling"] and told["ignored"] == ["activities"]
    generate(server, 12)
    file = tmp_path / told["files"][0]
    for _ in range(100):
        if file.exists():
            break
        time.sleep(0.05)
    trace = json.loads(file.read_text())
    assert len(steps(trace)) == 3
    check_sums(trace)
    assert not arrows(trace)
    assert "no profile runs" in post(server, "/stop_profile", {}, 400)["error"]["message"]
    assert "rank 0" in text_of(str(file))


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_ranks_of_a_process_are_in_one_file(start, tmp_path, overlap):
    server = start("--ep-size", "2", "--ep-link-gbit", "1", "--overlap-schedule", overlap, "--admin-folder", str(tmp_path))
    told = post(server, "/start_profile", {})
    assert "runs already" in post(server, "/start_profile", {}, 400)["error"]["message"]
    generate(server, 12)
    done = post(server, "/stop_profile", {})
    assert done["files"] == told["files"] and done["num_steps"] > 0
    trace = json.loads((tmp_path / done["files"][0]).read_text())
    check_sums(trace)
    by_rank = defaultdict(set)
    for event in steps(trace):
        by_rank[event["pid"]].add(event["args"]["step"])
    assert len(by_rank) == 2
    ends = arrows(trace)
    assert ends and all(both == {"s", "f"} for both in ends.values())
    drawn = text_of(done["files"][0], "--width", "2000")  # so that the shortest transfer has a character
    assert "rank 0" in drawn and "rank 1" in drawn and "dispatch" in drawn
