#!/usr/bin/env python3
"""Runs the tests, prints the name of each, and ends with `N passed, N failed`; exit 1 if one failed.

    tools/run_tests.py --build BUILD [PART...] [--seeds N] [--first-seed F]      without a part: all except clients
    tools/run_tests.py --build BUILD --jobs N --install     the same, while all programs of BUILD are made, and what tests need is installed

Tests that compute have all cores; beside them run tests of servers, which mostly wait. Hostile clients, whose cases have short limits
of time, come last and alone.

Parts: unit (the rooms' *_test programs except kernels, and the tests of Rust and of the tools), kernels, scenarios and simulation
(only those test suites; --seeds is the number of random stories, --first-seed the first of them),
golden (golden suites and `hocket check`), api (the Python client), clients (third-party clients in Python, Node and shell),
manifests (`deploy/` against the schemas of its readers), packages (installed files: C library, Python package, man page, site),
hosts (ranks in processes and hosts of their own, with faults), hostile (a minute's sample of malicious clients),
page (the page in a headless Chromium, and a check that its bundle was built from its source).
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import check_units

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("unit", "kernels", "scenarios", "simulation", "golden", "api", "clients", "manifests", "packages", "page", "hosts", "hostile")
SUITES = {"scenarios": "*Scenario*", "simulation": "*Simulation*", "golden": "*Golden*"}  # inside the rooms' programs
SILENCE_S = 600  # a program that prints nothing for so long hangs, which is a failure
STATUSES_OF_FAILED_TESTS = ("exit 1", "exit 101")  # the second is cargo's
LEAVE_S = 10  # within which programs end at Ctrl-C
SHARDS = {"engine_test": 4, "server_test": 2}  # these run for minutes: pieces of them keep all cores busy to the end
# Scripts of tests/hosts, the long ones first, and in how many pieces each runs.
HOSTS = {"tolerates": 3, "faults": 3, "equality": 2, "random_faults": 1, "comes_back": 1, "apart": 1, "etcd": 1, "strangers": 1}
API_PIECES = 2
FORCED_ISAS = ("ref", "avx2", "avx512", "avx512_bf16", "amx", "amx_emulated")
USAGE_STATUS = 2  # exit status of `hocket` for an instruction set that this machine lacks


class Tally:
    """Counts and prints results, one line a test."""

    def __init__(self, out=None):
        self.passed, self.failed, self.skipped = 0, [], 0
        self.out = out or sys.stdout

    def line(self, text):
        self.out.write(text + "\n")  # in one write, since other threads print too
        self.out.flush()

    def ok(self, name, detail=""):
        self.passed += 1
        self.line(f"ok      {name}  {detail}".rstrip())

    def skip(self, name, why=""):
        self.skipped += 1
        self.line(f"skipped {name}  {why}".rstrip())

    def fail(self, name, output="", detail=""):
        self.failed.append(name)
        above = [f"    {text}" for text in output.rstrip().splitlines()]
        self.line("\n".join([*above, f"FAILED  {name}  {detail}".rstrip()]))

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def close(self):
        for name in self.failed:
            self.line(f"failed: {name}")
        if self.skipped:
            self.line(f"{self.skipped} skipped")
        self.line(f"{self.passed} passed, {len(self.failed)} failed")
        return 0 if self.passed and not self.failed else 1


class Program:
    """Runs a program and gives its lines. After SILENCE_S without one it is killed, with all processes that it started, unless it may
    be silent."""

    _running, _lock, _stopped = set(), threading.Lock(), False

    def __init__(self, command, environment=None, may_be_silent=False):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=(environment or os.environ) | {"PYTHONUNBUFFERED": "1"},
            cwd=ROOT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.timed_out = False
        self.last_line = time.monotonic()
        self.ended = threading.Event()
        with self._lock:
            self._running.add(self)
            stopped = self._stopped
        if stopped:
            self._signal(signal.SIGKILL)
        if not may_be_silent:
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while not self.ended.wait(max(0, self.last_line + SILENCE_S - time.monotonic())):
            if time.monotonic() - self.last_line >= SILENCE_S:
                self.timed_out = True
                self._signal(signal.SIGKILL)
                return

    def _signal(self, number):
        """Sends a signal to the program and all that it started, which have no share in Ctrl-C at the terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    @classmethod
    def stop_all(cls):
        """Interrupts all programs, kills those that have not ended after LEAVE_S, and each that begins later."""
        with cls._lock:
            cls._stopped = True
            running = list(cls._running)
        for program in running:
            program._signal(signal.SIGINT)
        until = time.monotonic() + LEAVE_S
        for program in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(max(0, until - time.monotonic()))
            program._signal(signal.SIGKILL)

    def lines(self):
        for line in self.process.stdout:
            self.last_line = time.monotonic()
            yield line.rstrip("\n")

    def end(self):
        """Waits for the end and returns the exit status in words; empty if it is 0."""
        status = self.process.wait()
        self.ended.set()
        self.process.stdout.close()
        with self._lock:
            self._running.discard(self)
        if self.timed_out:
            return f"killed after {SILENCE_S} s of silence"
        if status < 0:
            return f"died of {signal.Signals(-status).name}"
        return f"exit {status}" if status else ""


