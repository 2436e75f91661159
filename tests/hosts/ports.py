"""Free ports for tests that run side by side.

A kernel gives ports of the ephemeral range to whoever asks, so one that was free just now may be a client's a moment later, above all
while a rank is down that will come back to it. These lie below that range. A program takes a block of them for itself: it listens
on the block's first port as long as it runs.
"""

import contextlib
import functools
import itertools
import socket

FIRST, LAST, BLOCK = 16000, 32000, 100
ADDRESS = "127.0.0.1"


@functools.cache
def _block():
    """Returns the socket that holds this program's block, and the numbers of the block's ports, again and again."""
    for first in range(FIRST, LAST, BLOCK):
        with contextlib.suppress(OSError):
            return socket.create_server((ADDRESS, first)), itertools.cycle(range(first + 1, first + BLOCK))
    raise OSError(f"{ADDRESS} has no free block of {BLOCK} ports between {FIRST} and {LAST}")


def free_port(count=1):
    """Returns the first of `count` neighbouring ports that are free. A port comes again after all others of the block."""
    held, numbers = _block()
    last = held.getsockname()[1] + BLOCK - 1
    for first in itertools.islice(numbers, BLOCK):
        if first + count - 1 <= last and all(map(_is_free, range(first, first + count))):
            for _ in range(count - 1):
                next(numbers)
            return first
    raise OSError(f"no {count} neighbouring ports of {held.getsockname()[1] + 1} to {last} are free")


def _is_free(port):
    with contextlib.suppress(OSError), socket.create_server((ADDRESS, port)):
        return True
    return False
