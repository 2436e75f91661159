"""The wheel of deploy/wheel.sh: what is in it, and its program in a venv that has nothing else."""

import json
import os
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, run

# Every system of the manylinux policies has these, so auditwheel leaves them out.
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libz)\.so")


@pytest.fixture(scope="module")
def program(python):
    return python.parent / "hocket"


@pytest.fixture(scope="module")
def package(python):
    (folder,) = python.parent.parent.glob("lib/python*/site-packages/hocket")
    return folder


def test_it_is_for_every_python_of_this_glibc(wheel):
    assert re.fullmatch(r"hocket-0\.1\.0-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name)
    assert tuple(map(int, re.findall(r"2_(\d+)", wheel.name))) >= (36,)


def test_the_same_tree_gives_the_same_wheel(wheel, make_wheel, tmp_path):
    assert make_wheel(tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("file", ["bin/hocket", "bin/hocket-bench", "lib/libhocket.so.0"])
def test_all_that_it_loads_is_inside(package, file):
    lines = [line.split() for line in run("ldd", package / file).splitlines()]
    others = {words[0]: words[2] for words in lines if not OF_THE_SYSTEM.match(os.path.basename(words[0]))}
    assert len(others) >= 5
    for name, place in others.items():
        assert os.path.realpath(place).startswith(str(package.parent / "hocket.libs")), name


def test_all_that_is_inside_has_its_licence(wheel):
    """auditwheel lists the packages from which it took libraries; the crates and the page are in the program."""
    with zipfile.ZipFile(wheel) as files:
        info = next(name for name in files.namelist() if name.endswith(".dist-info/"))
        taken = json.loads(files.read(f"{info}sboms/auditwheel.cdx.json"))["components"]
        licences = files.read(f"{info}licenses/LICENSES-of-others.txt").decode()
        assert "Apache License" in files.read(f"{info}licenses/LICENSE").decode()
    named = {line.split()[1].rstrip(",") for line in licences.splitlines() if line.startswith("=== ")}
    libraries = {one["name"] for one in taken} - {"hocket"}
    assert len(libraries) >= 5 and libraries <= named
    assert set(json.loads((ROOT / "web/package.json").read_text(encoding="utf-8"))["dependencies"]) <= named
    crates = set(re.findall(r'^ "([\w-]+)', (ROOT / "rust/Cargo.lock").read_text(encoding="utf-8").split('name = "hocket_rs"')[1].split("]")[0], re.M))
    assert len(crates) >= 9 and crates <= named


def test_the_demo_answers(program):
    said = run(program, "demo", "--once", cwd="/", env={"PATH": os.environ["PATH"]})
    assert "\nmodel  42\n" in said and "same answer" in said
    assert "from " in said and "hocket/share/hocket/models/hocket-tiny-qwen3-moe" in said


def test_words_and_status_are_the_programs(program):
    done = subprocess.run([program, "serve", "--contxt-length", "4 k"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--context-length" in done.stderr, done.stderr


def test_the_program_runs_without_the_library(program):
    assert run(program, "version", env=dict(os.environ, HOCKET_LIBRARY="/nowhere/libhocket.so"))


def test_without_an_installation_the_wheel_is_python_alone(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "HOCKET_PREFIX"}
    run("cp", "-r", ROOT / "python", tmp_path / "source")  # a build leaves files beside the source
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, tmp_path / "source", env=environment)
    (made,) = tmp_path.glob("*.whl")
    assert made.name == "hocket-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(made) as files:
        folders = {name.split("/")[0] for name in files.namelist()}
        assert not [name for name in files.namelist() if "bin/" in name or ".so" in name]
    assert folders == {"hocket", "hocket-0.1.0.dist-info"}
