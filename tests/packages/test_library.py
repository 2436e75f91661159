"""libhocket.so from a C program: header, pkg-config, CMake, and no exported names beyond the header."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, MODEL, ROOT, run

SUM = ROOT / "tests/packages/sum.c"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


@pytest.fixture(scope="module")
def environment(installed, library_folder):
    return dict(os.environ, PKG_CONFIG_PATH=str(library_folder / "pkgconfig"), LD_LIBRARY_PATH=str(library_folder))


@pytest.fixture(scope="module")
def program(environment, tmp_path_factory):
    """Compiles sum.c as C99 with the flags of pkg-config; returns the program's path."""
    out = tmp_path_factory.mktemp("c") / "sum"
    words = run("pkg-config", "--cflags", "--libs", "hocket", env=environment).split()
    run("cc", "-std=c99", *STRICT, SUM, *words, "-o", out)
    return out


@pytest.fixture(scope="module")
def said(program, environment):
    return run(program, MODEL, env=environment)


def test_a_c_program_gets_the_answer(said):
    assert said.splitlines()[0] == "42 finish=1"


def test_a_c_program_gets_the_error(said):
    assert "refused: temperature is -1, must be between 0 and 2" in said


@pytest.mark.parametrize("compiler, standard", [("cc", "c99"), ("cc", "c11"), ("c++", "c++11"), ("c++", "c++20")])
def test_the_header_is_both_languages(compiler, standard, tmp_path):
    suffix = ".c" if compiler == "cc" else ".cc"
    source = tmp_path / f"header{suffix}"
    source.write_text("#include <hocket/hocket.h>\nint main(void) { return HOCKET_OK; }\n")
    run(compiler, f"-std={standard}", *STRICT, f"-I{ROOT / 'include'}", "-fsyntax-only", source)


def test_only_the_names_of_the_header_leave_the_library(library_folder):
    header = (ROOT / "include/hocket/hocket.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"HOCKET_API [^;(]*?\b(hocket_\w+)\(", header))
    assert len(declared) > 15
    exported = set()
    for line in run("nm", "-D", "--defined-only", library_folder / "libhocket.so").splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version itself
            exported.add(name.split("@")[0])
    assert exported == declared


def test_the_name_of_the_library_has_its_version(library_folder):
    assert "SONAME" in (found := run("readelf", "-d", library_folder / "libhocket.so")) and "[libhocket.so.0]" in found


def configure(folder, installed):
    run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={installed}")


def test_cmake_finds_it(installed, environment, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\nfind_package(hocket 0.1 REQUIRED)\n"
        f'add_executable(sum "{SUM}")\ntarget_link_libraries(sum PRIVATE hocket::hocket)\n'
    )
    configure(tmp_path, installed)
    run("cmake", "--build", tmp_path / "build")
    assert "42 finish=1" in run(tmp_path / "build/sum", MODEL, env=environment)


def test_cmake_refuses_another_version(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\nfind_package(hocket 7.0 QUIET)\n"
        'if(hocket_FOUND)\n  message(FATAL_ERROR "it took 0.1 for 7.0")\nendif()\n'
    )
    configure(tmp_path, installed)


def test_the_installed_server_finds_its_model(installed):
    """The installed server finds the model from another folder and without a flag."""
    answer = run(installed / "bin/hocket", "run", "-p", "What is 7 + 5?", "--temperature", "0", cwd="/")
    assert answer.splitlines()[-1] == "12"


def test_what_is_installed(installed):
    found = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    for name in ("bin/hocket", "bin/hocket-bench", "include/hocket/hocket.h", "share/man/man1/hocket.1", "share/bash-completion/completions/hocket"):
        assert name in found
    assert not [name for name in found if name.endswith((".a", ".o", ".cc"))]


def test_the_example_of_the_manual_compiles(environment, tmp_path):
    page = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
    (tmp_path / "sum.c").write_text(re.search(r"```c\n(.*?)```", page, re.S).group(1))
    words = run("pkg-config", "--cflags", "--libs", "hocket", env=environment).split()
    run("cc", "-std=c11", *STRICT, tmp_path / "sum.c", *words, "-o", tmp_path / "sum")
    assert run(tmp_path / "sum", env=environment, cwd=ROOT) == "42"


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_the_man_page_is_read_without_a_warning():
    command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(BUILD / "pages/hocket.1")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_no_library_is_looked_for_in_the_current_folder(installed, library_folder):
    """An empty name in a RUNPATH is the current folder."""
    for file in (BUILD / "hocket", BUILD / "hocket-bench", BUILD / "libhocket.so", installed / "bin/hocket", installed / "bin/hocket-bench", library_folder / "libhocket.so.0"):
        (path,) = re.findall(r"RUNPATH.*\[(.*)\]", run("readelf", "-d", file))
        assert path and all(name.startswith("$ORIGIN/") for name in path.split(":")), file
