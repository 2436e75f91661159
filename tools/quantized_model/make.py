#!/usr/bin/env python3
"""Makes quantized copies of a Hugging Face model folder, in the layouts of the published tools.

    make.py SOURCE OUT [--formats awq,gptq,...] [--group 32]

Writes OUT/FORMAT (config.json and model.safetensors) and, with --dequantized, OUT/FORMAT_dequantized: the same numbers as float32, without
quantization_config. Numbers are rounded without calibration: these folders test readers of formats, not methods of quantization.
"""

import argparse
import json
import re
import struct
from pathlib import Path

import numpy as np

# Matrices that no tool quantizes. All other matrices of the decoder layers are quantized.
PLAIN = re.compile(r"lm_head|embed_tokens|norm|mlp\.gate\.|\.bias$")
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # [nibble of a word] = column of the eight that it holds


# Numbers that numpy lacks --------------------------------------------------------------------------------------------------------


def bf16_bits(x):
    """Rounds float32 to bfloat16, to nearest, ties to even; returns the bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_values():
    """Returns the 127 finite values of e4m3 from 0 up; the index is the bits."""
    bits = np.arange(127)
    exponent, mantissa = bits >> 3, bits & 7
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7)).astype(np.float32)


def e4m3_bits(x):
    """Rounds float32 to e4m3, to nearest, ties to even, clamped to +-448; returns the bits."""
    table = e4m3_values().astype(np.float64)
    size = np.minimum(np.abs(x.astype(np.float64)), 448)
    above = np.clip(np.searchsorted(table, size), 1, 126)
    low, high = size - table[above - 1], table[above] - size
    take_low = (low < high) | ((low == high) & ((above - 1) % 2 == 0))
    return np.where(take_low, above - 1, above).astype(np.uint8) | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)


def e4m3_floats(bits):
    size = e4m3_values()[bits & 0x7F]
    return np.where(bits & 0x80, -size, size).astype(np.float32)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def e2m1_bits(x):
    """Rounds float32 to e2m1, to nearest, ties to even, clamped to +-6; returns the bits, one number a byte."""
    size = np.minimum(np.abs(x.astype(np.float64)), 6)
    above = np.clip(np.searchsorted(E2M1, size), 1, 7)
    low, high = size - E2M1[above - 1], E2M1[above] - size
    take_low = (low < high) | ((low == high) & ((above - 1) % 2 == 0))
    return np.where(take_low, above - 1, above).astype(np.uint8) | np.where(np.signbit(x), 8, 0).astype(np.uint8)


def e2m1_floats(bits):
    return np.where(bits & 8, -E2M1[bits & 7], E2M1[bits & 7]).astype(np.float32)


def pairs(bits):
    """Packs two 4-bit numbers of a row into a byte, the first in the low half."""
    return bits[:, 0::2] | bits[:, 1::2] << np.uint8(4)


# Files ---------------------------------------------------------------------------------------------------------------------------


def read_tensors(folder):
    """Returns all tensors of a folder as float32."""
    read = {}
    for file in sorted(folder.glob("model*.safetensors")):
        content = file.read_bytes()
        data = 8 + struct.unpack_from("<Q", content)[0]
        for name, entry in json.loads(content[8:data]).items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in ("BF16", "F16", "F32"):
                raise SystemExit(f"{file}: {name} is {entry['dtype']}; the source must not be quantized")
            kind = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}[entry["dtype"]]
            begin, end = (data + offset for offset in entry["data_offsets"])
            values = np.frombuffer(content[begin:end], kind).reshape(entry["shape"])
            read[name] = bf16_values(values) if kind is np.uint16 else values.astype(np.float32)
    return read


class Stored:
    """A tensor to be written: a numpy array of its bits, and the name of its type."""

    TYPES = {np.int32: "I32", np.int64: "I64", np.int8: "I8", np.float16: "F16", np.float32: "F32"}

    def __init__(self, array, kind=None):
        self.array = np.ascontiguousarray(array)
        self.kind = kind or self.TYPES[self.array.dtype.type]

    @classmethod
    def plain(cls, x, kind):
        if kind == "BF16":
            return cls(bf16_bits(x), "BF16")
        return cls(x.astype(np.float16 if kind == "F16" else np.float32))

    def values(self):
        return bf16_values(self.array) if self.kind == "BF16" else self.array.astype(np.float32)


def write_folder(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.array.nbytes
        header[name] = {"dtype": tensor.kind, "shape": tensor.array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.array.tobytes())
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


# Rounding ------------------------------------------------------------------------------------------------------------------------


def grouped(w, group):
    """Returns w [n, k] as [n, k / group, group]."""
    n, k = w.shape
    assert k % group == 0, f"{k} columns are not whole groups of {group}"
    return w.reshape(n, k // group, group)


def round_scale(scale, kind):
    """Returns a scale as the file holds it, and the same as float32. It is never 0."""
    stored = Stored.plain(np.maximum(scale, 1e-6), kind)
    return stored, stored.values()


def integers_asymmetric(w, group, kind):
    """Rounds to 4 bits: returns numbers 0..15, zero points 1..15, scales, and the values (number - zero) * scale."""
    parts = grouped(w, group)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
    stored, scale = round_scale((high - low) / 15, kind)
    zero = np.clip(np.rint(-low / scale), 1, 15)
    numbers = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], 0, 15)
    values = (numbers - zero[..., None]).astype(np.float32) * scale[..., None]
    return numbers.reshape(w.shape).astype(np.uint32), zero.astype(np.uint32), stored, values.reshape(w.shape)


def integers_symmetric(w, group, bits, kind):
    """Rounds to signed numbers: returns numbers, scales, and the values number * scale."""
    parts = grouped(w, group)
    half = 2 ** (bits - 1)
    stored, scale = round_scale(np.abs(parts).max(-1) / (half - 0.5), kind)
    numbers = np.clip(np.rint(parts / scale[..., None]), -half, half - 1)
    return numbers.reshape(w.shape).astype(np.int32), stored, (numbers.astype(np.float32) * scale[..., None]).reshape(w.shape)


def words(numbers, axis, order=range(8)):
    """Packs eight 4-bit numbers along `axis` into one int32, the first of `order` in the lowest bits; the end is padded with 0."""
    numbers = np.moveaxis(numbers.astype(np.uint32), axis, -1)
    pad = -numbers.shape[-1] % 8
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, pad)])
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    packed = sum(eights[..., column] << np.uint32(4 * nibble) for nibble, column in enumerate(order))
    return np.moveaxis(packed, -1, axis).astype(np.uint32).view(np.int32)


# Formats: name of a matrix and its values -> tensors of the file, dequantized values ----------------------------------------------


def awq(name, w, options):
    numbers, zero, scale, values = integers_asymmetric(w, options.group, "F16")
    stem = name.removesuffix("weight")
    return {
        stem + "qweight": Stored(words(numbers.T, 1, AWQ_ORDER)),
        stem + "qzeros": Stored(words(zero.T, 1, AWQ_ORDER)),
        stem + "scales": Stored(scale.array.T),
    }, values


def gptq(name, w, options):
    numbers, zero, scale, values = integers_asymmetric(w, options.group, "F16")
    stem = name.removesuffix("weight")
    return {
        stem + "qweight": Stored(words(numbers.T, 0)),
        stem + "qzeros": Stored(words(zero.T - 1, 1)),
        stem + "scales": Stored(scale.array.T),
        stem + "g_idx": Stored((np.arange(w.shape[1]) // options.group).astype(np.int32)),
    }, values


def packed(name, w, options):
    numbers, scale, values = integers_symmetric(w, options.group, 4, "BF16")
    return {
        name + "_packed": Stored(words(numbers + 8, 1)),
        name + "_scale": scale,
        name + "_shape": Stored(np.array(w.shape, np.int64)),
    }, values


def packed_zero(name, w, options):
    numbers, zero, scale, values = integers_asymmetric(w, options.group, "BF16")
    return {
        name + "_packed": Stored(words(numbers, 1)),
        name + "_scale": scale,
        name + "_zero_point": Stored(words(zero, 0)),
        name + "_shape": Stored(np.array(w.shape, np.int64)),
    }, values


def w8a8(name, w, _options):
    numbers, scale, values = integers_symmetric(w, w.shape[1], 8, "BF16")
    return {name: Stored(numbers.astype(np.int8)), name + "_scale": scale}, values


def fp8_channel(name, w, _options):
    stored, scale = round_scale(np.abs(w).max(-1, keepdims=True) / 448, "BF16")
    bits = e4m3_bits(w / scale)
    return {name: Stored(bits, "F8_E4M3"), name + "_scale": stored}, e4m3_floats(bits) * scale


def fp8_block(name, w, _options):
    n, k = w.shape
    rows, columns = np.arange(n) // 128, np.arange(k) // 128
    amax = np.zeros((rows[-1] + 1, columns[-1] + 1), np.float32)
    np.maximum.at(amax, (rows[:, None], columns[None, :]), np.abs(w))
    stored, scale = round_scale(amax / 448, "F32")
    spread = scale[rows][:, columns]
    bits = e4m3_bits(w / spread)
    return {name: Stored(bits, "F8_E4M3"), name + "_scale_inv": stored}, e4m3_floats(bits) * spread


def power_of_two_scales(parts, largest):
    """Returns the least power of two that reaches the largest number of each group, as e8m0 bits and as float32."""
    amax = np.maximum(np.abs(parts).max(-1), 1e-6).astype(np.float64)
    exponent = np.ceil(np.log2(amax / largest))
    return (exponent + 127).astype(np.uint8), np.exp2(exponent).astype(np.float32)


def mxfp4(name, w, _options):
    parts = grouped(w, 32)
    bits, scale = power_of_two_scales(parts, 6)
    numbers = e2m1_bits(parts / scale[..., None])
    values = (e2m1_floats(numbers) * scale[..., None]).reshape(w.shape)
    return {name + "_packed": Stored(pairs(numbers.reshape(w.shape)), "U8"), name + "_scale": Stored(bits, "U8")}, values


def mxfp8(name, w, _options):
    parts = grouped(w, 32)
    bits, scale = power_of_two_scales(parts, 448)
    numbers = e4m3_bits(parts / scale[..., None])
    values = (e4m3_floats(numbers) * scale[..., None]).reshape(w.shape)
    return {name: Stored(numbers.reshape(w.shape), "F8_E4M3"), name + "_scale": Stored(bits, "U8")}, values


def nvfp4_numbers(w, factor):
    """Returns numbers and scales of nvfp4, both as bits, and the values, where all scales are multiplied by `factor`."""
    parts = grouped(w, 16)
    scale = e4m3_bits(np.abs(parts).max(-1) / 6 / factor)
    steps = e4m3_floats(scale)[..., None]
    numbers = e2m1_bits(parts / np.maximum(steps * factor, np.float32(1e-30)))
    values = (e2m1_floats(numbers) * steps * factor).reshape(w.shape)
    return pairs(numbers.reshape(w.shape)), scale, values


def nvfp4(name, w, _options):
    divisor = np.float32(448 * 6 / np.abs(w).max())
    numbers, scale, values = nvfp4_numbers(w, np.float32(1) / divisor)
    return {
        name + "_packed": Stored(numbers, "U8"),
        name + "_scale": Stored(scale, "F8_E4M3"),
        name + "_global_scale": Stored(np.array([divisor], np.float32)),
    }, values


def modelopt(name, w, _options):
    factor = np.float32(np.abs(w).max() / (448 * 6))
    numbers, scale, values = nvfp4_numbers(w, factor)
    return {
        name: Stored(numbers, "U8"),
        name + "_scale": Stored(scale, "F8_E4M3"),
        name + "_scale_2": Stored(np.array(factor, np.float32)),
        name.removesuffix("weight") + "input_scale": Stored(np.array(1, np.float32)),
    }, values


def compressed_tensors(form, weights, activations):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp[.]gate$"],
        "kv_cache_scheme": None,
    }


def pack_quantized(options, symmetric):
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": options.group, "symmetric": symmetric}
    return compressed_tensors("pack-quantized", weights | {"dynamic": False, "actorder": None}, None)


def per_channel(form, kind):
    weights = {"num_bits": 8, "type": kind, "strategy": "channel", "symmetric": True, "dynamic": False}
    activations = {"num_bits": 8, "type": kind, "strategy": "token", "symmetric": True, "dynamic": True}
    return compressed_tensors(form, weights, activations)


def float_groups(form, strategy, bits, group):
    weights = {"num_bits": bits, "type": "float", "strategy": strategy, "group_size": group, "symmetric": True}
    return compressed_tensors(form, weights | {"dynamic": False, "actorder": None}, None)


def gates(tensors):
    return sorted(name.removesuffix(".weight") for name in tensors if name.endswith("mlp.gate.weight"))


# name: (function, type of matrices that are not quantized, quantization_config from (options, tensors))
FORMATS = {
    "awq": (
        awq,
        "F16",
        lambda o, t: {
            "quant_method": "awq",
            "bits": 4,
            "group_size": o.group,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": gates(t) or None,
        },
    ),
    "gptq": (
        gptq,
        "F16",
        lambda o, t: {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": o.group,
            "desc_act": False,
            "sym": False,
            "true_sequential": True,
            "damp_percent": 0.01,
            "checkpoint_format": "gptq",
            "lm_head": False,
        },
    ),
    "packed": (packed, "BF16", lambda o, t: pack_quantized(o, True)),
    "packed_zero": (packed_zero, "BF16", lambda o, t: pack_quantized(o, False)),
    "w8a8": (w8a8, "BF16", lambda o, t: per_channel("int-quantized", "int")),
    "fp8_channel": (fp8_channel, "BF16", lambda o, t: per_channel("float-quantized", "float")),
    "mxfp4": (mxfp4, "BF16", lambda o, t: float_groups("mxfp4-pack-quantized", "group", 4, 32)),
    "mxfp8": (mxfp8, "BF16", lambda o, t: float_groups("mxfp8-quantized", "group", 8, 32)),
    "nvfp4": (nvfp4, "BF16", lambda o, t: float_groups("nvfp4-pack-quantized", "tensor_group", 4, 16)),
    "modelopt": (
        modelopt,
        "BF16",
        lambda o, t: {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "producer": {"name": "modelopt", "version": "0.29.0"},
            "ignore": ["lm_head", "model.layers.*.mlp.gate"],
        },
    ),
    "fp8_block": (
        fp8_block,
        "BF16",
        lambda o, t: {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    ),
}
PLAIN_DTYPE = {"F16": "float16", "BF16": "bfloat16"}


def make(source, out, form, options):
    quantize, plain, quantization_config = FORMATS[form]
    tensors, quantized, dequantized = read_tensors(source), {}, {}
    for name, w in tensors.items():
        if w.ndim == 2 and not PLAIN.search(name):
            stored, values = quantize(name, w, options)
            quantized |= stored
        else:
            quantized[name] = Stored.plain(w, plain)
            values = quantized[name].values()
        dequantized[name] = Stored(values)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config.pop("dtype", None)
    config["torch_dtype"] = PLAIN_DTYPE[plain]
    write_folder(out / form, quantized, config | {"quantization_config": quantization_config(options, tensors)})
    if options.dequantized:
        write_folder(out / f"{form}_dequantized", dequantized, config | {"torch_dtype": "float32"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--formats", default=",".join(FORMATS), help="of " + ", ".join(FORMATS))
    parser.add_argument("--group", type=int, default=128, help="columns under one scale (4-bit formats)")
    parser.add_argument("--dequantized", action="store_true", help="write the float32 twins too")
    options = parser.parse_args()
    for form in options.formats.split(","):
        if form not in FORMATS:
            parser.error(f"there is no format {form}; formats: {', '.join(FORMATS)}")
        make(options.source, options.out, form, options)
        print(options.out / form)


if __name__ == "__main__":
    main()
