"""Installs from a built tree: the folder that holds HOCKET_BIN, else build/release."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("HOCKET_BIN", ROOT / "build/release/hocket"))
BUILD = BINARY.parent
MODEL = ROOT / "models/hocket-tiny-qwen3-moe"


def run(*command, **options):
    """Runs a command and returns its output; fails the test if the status is not 0."""
    options.setdefault("timeout", 120)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Returns a prefix that `cmake --install` has filled, or the one that HOCKET_PREFIX names."""
    if "HOCKET_PREFIX" in os.environ:
        return Path(os.environ["HOCKET_PREFIX"])
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix, "--strip")
    return prefix


@pytest.fixture(scope="session")
def library_folder(installed):
    (library,) = installed.glob("lib*/**/libhocket.so.0")
    return library.parent
