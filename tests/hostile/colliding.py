"""Different keys of JSON whose hashes in libstdc++ are equal, so that a table of them costs the square of their number.

std::hash of a text is MurmurHash64A with a seed that anyone can read. A block of 8 bytes is mixed by itself, which can be
undone; the outcome enters the state by an exclusive or and a multiplication. So where the mixed values of two blocks differ by the
highest bit alone, either of them written twice leads from any state to the same one.
"""

import functools
import itertools
import random
import struct

MASK = (1 << 64) - 1
MUL = 0xC6A4A7935BD1E995
UNMUL = pow(MUL, -1, 1 << 64)
SEED = 0xC70F6907  # the seed of std::hash
HIGHEST = 1 << 63  # a change of this bit alone stays one, whatever odd number multiplies it
SIGNS = ((0x20, 0x7E), (0x20, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0x10000, 0x10FFFF))  # UTF-8 of 1 to 4 bytes


def mixed(block):
    block = block * MUL & MASK
    return (block ^ block >> 47) * MUL & MASK


def unmixed(block):
    block = block * UNMUL & MASK
    return (block ^ block >> 47) * UNMUL & MASK


def hash_bytes(text, seed=SEED):
    """std::_Hash_bytes of libstdc++ where size_t has 64 bits."""
    state, whole = seed ^ len(text) * MUL & MASK, len(text) & ~7
    for (block,) in struct.iter_unpack("<Q", text[:whole]):
        state = (state ^ mixed(block)) * MUL & MASK
    if rest := text[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * MUL & MASK
    state = (state ^ state >> 47) * MUL & MASK
    return state ^ state >> 47


def is_plain(block):
    """Whether it is UTF-8 that JSON takes as it is."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        return False
    return all(sign >= " " and sign not in '"\\' for sign in text)


@functools.cache
def twins():
    """Two different blocks of plain UTF-8 whose mixed values differ by the highest bit alone, found in some 0.1 s."""
    rng = random.Random(1)
    while True:
        one = "".join(chr(rng.randint(*rng.choice(SIGNS))) for _ in range(rng.randint(2, 8))).encode(errors="replace")
        if len(one) != 8 or not is_plain(one):
            continue
        other = struct.pack("<Q", unmixed(mixed(int.from_bytes(one, "little")) ^ HIGHEST))
        if is_plain(other):
            return one, other


@functools.cache
def keys(count):
    """`count` texts of one length and one hash."""
    one, other = twins()
    # The second block undoes what the first has changed.
    pieces, pairs = (one + one, other + other), max(1, (count - 1).bit_length())
    made = [b"".join(chosen) for chosen in itertools.islice(itertools.product(pieces, repeat=pairs), count)]
    assert len({hash_bytes(key) for key in made[:100] + made[-100:]}) == 1, "the hashes of keys differ"
    return [key.decode() for key in made]
