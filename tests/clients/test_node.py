"""OpenAI's Node client: runs node/client.test.mjs with Node's own test runner, one line a test."""

import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import offers

FOLDER = pathlib.Path(__file__).resolve().parent / "node"


def test_node_client(server):
    node = shutil.which("node")
    if node is None or not (FOLDER / "node_modules").is_dir():
        pytest.skip("Node 20 with `npm ci` in tests/clients/node is not here")
    offered = " ".join(f for f in ("tools", "grammar") if offers(server, f))
    ended = subprocess.run([node, "--test", "--test-reporter=tap", str(FOLDER / "client.test.mjs")], capture_output=True, text=True,
                           timeout=120, env={**os.environ, "HOCKET_URL": server.url, "HOCKET_OFFERS": offered})
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "# fail 0" in ended.stdout and "# pass 0" not in ended.stdout