def is_unexplained(status, tally, failed_before):
    """Returns True if failed tests do not explain a program's end, such as a death after the first of them: other tests never ran."""
    return bool(status) and (status not in STATUSES_OF_FAILED_TESTS or len(tally.failed) == failed_before)


def report_end(status, tally, failed_before, name, rest):
    """Prints the lines that are no results, if a test has failed, and counts an end that failed tests do not explain."""
    failed = len(tally.failed) > failed_before
    if is_unexplained(status, tally, failed_before):
        tally.fail(name, "\n".join(rest if failed else rest[-40:]), status)
    elif failed:
        tally.line("\n".join(rest))


GTEST_START = re.compile(r"^\[ RUN      \] (\S+)")
GTEST_END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$")  # may follow text that the test printed


def read_gtest(room, lines, tally):
    """Counts the tests in a GoogleTest program's output; returns (name, output) of the test that did not finish."""
    running, output, loose = None, [], []
    for line in lines:
        start = GTEST_START.match(line)
        end = GTEST_END.search(line)
        if start:
            running, output = start.group(1), []
        elif running and end and end.group(2) == running:
            name, detail = f"{room} {running}", f"{end.group(3)} ms"
            verdict = end.group(1)
            if verdict == "OK":
                tally.ok(name, detail)
            elif verdict == "SKIPPED":
                tally.skip(name, " ".join(output[1:2]).strip())
            else:
                tally.fail(name, "\n".join(output), detail)
            running, output = None, []
        else:
            (output if running else loose).append(line)
    return running, "\n".join(output if running else loose[-40:])


def run_gtest(program, tally, only="*", shard=0):
    """Runs the tests of one of the program's pieces (SHARDS), in a folder for files of its own, since others run beside it."""
    room = program.name.removesuffix("_test")
    with tempfile.TemporaryDirectory() as files:
        shards = {"GTEST_TOTAL_SHARDS": str(SHARDS.get(program.name, 1)), "GTEST_SHARD_INDEX": str(shard)}
        environment = dict(os.environ, GTEST_COLOR="no", TEST_TMPDIR=f"{files}/", **shards)
        running = Program([program, f"--gtest_filter={only}"], environment)
        failed_before = len(tally.failed)
        unfinished, output = read_gtest(room, running.lines(), tally)
        status = running.end()
        if unfinished:
            tally.fail(f"{room} {unfinished}", output, status or "ended early")
        elif is_unexplained(status, tally, failed_before):
            tally.fail(f"{room} {shard}/{SHARDS.get(program.name, 1)} (the program itself)", output, status)


PYTEST_LINE = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")


