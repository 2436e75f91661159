#!/usr/bin/env python3
"""Writes random blocks of the types that the gguf package reads but cannot make, or makes of three numbers only.

    tools/gguf_model/blocks.py ../../tests/golden/gguf_grids

A tensor a type in OUT/types.gguf, and the numbers that the package reads from it, in float32, in OUT/reference.safetensors.
"""

import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

ROWS, COLUMNS = 3, 512
SCALE_AT = {"IQ1_S": 0, "IQ2_XXS": 0, "IQ2_XS": 0, "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "TQ1_0": 52, "TQ2_0": 64}


def random_blocks(name, count, width, rng):
    blocks = rng.integers(0, 256, (count, width), dtype=np.uint8)
    scales = (rng.uniform(0.001, 0.02, count) * rng.choice([-1, 1], count)).astype("<f2")
    if name != "IQ1_M":
        blocks[:, SCALE_AT[name] : SCALE_AT[name] + 2] = scales.view(np.uint8).reshape(-1, 2)
        return blocks
    for i in range(4):  # four bits of the scale in the upper half of every second byte
        bits = (scales.view(np.uint16) >> (4 * i) & 15).astype(np.uint8)
        blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | bits << 4
    return blocks


def main():
    out = pathlib.Path(sys.argv[1])
    rng = np.random.default_rng(31)
    w = gguf.GGUFWriter(out / "types.gguf", "llama")
    meaning = {}
    for name in (*SCALE_AT, "IQ1_M"):
        kind = gguf.GGMLQuantizationType[name]
        block, width = gguf.GGML_QUANT_SIZES[kind]
        raw = random_blocks(name, ROWS * COLUMNS // block, width, rng).reshape(ROWS, COLUMNS // block * width)
        w.add_tensor(name, raw, raw_dtype=kind)
        meaning[name] = np.ascontiguousarray(gguf.quants.dequantize(raw, kind), dtype=np.float32)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    save_file(meaning, out / "reference.safetensors")


if __name__ == "__main__":
    main()
