"""The bench of kept prefixes, without a server: its defaults, and clients that fail."""

import sys
import types

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import kept_prefixes


def options(*words):
    return kept_prefixes.read_options(words)


def test_figures_have_defaults_that_measure_them():
    assert options("tiers").output_len == 1
    assert options("writes").output_len == options("apart").output_len == 128
    assert options("apart", "--output-len", "2").output_len == 2
    agents = options("agents")
    assert (agents.sessions, agents.turns) == (100, 20)
    whole = agents.first_tokens + agents.turns * (agents.step_tokens + agents.output_len)
    assert 10 * whole <= agents.pool_tokens < 11 * whole, "the pool holds ten conversations"


def test_a_client_that_fails_fails_the_bench():
    def fail():
        raise AssertionError("no answer")

    def ask(*_):
        fail()

    with pytest.raises(RuntimeError, match="1 of 2 clients failed"):
        kept_prefixes.run_threads([fail, lambda: None])
    with pytest.raises(RuntimeError, match="clients failed"):
        kept_prefixes.put_load([types.SimpleNamespace(ask=ask)], options("apart", "--seconds", "0.01"), 1000)


def test_a_side_is_timed_when_nothing_is_left_to_write():
    written = iter([3, 8, 8, 8, 9, 9, 9])
    last = 0

    def metric(name):
        nonlocal last
        if name == "backuped_pages_total":
            last = next(written)
            return last
        return 1

    kept_prefixes.wait_written(types.SimpleNamespace(metric=metric), 9)
    assert last == 9


def test_a_ratio_has_its_standard_error(monkeypatch, capsys, tmp_path):
    class Service:
        def __init__(self, *_):
            self.num_written = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, ids, num_tokens):
            self.num_written += len(ids) // 32

        def metric(self, name):
            return self.num_written if name == "backuped_pages_total" else 0

    monkeypatch.setattr(kept_prefixes, "Service", Service)
    chosen = options("writes", "--input-len", "64", "--rounds", "3")
    chosen.pages = str(tmp_path)
    kept_prefixes.run_writes(str(tmp_path), chosen)
    assert "(standard error)" in capsys.readouterr().out