def read_pytest(lines, tally):
    """Counts `pytest -v` lines; returns all other lines, which hold the tracebacks."""
    rest = []
    for line in lines:
        match = PYTEST_LINE.match(line)
        if not match:
            rest.append(line)
        elif match.group(2) in ("PASSED", "XFAIL"):
            tally.ok(match.group(1))
        elif match.group(2) == "SKIPPED":
            tally.skip(match.group(1))
        else:
            tally.fail(match.group(1))
    return rest


def run_pytest(build, tally, part, piece=0, pieces=1):
    files = sorted((ROOT / "tests" / part).glob("test_*.py"))[piece::pieces]
    if not files:
        return
    venv = ROOT / ("build/venv-clients/bin/python" if part == "clients" else "build/venv/bin/python")
    python = venv if venv.is_file() else sys.executable
    environment = dict(os.environ, HOCKET_BIN=str(build / "hocket"))
    running = Program([python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short", *files], environment)
    failed_before = len(tally.failed)
    rest = read_pytest(running.lines(), tally)
    report_end(running.end(), tally, failed_before, f"{part} {piece}/{pieces} (pytest itself)", rest)


HOSTS_LINE = re.compile(r"^(ok|skipped|FAILED) +(\S.*?)(?:  (.*))?$")


def read_hosts(lines, tally, part="hosts"):
    """Counts result lines in the form of tests/hosts. Lines before a failed test are its output. Returns the lines after the last test."""
    output = []
    for line in lines:
        match = HOSTS_LINE.match(line)
        if not match:
            output.append(line)
            continue
        verdict, name, detail = match.group(1), f"{part} {match.group(2)}", match.group(3) or ""
        if verdict == "ok":
            tally.ok(name, detail)
        elif verdict == "skipped":
            tally.skip(name, detail)
        else:
            tally.fail(name, "\n".join(output), detail)
        output = []
    return output


def run_hosts(build, tally, script, piece=0, pieces=1):
    environment = dict(os.environ, HOCKET_BIN=str(build / "hocket"))
    words = ["--piece", f"{piece}/{pieces}"] if pieces > 1 else []
    run_script("hosts", [ROOT / f"tests/hosts/{script}.py", *words], environment, tally)


def run_hostile(build, tally):
    environment = dict(os.environ, HOCKET_BIN=str(build / "hocket"))
    run_script("hostile", [ROOT / "tests/hostile/hostile.py", "--sample"], environment, tally)


def run_script(part, words, environment, tally):
    """Runs a Python program that prints results in the form of tests/hosts."""
    running = Program([sys.executable, *words], environment)
    failed_before = len(tally.failed)
    rest = read_hosts(running.lines(), tally, part)
    status = running.end()
    if is_unexplained(status, tally, failed_before):
        tally.fail(" ".join([part, words[0].stem, *words[1:], "(the program itself)"]), "\n".join(rest[-40:]), status)


UNITTEST_LINE = re.compile(r"^(\w+) \((\S+)\)(?:.*)? \.\.\. (ok|FAIL|ERROR|skipped.*)$")


def run_tools(tally):
    running = Program([sys.executable, "-m", "unittest", "discover", "-v", "-s", ROOT / "tools", "-p", "*_test.py"])
    rest, failed_before = [], len(tally.failed)
    for line in running.lines():
        match = UNITTEST_LINE.match(line)
        if not match:
            rest.append(line)
        elif match.group(3) == "ok":
            tally.ok(f"tools {match.group(1)}")
        elif match.group(3).startswith("skipped"):
            tally.skip(f"tools {match.group(1)}")
        else:
            tally.fail(f"tools {match.group(1)}")
    report_end(running.end(), tally, failed_before, "tools (unittest itself)", rest)


def run_units(build, tally):
    name = "kernels units of different instruction sets share no vector code"
    if not check_units.is_optimised(build):
        return tally.skip(name, "only in a Release build")
    faults = check_units.check(build)
    return tally.fail(name, "\n".join(faults)) if faults else tally.ok(name)


CARGO_LINE = re.compile(r"^test (\S+)(?: - .+)? \.\.\. (ok|FAILED|ignored)\b")


def read_cargo(lines, tally):
    """Counts `cargo test` lines; returns all other lines, which hold the panics."""
    rest = []
    for line in lines:
        match = CARGO_LINE.match(line)
        if not match:
            rest.append(line)
        elif match.group(2) == "ok":
            tally.ok(f"rust {match.group(1)}")
        elif match.group(2) == "ignored":
            tally.skip(f"rust {match.group(1)}")
        else:
            tally.fail(f"rust {match.group(1)}")
    return rest


def run_rust(build, tally):
    """Runs the Rust library's tests with the cargo, compiler and target folder of the build."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(CARGO|RUSTC|HOCKET_RUST_TARGET):\w+=(.+)$", cache, flags=re.MULTILINE))
    environment = dict(os.environ, CARGO_TARGET_DIR=found["HOCKET_RUST_TARGET"])
    environment |= {"RUSTC": found["RUSTC"]} if "RUSTC" in found else {}
    command = [found["CARGO"], "test", "--release", "--locked", "--manifest-path", ROOT / "rust/Cargo.toml"]
    running = Program(command, environment)
    failed_before = len(tally.failed)
    rest = read_cargo(running.lines(), tally)
    report_end(running.end(), tally, failed_before, "rust (cargo itself)", rest)


def reference_models(golden):
    """Returns the folders that hold a model and its outputs; `sampling` has outputs without a model."""
    return sorted(path.parent for path in golden.rglob("reference.json") if (path.parent / "config.json").is_file())


def run_check(build, tally, name, arguments, isa=""):
    """Runs one `hocket check`, with the best instruction set or a forced one."""
    name = f"golden check {name}" + (f" HOCKET_ISA={isa}" if isa else "")
    environment = {k: v for k, v in os.environ.items() if k != "HOCKET_ISA"} | ({"HOCKET_ISA": isa} if isa else {})
    began = time.monotonic()
    running = Program([build / "hocket", "check", *arguments], environment)
    output = "\n".join(running.lines())
    status = running.end()
    if isa and status == f"exit {USAGE_STATUS}" and "HK004" in output:
        tally.skip(name, "this processor lacks it")
    elif status:
        tally.fail(name, output, status)
    else:
        tally.ok(name, f"{1000 * (time.monotonic() - began):.0f} ms")


def run_model_checks(build, tally, model):
    """Runs `hocket check` for a reference model, in every instruction set."""
    for isa in ("",) + FORCED_ISAS:
        run_check(build, tally, model.name, ["--model-path", model], isa)


def run_other_checks(build, tally, golden):
    run_check(build, tally, "bundled model", [])
    run_check(build, tally, "text and sampling", ["--golden", golden])


TAP_LINE = re.compile(r"^(ok|not ok) \d+ - (.*?)(?: # (SKIP|TODO)\s*(.*))?$")
TAP_TIME = re.compile(r"^  duration_ms: ([\d.]+)")


def read_tap(lines, tally):
    """Counts the tests of `node --test`. The output of a failed test follows its line, so it is reported at the next test or the end."""
    pending, rest = None, []

    def settle():
        if pending is None:
            return
        verdict, name, skipped, why, more = pending
        took = next((f"{float(m.group(1)):.0f} ms" for m in map(TAP_TIME.match, more) if m), "")
        if skipped:
            tally.skip(f"page {name}", why)
        elif verdict == "ok":
            tally.ok(f"page {name}", took)
        else:
            tally.fail(f"page {name}", "\n".join(more), took)

    for line in lines:
        match = TAP_LINE.match(line)
        if match:
            settle()
            pending = (*match.groups(), [])
        elif pending and line.startswith("  "):
            pending[4].append(line)
        else:
            rest.append(line)
    settle()
    return rest


def run_page(build, tally):
    """Runs web/test; `./hocket test page` has installed the packages. Its driver of Chromium needs Node 20, which Debian 12 lacks."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    for what, found in (("Chromium", chromium), ("Node", shutil.which("node")), ("web/node_modules", (ROOT / "web/node_modules").is_dir())):
        if not found:
            return tally.skip("page", f"no {what} here")
    environment = dict(os.environ, HOCKET_BIN=str(build / "hocket"), CHROMIUM=chromium)
    tests = sorted((ROOT / "web/test").glob("*.test.mjs"))
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip().lstrip("v")
    if int(node.split(".")[0]) < 20:
        tally.skip("page in a browser", f"Playwright needs Node 20, this is {node}")
        tests = [test for test in tests if test.name != "page.test.mjs"]
    running = Program(["node", "--test", "--test-concurrency=1", "--test-reporter=tap", *tests], environment)
    failed_before = len(tally.failed)
    rest = read_tap(running.lines(), tally)
    status = running.end()
    if is_unexplained(status, tally, failed_before):
        tally.fail("page (node itself)", "\n".join(rest[-40:]), status)
    return None


def computing_jobs(build, wanted):
    """Returns the jobs that compute, the long ones first and many short ones last."""
    jobs = []
    programs = [p for p in build.glob("*_test") if os.access(p, os.X_OK)]
    suites = ":".join(SUITES[part] for part in wanted if part in SUITES)
    for program in sorted(programs, key=lambda p: -p.stat().st_size):
        kernels = program.name == "kernels_test"
        only = "*" if ("kernels" if kernels else "unit") in wanted else "" if kernels else suites
        if only:
            jobs += [partial(run_gtest, program, only=only, shard=i) for i in range(SHARDS.get(program.name, 1))]
    if "kernels" in wanted:
        jobs.append(partial(run_units, build))
    if "unit" in wanted:
        jobs += [run_tools, partial(run_rust, build)]
    if "golden" in wanted:
        golden = ROOT / "tests/golden"
        jobs.append(partial(run_other_checks, build, golden=golden))
        jobs += [partial(run_model_checks, build, model=model) for model in reference_models(golden)]
    return jobs


def installed_jobs(build, wanted):
    """Returns the jobs that compute, and need what is installed for the tests."""
    return [partial(run_pytest, build, part=part) for part in ("packages", "manifests") if part in wanted]


def serving_jobs(build, wanted):
    """Returns the jobs that start servers and wait for them, and need nothing but those and Python, the long ones first."""
    if "hosts" not in wanted:
        return []
    return [partial(run_hosts, build, script=script, piece=i, pieces=pieces) for script, pieces in HOSTS.items() for i in range(pieces)]


def installed_serving_jobs(build, wanted):
    """Returns the jobs that start servers, and need what is installed for the tests."""
    jobs = [partial(run_pytest, build, part="api", piece=i, pieces=API_PIECES) for i in range(API_PIECES) if "api" in wanted]
    jobs += [partial(run_pytest, build, part="clients")] if "clients" in wanted else []
    return jobs + ([partial(run_page, build)] if "page" in wanted else [])


def alone_jobs(build, wanted):
    """Returns the jobs beside which nothing may run, since their limits of time are short."""
    return [partial(run_hostile, build)] if "hostile" in wanted else []


def run_command(tally, name, words):
    """Runs a command that the tests need; only its failure is a result. Returns True if it succeeded.

    It may be silent: one file takes the compiler minutes beside tests, and installers print nothing while they load packages.
    """
    try:
        running = Program(words, may_be_silent=True)
    except OSError as error:
        tally.fail(name, str(error))
        return False
    output = [line for line in running.lines() if not line.startswith("[")]  # without ninja's own lines
    if status := running.end():
        tally.fail(name, "\n".join(output[-200:]), status)
    return not status


class Runs:
    """All jobs of one call: those that compute on all cores, and beside them those that start servers. Sums up their results."""

    def __init__(self, build, wanted):
        self._build, self._wanted = build, wanted
        cores = len(os.sched_getaffinity(0))
        self._computing = ThreadPoolExecutor(cores)
        self._serving = ThreadPoolExecutor(serving_at_once(cores))
        self._preparing = ThreadPoolExecutor(2)
        self._begun, self._lock = [], threading.Lock()
        self._prepared = Tally()

    def run(self, make=None, install=None):
        """Runs all jobs, after the commands that they need, and returns their results.

        While `make` and `install` run, tests do that need neither. After a failed one nothing begins any more. Ctrl-C ends all.
        """
        try:
            return self._run(make, install)
        except BaseException:
            for pool in (self._preparing, self._computing, self._serving):
                pool.shutdown(wait=False, cancel_futures=True)
            Program.stop_all()
            raise

    def _run(self, make, install):
        self._begin(self._serving, serving_jobs)
        made = self._preparing.submit(self._prepare, "build", make, self._computing, computing_jobs)
        installed = self._preparing.submit(self._prepare, "packages of the tests", install, self._serving, installed_serving_jobs)
        if made.result() and installed.result():
            self._begin(self._computing, installed_jobs)
        self._preparing.shutdown()
        self._computing.shutdown()
        self._serving.shutdown()
        total = Tally()
        total.add(self._prepared)
        for job in self._begun:
            if not job.cancelled():
                total.add(job.result())
        if not self._prepared.failed:
            for job in alone_jobs(self._build, self._wanted):
                total.add(run_job(job))
        return total

    def _prepare(self, name, words, pool, jobs):
        if words and not run_command(self._prepared, name, words):
            with self._lock:
                for job in self._begun:
                    job.cancel()
            return False
        self._begin(pool, jobs)
        return True

    def _begin(self, pool, jobs):
        with self._lock:
            if not self._prepared.failed:
                self._begun += [pool.submit(run_job, job) for job in jobs(self._build, self._wanted)]


def run_job(job):
    """Runs a job and returns its results. An exception of the job itself is one more that failed, beside those that it had."""
    tally = Tally()
    try:
        job(tally)
    except Exception:
        tally.fail(name_of(job), traceback.format_exc(), "the test runner itself")
    return tally


def name_of(job):
    """Returns the name of a job's function with what tells it from others, such as `run_hosts script=faults piece=1 pieces=3`."""
    if not isinstance(job, partial):
        return job.__name__
    return " ".join([job.func.__name__, *map(str, job.args), *(f"{name}={value}" for name, value in job.keywords.items())])


def serving_at_once(cores):
    """Returns how many tests of servers run beside those that compute."""
    return max(1, cores // 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda folder: Path(folder).resolve(), required=True)
    parser.add_argument("--jobs", type=int, metavar="N", help="first make all programs of BUILD, with N compilers at a time")
    parser.add_argument("--install", action="store_true", help="first install all that the tests need (./hocket test-tools)")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--seeds", type=int, metavar="N", help="of the simulation; 1500 where it is not given. The cache tier, whose seeds take longer, has one for 25 of them")
    parser.add_argument("--first-seed", type=int, metavar="F", help="of the simulation; 0 where it is not given")
    arguments = parser.parse_args()
    if arguments.seeds is not None:
        if arguments.seeds < 1:
            parser.error("--seeds is at least 1")
        os.environ["HOCKET_SIMULATION_SEEDS"] = str(arguments.seeds)
    if arguments.first_seed is not None:
        if arguments.first_seed < 0:
            parser.error("--first-seed is at least 0")
        os.environ["HOCKET_SIMULATION_FIRST_SEED"] = str(arguments.first_seed)
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part}; parts: {' '.join(PARTS)}")
    # These parts hold every test once, except third-party clients: their packages take longer to install than all tests to run.
    every = ("unit", "kernels", "golden", "api", "manifests", "packages", "page", "hosts", "hostile")
    # Servers of tests that run meanwhile come first, so that their limits of time hold beside the compiler.
    make = ["nice", "-n", "19", "ninja", "-C", arguments.build, "-j", arguments.jobs] if arguments.jobs else None
    install = [ROOT / "hocket", "-y", "test-tools", *arguments.parts] if arguments.install else None
    return Runs(arguments.build, arguments.parts or every).run(make, install).close()


if __name__ == "__main__":
    sys.exit(main())
