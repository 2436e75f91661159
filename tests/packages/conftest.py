"""Installs from a built tree: the folder that holds HOCKET_BIN, else build/release."""

import os
import shutil
import subprocess
import sys
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


@pytest.fixture(scope="session")
def make_wheel():
    """Returns a function that makes the wheel in a folder, with the packages of this Python, and returns its path."""
    if not shutil.which("dpkg-query"):
        pytest.skip("licences of libraries are known on Debian alone")

    def make(folder):
        run(ROOT / "deploy/wheel.sh", "-b", BUILD, "-o", folder, env=dict(os.environ, PYTHON=sys.executable), timeout=400)
        (made,) = folder.glob("hocket-*.whl")
        return made

    return make


@pytest.fixture(scope="session")
def wheel(make_wheel, tmp_path_factory):
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def python(wheel, tmp_path_factory):
    """Returns the Python of a venv into which the wheel alone is installed."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", "--no-index", wheel)
    return venv / "bin/python"
