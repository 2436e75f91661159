"""Servers that are started with limits of the shell, or with closed standard files."""

import os
import resource
import subprocess

from conftest import BINARY, MODEL, free_port


def limited(limit, most):
    """Returns a preexec_fn that sets a limit, as `ulimit` does in a shell."""
    return lambda: resource.setrlimit(limit, (most, most))


def test_output_that_reaches_the_limit_of_a_file_is_an_error(tmp_path):
    with open(tmp_path / "man", "wb") as out:
        done = subprocess.run([BINARY, "docs", "man"], stdout=out, stderr=subprocess.PIPE, text=True, timeout=60,
                              preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
    assert done.returncode > 0, f"ended by signal {-done.returncode}"
    assert "the output cannot be written: File too large" in done.stderr


def close_standard_files():
    for number in range(3):
        os.close(number)


def test_closed_standard_files_are_not_given_to_others(start):
    server = start(preexec_fn=close_standard_files)
    for number in range(3):
        assert os.readlink(f"/proc/{server.process.pid}/fd/{number}") == "/dev/null"
    assert server.stop() == 0


def test_too_few_files_for_probes_and_a_client_stop_the_start(start):
    command = [BINARY, "serve", "--model-path", str(MODEL), "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limited(resource.RLIMIT_NOFILE, 160))
    assert done.returncode == 2
    assert "a server needs 161" in done.stderr and "ulimit -n 4256" in done.stderr
    server = start(preexec_fn=limited(resource.RLIMIT_NOFILE, 161))
    assert "--max-connections 4096 -> 1" in server.log_path.read_text()
