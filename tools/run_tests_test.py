"""Tests the counts of the test runner on outputs in the form of each tool, and in which order it runs what."""

import argparse
import io
import signal
import sys
import tempfile
import threading
import time
import unittest
from functools import partial
from pathlib import Path
from unittest import mock

import run_tests

sys.path.insert(0, str(run_tests.ROOT / "tests/hosts"))

import harness  # noqa: E402

GTEST = """\
Running main() from gtest_main.cc
[==========] Running 4 tests from 1 test suite.
[ RUN      ] Mailbox.KeepsTheOrder
half a line[       OK ] Mailbox.KeepsTheOrder (12 ms)
[ RUN      ] Sums/Linear.Equals/3
src/linear_test.cc:9: Failure
Expected: 1
[  FAILED  ] Sums/Linear.Equals/3, where GetParam() = rows 3 (amx) (7 ms)
[ RUN      ] Machine.Amx
src/machine_test.cc:5: Skipped
no tiles here
[  SKIPPED ] Machine.Amx (0 ms)
[----------] Global test environment tear-down
[  PASSED  ] 1 test.
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Sums/Linear.Equals/3, where GetParam() = rows 3 (amx)
"""

PYTEST = """\
tests/api/test_chat.py::test_stream PASSED                               [ 33%]
tests/api/test_chat.py::test_names[a b] FAILED                           [ 66%]
tests/api/test_chat.py::test_slow SKIPPED (needs time)                   [100%]
=================================== FAILURES ===================================
E   assert 1 == 2
"""

CARGO = """\
running 3 tests
test marks::tests::spellings ... ok
test grammar::tests::masks ... FAILED
test template::tests::slow ... ignored, needs time
thread 'grammar::tests::masks' panicked at src/grammar.rs:9:5:
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""

TAP = """\
TAP version 13
# Subtest: chat answers
ok 1 - chat answers
  ---
  duration_ms: 812.3
  ...
# Subtest: live shows
not ok 2 - live shows
  ---
  duration_ms: 15.5
  error: '0 == 1'
  ...
