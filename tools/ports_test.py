"""Tests that tests which run side by side are given ports of their own."""

import socket
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/hosts"))

import ports  # noqa: E402


class PortsTest(unittest.TestCase):
    """Each block is taken anew, as another program would take it."""

    def block(self):
        held, numbers = ports._block.__wrapped__()
        self.addCleanup(held.close)
        return held.getsockname()[1], mock.patch.object(ports, "_block", lambda: (held, numbers))

    def test_two_programs_have_different_blocks(self):
        (first, one), (second, another) = self.block(), self.block()
        self.assertGreaterEqual(abs(first - second), ports.BLOCK)
        for begin, block in ((first, one), (second, another)):
            with block:
                self.assertIn(ports.free_port(), range(begin + 1, begin + ports.BLOCK))

    def test_a_port_comes_again_after_all_others(self):
        _, block = self.block()
        with block, mock.patch.object(ports, "_is_free", lambda _: True):
            given = [ports.free_port() for _ in range(ports.BLOCK)]
        self.assertEqual(len(set(given)), ports.BLOCK - 1)
        self.assertEqual(given[0], given[-1])

    def test_a_port_that_is_taken_is_left_out(self):
        first, block = self.block()
        with block, socket.create_server((ports.ADDRESS, first + 2)):
            self.assertNotIn(first + 2, [ports.free_port() for _ in range(ports.BLOCK - 2)])

    def test_neighbours_are_free_and_given_to_nobody_else(self):
        first, block = self.block()
        with block, socket.create_server((ports.ADDRESS, first + 3)):
            begins = [ports.free_port(count) for count in (4, 4, 1)]
        given = [begin + i for begin, count in zip(begins, (4, 4, 1), strict=True) for i in range(count)]
        self.assertEqual(len(set(given)), len(given))
        self.assertNotIn(first + 3, given)

    def test_a_block_without_enough_neighbours_says_so(self):
        _, block = self.block()
        with block, self.assertRaisesRegex(OSError, f"no {ports.BLOCK} neighbouring ports"):
            ports.free_port(ports.BLOCK)


if __name__ == "__main__":
    unittest.main()
