"""--weight-cache from outside: the first start writes the packed weights, the second maps them, a third that may not write reports it."""

import json

import pytest
from conftest import until

QUESTION = b'{"model": "m", "prompt": "12 + 30 =", "max_tokens": 8, "temperature": 0, "logprobs": 3}'


def answer(server):
    status, _, body = server.call("/v1/completions", QUESTION, {"Content-Type": "application/json"})
    assert status == 200, body
    return json.loads(body)["choices"]


@pytest.mark.parametrize("flags", [(), ("--ep-size", "2")])
def test_a_second_start_maps_what_the_first_has_packed(start, tmp_path, flags):
    folder = tmp_path / "cache"
    ranks = 2 if flags else 1
    first = start("--weight-cache", str(folder), *flags)
    packed = answer(first)
    until(lambda: first.log_path.read_text().count("the next start maps them") == ranks)  # written while it serves
    files = sorted(folder.iterdir())
    assert [f.name.startswith("hocket-tiny-qwen3-moe-") and f.suffix == ".weights" for f in files] == [True] * ranks

    second = start("--weight-cache", str(folder), *flags)
    assert answer(second) == packed
    text = second.log_path.read_text()
    assert text.count("mapped from") == ranks and "packed again" not in text
    assert sorted(folder.iterdir()) == files
    assert [server.stop() for server in (first, second)] == [0, 0]


def test_what_cannot_be_written_is_said_and_nothing_else_changes(start, tmp_path):
    (tmp_path / "file").write_text("no folder")
    server = start("--weight-cache", str(tmp_path / "file"))
    answer(server)
    text = server.log_path.read_text()
    assert "changed: --weight-cache" in text and "name another folder" in text
    assert server.stop() == 0