ok 3 - the bundle # SKIP Vite needs another Node
1..3
"""

HOSTS = """\
ok      2 ranks, 2 hosts  3.1 s, ucx 1.13.1 | tcp
skipped 4 ranks, 4 hosts  namespaces need root
-- node0.log
rank 1 (h1) is not there
FAILED  fault: kill -9, hosts  4.0 s
late
"""


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        self.out = io.StringIO()
        self.tally = run_tests.Tally(self.out)

    def test_gtest_output_is_counted_by_test(self):
        unfinished, _ = run_tests.read_gtest("base", GTEST.splitlines(), self.tally)
        self.assertIsNone(unfinished)
        self.assertEqual(self.tally.passed, 1)
        self.assertEqual(self.tally.failed, ["base Sums/Linear.Equals/3"])
        self.assertEqual(self.tally.skipped, 1)
        self.assertIn("ok      base Mailbox.KeepsTheOrder  12 ms\n", self.out.getvalue())
        self.assertIn("    Expected: 1\nFAILED  base Sums/Linear.Equals/3  7 ms\n", self.out.getvalue())

    def test_a_test_that_takes_the_program_down_is_named(self):
        lines = "[ RUN      ] Pool.Ends\nCHECK failed: a < b\n".splitlines()
        unfinished, output = run_tests.read_gtest("base", lines, self.tally)
        self.assertEqual((unfinished, output), ("Pool.Ends", "CHECK failed: a < b"))

    def test_pytest_output_is_counted_by_test(self):
        rest = run_tests.read_pytest(PYTEST.splitlines(), self.tally)
        self.assertEqual(self.tally.passed, 1)
        self.assertEqual(self.tally.failed, ["tests/api/test_chat.py::test_names[a b]"])
        self.assertEqual(self.tally.skipped, 1)
        self.assertIn("E   assert 1 == 2", rest)

    def test_cargo_output_is_counted_by_test(self):
        rest = run_tests.read_cargo(CARGO.splitlines(), self.tally)
        self.assertEqual(self.tally.passed, 1)
        self.assertEqual(self.tally.failed, ["rust grammar::tests::masks"])
        self.assertEqual(self.tally.skipped, 1)
        self.assertIn("thread 'grammar::tests::masks' panicked at src/grammar.rs:9:5:", rest)

    def test_output_of_node_is_counted_by_test(self):
        run_tests.read_tap(TAP.splitlines(), self.tally)
        self.assertEqual((self.tally.passed, self.tally.skipped), (1, 1))
        self.assertEqual(self.tally.failed, ["page live shows"])
        self.assertIn("ok      page chat answers  812 ms\n", self.out.getvalue())
        self.assertIn("  error: '0 == 1'\n", self.out.getvalue())
        self.assertIn("skipped page the bundle  Vite needs another Node\n", self.out.getvalue())

    def test_output_of_ranks_and_hosts_is_counted_by_case(self):
        rest = run_tests.read_hosts(HOSTS.splitlines(), self.tally)
        self.assertEqual((self.tally.passed, self.tally.skipped), (1, 1))
        self.assertEqual(self.tally.failed, ["hosts fault: kill -9, hosts"])
        self.assertIn("skipped hosts 4 ranks, 4 hosts  namespaces need root\n", self.out.getvalue())
        self.assertIn("    rank 1 (h1) is not there\nFAILED  hosts fault", self.out.getvalue())
        self.assertEqual(rest, ["late"])

    def test_a_reference_without_a_model_is_not_checked_as_one(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("qwen3/config.json", "qwen3/reference.json", "sampling/reference.json"):
                (Path(folder) / path).parent.mkdir(exist_ok=True)
                (Path(folder) / path).write_text("{}", encoding="utf-8")
            self.assertEqual(run_tests.reference_models(Path(folder)), [Path(folder) / "qwen3"])

    def test_the_closing_line_and_status(self):
        self.tally.ok("one")
        self.assertEqual(self.tally.close(), 0)
        self.tally.fail("two")
        self.assertEqual(self.tally.close(), 1)
        self.assertTrue(self.out.getvalue().endswith("1 passed, 1 failed\n"))

    def test_no_test_at_all_is_a_failure(self):
        self.assertEqual(self.tally.close(), 1)

    def test_a_program_that_dies_is_reported(self):
        program = run_tests.Program(["sh", "-c", "echo here; kill -SEGV $$"])
        self.assertEqual(list(program.lines()), ["here"])
        self.assertEqual(program.end(), "died of SIGSEGV")

    def test_a_program_that_falls_silent_is_killed(self):
        with mock.patch.object(run_tests, "SILENCE_S", 0.5):
            program = run_tests.Program(["sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.2; done; sleep 60"])
            self.assertEqual(list(program.lines()), ["1", "2", "3", "4"])
            self.assertEqual(program.end(), "killed after 0.5 s of silence")

    def test_commands_that_prepare_may_be_silent(self):
        with mock.patch.object(run_tests, "SILENCE_S", 0.2):
            self.assertTrue(run_tests.run_command(self.tally, "build", ["sleep", "0.8"]))
        self.assertEqual(self.tally.failed, [])

    def test_a_script_that_dies_after_a_failed_case_is_one_more_failure(self):
        said = "print('FAILED  one  1 s', flush=True); import os, sys; "
        itself = "hosts faults --piece 1/3 (the program itself)"
        for end, more in (("os.kill(os.getpid(), 9)", [itself]), ("sys.exit(3)", [itself]), ("sys.exit(1)", [])):
            with self.subTest(end), tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "faults.py"
                script.write_text(said + end, encoding="utf-8")
                tally = run_tests.Tally(self.out)
                run_tests.run_script("hosts", [script, "--piece", "1/3"], None, tally)
                self.assertEqual(tally.failed, ["hosts one", *more])

    def test_an_end_of_pytest_that_failed_tests_do_not_explain_is_one_more_failure(self):
        self.tally.fail("tests/api/test_chat.py::test_stream")
        for status, more in (("", 0), ("exit 1", 0), ("exit 3", 1), ("died of SIGKILL", 1)):
            before = len(self.tally.failed)
            run_tests.report_end(status, self.tally, before - 1, "api 0/2 (pytest itself)", ["a traceback"])
            self.assertEqual(len(self.tally.failed), before + more, status)
            self.assertIn("a traceback", self.out.getvalue().splitlines()[-1 - more])

    def test_the_pieces_of_a_program_hold_each_test_once(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "engine_test"
            program.write_text(
                "#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7 8; do\n"
                "[ $((i % GTEST_TOTAL_SHARDS)) = $GTEST_SHARD_INDEX ] || continue\n"
                "echo \"[ RUN      ] A.$i\"; echo \"[       OK ] A.$i (1 ms)\"; done\n",
                encoding="utf-8",
            )
            program.chmod(0o755)
            for job in run_tests.computing_jobs(Path(folder), ("unit",))[: run_tests.SHARDS["engine_test"]]:
                job(self.tally)
        names = sorted(line.split()[2] for line in self.out.getvalue().splitlines())
        self.assertEqual(names, [f"A.{i}" for i in range(9)])

    def test_the_pieces_of_a_script_hold_each_case_once(self):
        told, cases = [], [(f"case {i}", partial(str, i)) for i in range(7)] + [("another", str)]
        with mock.patch.object(harness, "need_ucx"), mock.patch("builtins.print", lambda line, **_: told.append(line)):
            for piece in range(3):
                self.assertTrue(harness.run(cases, argparse.Namespace(only="case", piece=f"{piece}/3")))
        self.assertEqual(sorted(run_tests.HOSTS_LINE.match(line).group(2) for line in told), [f"case {i}" for i in range(7)])

    def test_a_piece_without_a_case_is_refused(self):
        cases = [("case", str)]
        for only, piece, why in (("", "3/3", "0 to N - 1"), ("", "-1/3", "0 to N - 1"), ("", "1/2", "no case"), ("other", "0/1", "no case")):
            with self.subTest(piece, only=only), self.assertRaisesRegex(SystemExit, why):
                harness.run(cases, argparse.Namespace(only=only, piece=piece))

    def test_each_file_of_a_part_and_each_script_of_hosts_runs(self):
        began = []

        class Recorded:
            def __init__(self, words, _):
                began.append([str(word) for word in words])

            def lines(self):
                return []

            def end(self):
                return ""

        with mock.patch.object(run_tests, "Program", Recorded):
            for job in [*run_tests.serving_jobs(Path("build"), ("hosts",)), *run_tests.installed_serving_jobs(Path("build"), ("api",))]:
                job(self.tally)
        tests = run_tests.ROOT / "tests"
        files = [word for words in began for word in words if Path(word).name.startswith("test_")]
        self.assertEqual(sorted(files), sorted(map(str, (tests / "api").glob("test_*.py"))))
        scripts = {Path(words[1]).stem for words in began if words[1] != "-m"}
        self.assertEqual(scripts, {path.stem for path in (tests / "hosts").glob("*.py") if "harness.run(" in path.read_text(encoding="utf-8")})
        pieces = [words[-1] for words in began if words[1].endswith("tolerates.py")]
        self.assertEqual(pieces, [f"{i}/{run_tests.HOSTS['tolerates']}" for i in range(run_tests.HOSTS["tolerates"])])


def wait_until(holds):
    until = time.monotonic() + 20
    while time.monotonic() < until and not holds():
        time.sleep(0.01)


class RunsTest(unittest.TestCase):
    """Jobs that only note that they ran, after something that the test has them do first."""

    def setUp(self):
        self.ran, self.folder = [], tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.begun = Path(self.folder.name) / "begun"

    def jobs(self, kind, *firsts):
        def job(tally, name, first):
            first()
            self.ran.append(name)
            tally.ok(name)

        named = [partial(job, name=kind + "+" * i, first=first) for i, first in enumerate(firsts or [lambda: None])]
        return mock.patch.object(run_tests, f"{kind}_jobs", lambda _build, _wanted: named)

    def run_with(self, make, install, *serving):
        """Runs one job of each kind; `serving` is what the jobs of servers that need no installed packages do first."""
        with mock.patch("sys.stdout", io.StringIO()) as self.out, self.jobs("computing"), self.jobs("installed"), self.jobs("alone"):
            with self.jobs("serving", *serving), self.jobs("installed_serving"):
                self.runs = run_tests.Runs(Path("build"), ("unit",))
                return self.runs.run(make, install)

    def when_begun(self, status=0):
        """Returns a command that ends with this status once the file `begun` is there."""
        return ["sh", "-c", f"for i in $(seq 1000); do [ -e {self.begun} ] && exit {status}; sleep 0.02; done; exit 99"]

    def test_servers_are_tested_while_programs_are_made_and_the_last_run_alone(self):
        total = self.run_with(self.when_begun(), ["true"], self.begun.touch)
        self.assertEqual((total.passed, total.failed), (5, []))
        self.assertEqual(self.ran[-1], "alone")
        self.assertLess(self.ran.index("computing"), self.ran.index("installed"))

    def test_after_a_failed_build_no_other_test_begins(self):
        def fail_the_build():
            self.begun.touch()
            wait_until(lambda: any(job.cancelled() for job in self.runs._begun))

        with mock.patch.object(run_tests, "serving_at_once", lambda _cores: 1):
            total = self.run_with(self.when_begun(3), self.when_begun(), fail_the_build, lambda: None)
        self.assertEqual(total.failed, ["build"])
        self.assertIn("build  exit 3\n", self.out.getvalue())
        self.assertEqual(set(self.ran) - {"installed_serving"}, {"serving"})

    def test_after_a_failed_install_tests_that_need_it_do_not_begin(self):
        for install in (["sh", "-c", "echo no network; exit 1"], [str(self.begun)]):
            self.ran.clear()
            total = self.run_with(["true"], install)
            self.assertEqual(total.failed, ["packages of the tests"])
            self.assertLessEqual(set(self.ran), {"serving", "computing"})

    def test_a_job_that_cannot_go_on_is_one_failure_and_all_others_run(self):
        def break_off():
            raise OSError("no such compiler")

        total = self.run_with(["true"], ["true"], break_off)
        self.assertEqual(total.passed, 4)
        self.assertEqual([name.split()[:2] for name in total.failed], [["job", "name=serving"]])
        self.assertEqual(self.ran[-1], "alone")
        self.assertIn("OSError: no such compiler\n", self.out.getvalue())

    def test_an_interrupt_ends_all_programs_and_no_other_begins(self):
        def interrupt():
            wait_until(self.begun.exists)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with mock.patch.object(run_tests.Program, "_stopped", False), mock.patch.object(run_tests, "LEAVE_S", 0.5):
            with self.assertRaises(KeyboardInterrupt):
                self.run_with(["sh", "-c", f"touch {self.begun}; trap '' INT; sleep 60 & wait"], ["true"], interrupt)
            self.runs._preparing.shutdown()  # it holds the thread that waits for the command
            late = run_tests.Program(["sleep", "60"])
            self.assertEqual((list(late.lines()), late.end()), ([], "died of SIGKILL"))
        self.assertNotIn("computing", self.ran)
        self.assertNotIn("alone", self.ran)


if __name__ == "__main__":
    unittest.main()
