#!/usr/bin/env python3
"""Converts a Hugging Face folder of tests/golden into a GGUF file, with all that llama.cpp's converter changes.

    tools/gguf_model/make.py tests/golden/qwen3_next OUT/model.gguf [--mtp]

The numbers stay float32, and MXFP4 stays MXFP4, so the file computes what the folder does: its reference.json and reference.safetensors, laid
beside it, hold for it.
Tokenizers are not converted. --mtp keeps the module of qwen3next, as newer converters do. Needs gguf, ml_dtypes, numpy and safetensors (requirements.txt).
"""

import json
import pathlib
import sys

import gguf
import ml_dtypes  # noqa: F401, by which numpy knows bfloat16
import numpy as np
from safetensors.numpy import load_file

# Modules of a layer: the folder's name, and that in GGUF.
MODULES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "shared_head.norm": "nextn.shared_head_norm",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
    "self_attn.g_proj": "attn_gate", "self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm", "router.proj": "ffn_gate_inp",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2",
} | {f"self_attn.{n}_conv1d": f"ssm_conv1d_{n}" for n in "qkv"} | {f"self_attn.{n}_proj": f"ssm_{n}" for n in ("f_a", "f_b", "g_a", "g_b")} | {f"mlp.shared_expert{s}.{n}_proj": f"ffn_{n}_shexp" for s in ("", "s") for n in ("gate", "up", "down")}
# Folders of an MLP, by the name that the tables below and above have.
FOLDERS = {"block_sparse_moe.": "mlp.", "feed_forward.": "mlp.", "moe.": "mlp.", "share_expert.": "mlp.shared_expert.", "experts.": "mlp.experts."}
TENSORS = {"self_attn.attention_sink_bias": "attn_sinks.weight", "self_attn.A_log": "ssm_a", "self_attn.dt_bias": "ssm_dt.bias",
           "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias", "mlp.router_bias": "exp_probs_b.bias", "router.scale": "ffn_gate_inp.scale",
           "router.per_expert_scale": "ffn_down_exps.scale", "layer_scalar": "layer_output_scale.weight", "self_attn.sinks": "attn_sinks.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
           "mlp.e_score_correction_bias": "exp_probs_b.bias", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
BESIDE_LAYER = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}
OF_EXPERTS = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}
ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3moe",
                 "DeepseekV2ForCausalLM": "deepseek2", "DeepseekV3ForCausalLM": "deepseek2", "KimiK25ForConditionalGeneration": "deepseek2", "Glm4MoeLiteForCausalLM": "deepseek2", "Glm4MoeForCausalLM": "glm4moe",
                 "GptOssForCausalLM": "gpt-oss", "MiniMaxM2ForCausalLM": "minimax-m2", "Qwen3NextForCausalLM": "qwen3next",
                 "Qwen3_5ForCausalLM": "qwen35", "Qwen3_5ForConditionalGeneration": "qwen35", "Qwen3_5MoeForConditionalGeneration": "qwen35moe", "Qwen3_5MoeForCausalLM": "qwen35moe", "Qwen3VLMoeForConditionalGeneration": "qwen3vlmoe",
                 "Llama4ForCausalLM": "llama4", "Mistral4ForCausalLM": "mistral4", "Ernie4_5_MoeForCausalLM": "ernie4_5-moe",
                 "MiMoV2FlashForCausalLM": "mimo2", "Step3p7ForConditionalGeneration": "step35", "Gemma4ForCausalLM": "gemma4",
                 "KimiLinearForCausalLM": "kimi-linear"}
HYBRID = ("qwen3next", "qwen35", "qwen35moe")
INPUTS_FIRST = ("gpt-oss", "llama4", "qwen3vlmoe")  # stacked experts have them so; the converter turns them
FUSED = ("gemma4", "mistral4")  # experts keep gate and up in one tensor
SLIDING = ("mimo2", "step35", "gemma4")  # heads differ among layers
LATENT = ("deepseek2", "mistral4", "kimi-linear")
AFTER_ATTENTION = ("glm4moe", "gpt-oss", "gemma4", *HYBRID)  # their norm before the MLP is post_attention_norm


def read_folder(folder):
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(file)
    usual = lambda name: name.removeprefix("language_model.").replace("model.language_model.", "model.")
    return {usual(name): x if x.dtype == np.uint8 else x.astype(np.float32) for name, x in tensors.items()}


def tiled(x, c, axis=0):
    """Value heads from key head by key head to round by round."""
    nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    x = np.moveaxis(x, axis, 0)
    heads = x.reshape(nk, nv // nk, -1, *x.shape[1:])
    return np.ascontiguousarray(np.moveaxis(heads.swapaxes(0, 1).reshape(x.shape), 0, axis))


def split_qkvz(x, c):
    nk, nv, dk, dv = (c["linear_" + key] for key in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    groups = x.reshape(nk, -1, x.shape[1])
    q, k, v, z = np.split(groups, np.cumsum([dk, dk, nv // nk * dv]), axis=1)
    flat = lambda part: part.reshape(-1, x.shape[1])
    return np.concatenate([flat(q), flat(k), flat(v)]), flat(z)


def behind_layers(name, c):
    """The name of a tensor of the module for multi-token prediction, which is a layer behind the others."""
    parts = name.split(".")
    if parts[0] != "mtp":
        return name
    if parts[1] == "layers":
        return ".".join(["model.layers", str(c["num_hidden_layers"] + int(parts[2])), *parts[3:]])
    return f"model.layers.{c['num_hidden_layers']}.{BESIDE_LAYER[parts[1]]}.weight"


def turned(x, heads):
    """Rows of q and k from halves that turn together to neighbours that do."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def change(arch, c, module, name, x):
    """The numbers of one tensor as the converter writes them."""
    if arch == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
        return turned(x, c["num_attention_heads" if "q_proj" in module else "num_key_value_heads"])
    if arch in (*HYBRID, "step35") and name.endswith("norm.weight") and module != "linear_attn.norm":
        return x + np.float32(1)
    if module == "linear_attn.conv1d":
        x = x[:, 0]
    if name in ("linear_attn.A_log", "self_attn.A_log"):
        x = -np.exp(x)
    if "self_attn" in module and "conv1d" in module:
        return x.reshape(1, x.shape[0], 1, -1)
    if arch in HYBRID[1:]:
        keys = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
        if module in ("linear_attn.in_proj_qkv", "linear_attn.conv1d"):
            return np.concatenate([x[:keys], tiled(x[keys:], c)])
        if module in ("linear_attn.in_proj_z", "linear_attn.in_proj_a", "linear_attn.in_proj_b") or name in ("linear_attn.A_log", "linear_attn.dt_bias"):
            return tiled(x, c)
        if module == "linear_attn.out_proj":
            return tiled(x, c, 1)
    if module == "mlp.shared_expert_gate":
        return x[0]
    return x


def splits_latents(arch, c):
    """DeepSeek-V2 stands for the older files, whose kv_b_proj is whole."""
    return arch == "kimi-linear" or arch == "deepseek2" and c["architectures"][0] != "DeepseekV2ForCausalLM"


def split_latents(x, c):
    """kv_b_proj as keys, transposed, and values."""
    heads, nope = c["num_attention_heads"], c["qk_nope_head_dim"]
    x = x.reshape(heads, -1, x.shape[1])
    return x[:, :nope].swapaxes(1, 2), x[:, nope:]


def mxfp4_blocks(numbers, scales):
    """Blocks of 32 numbers: the scale, then the first sixteen in the low halves of bytes and the others in the high ones."""
    flat = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(*numbers.shape[:-1], 32)
    blocks = np.concatenate([scales[..., None], flat[..., :16] | flat[..., 16:] << 4], axis=-1)
    return blocks.reshape(*blocks.shape[:-2], -1)


def convert_stacked(arch, name, x):
    """The tensors of one that holds all experts."""
    if name.endswith("_bias"):
        return {"ffn_gate_exps.bias": x[:, 0::2], "ffn_up_exps.bias": x[:, 1::2]} if "gate_up" in name else {"ffn_down_exps.bias": x}
    x = x.swapaxes(1, 2) if arch in INPUTS_FIRST and x.dtype != np.uint8 else x
    if "gate_up" not in name:
        return {"ffn_down_exps.weight": x}
    if arch in FUSED:
        return {"ffn_gate_up_exps.weight": x}
    gate, up = (x[:, 0::2], x[:, 1::2]) if arch == "gpt-oss" else np.split(x, 2, axis=1)
    return {"ffn_gate_exps.weight": gate, "ffn_up_exps.weight": up}


def convert_layer(arch, c, layer):
    """Tensors of a layer by their GGUF names; `layer` is by the folder's."""
    out, experts = {}, {}
    for name, x in layer.items():
        folder = next((f for f in FOLDERS if name.startswith(f)), None)
        name = FOLDERS[folder] + name.removeprefix(folder) if folder else name
        module, _, last = name.rpartition(".")
        parts = name.split(".")
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            out |= convert_stacked(arch, name, mxfp4_blocks(x, layer[name + "_scales"]))
        elif "experts" in parts and parts[-1] in ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"):
            out |= convert_stacked(arch, parts[-1], x)
        elif "experts" in parts:
            experts.setdefault(f"ffn_{OF_EXPERTS[parts[-2]]}_exps.{last}", {})[int(parts[-3])] = x
        elif arch == "step35" and module in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj") and x.ndim == 3:
            out[MODULES[module] + "_exps.weight"] = x
        elif module == "self_attn.kv_b_proj" and splits_latents(arch, c):
            out["attn_k_b.weight"], out["attn_v_b.weight"] = split_latents(x, c)
        elif name == "linear_attn.in_proj_qkvz.weight":
            out["attn_qkv.weight"], out["attn_gate.weight"] = split_qkvz(x, c)
        elif module == "post_attention_layernorm":
            out[("post_attention_norm" if arch in AFTER_ATTENTION else "ffn_norm") + ".weight"] = change(arch, c, module, name, x)
        else:
            out[TENSORS.get(name) or f"{MODULES[module]}.{last}"] = change(arch, c, module, name, x)
    for name, of in experts.items():
        out[name] = np.stack([of[e] for e in range(len(of))])
    return out


def divisors(c, dims, padded):
    """Divisors of the frequencies by llama3 scaling, and 1 behind them."""
    rope = c["rope_scaling"]
    theta = c["rope_theta"][0] if isinstance(c["rope_theta"], list) else c["rope_theta"]
    turns = rope["original_max_position_embeddings"] / (2 * np.pi * theta ** (np.arange(0, dims, 2) / dims))
    smooth = np.clip((turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"]), 0, 1)
    out = np.ones(padded, np.float32)
    out[: dims // 2] = 1 / ((1 - smooth) / rope["factor"] + smooth)
    return out


def write_rope(w, arch, c, dims):
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    theta = rope.get("rope_theta", c.get("rope_theta", 10000))
    w.add_rope_freq_base(float(theta[0] if isinstance(theta, list) else theta))
    w.add_rope_dimension_count(dims)
    if "mrope_section" in rope:
        w.add_rope_dimension_sections([*rope["mrope_section"], 0])
    kind = rope.get("rope_type") or rope.get("type")
    if kind == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(float(rope["factor"]))
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("mscale_all_dim"):
            w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
        if rope.get("llama_4_scaling_beta"):
            w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
            w.add_uint32(f"{arch}.attention.temperature_length", rope["original_max_position_embeddings"])
    if kind == "llama3" and arch == "llama4":
        w.add_tensor("rope_freqs.weight", divisors(c, dims, dims // 2))
    if kind == "llama3" and arch == "step35":  # half of a head turns where all keys are seen
        w.add_tensor("rope_freqs.weight", divisors(c, dims // 2, dims // 2))
    if kind == "proportional":
        turning = int(dims * rope["partial_rotary_factor"]) // 2
        w.add_tensor("rope_freqs.weight", np.array([1] * turning + [1e30] * (dims // 2 - turning), np.float32))


def write_experts(w, c):
    first = lambda *keys: next((c[key] for key in keys if c.get(key)), 0)
    count = first("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    if not count:
        return
    w.add_expert_count(count)
    w.add_expert_used_count(first("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_top_k", "top_k_experts"))
    w.add_expert_feed_forward_length(c.get("moe_intermediate_size") or c["intermediate_size"])
    if c.get("shared_expert_intermediate_size"):
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if c.get("share_expert_dim"):
        w.add_expert_shared_feed_forward_length(c["share_expert_dim"])
    if "moe_layer_start_index" in c:
        w.add_expert_shared_count(c["moe_num_shared_experts"])
        w.add_expert_shared_feed_forward_length(c["moe_num_shared_experts"] * c["moe_intermediate_size"])
        w.add_leading_dense_block_count(c["moe_layer_start_index"])
        w.add_interleave_moe_layer_step(c["moe_layer_interval"])
    if "num_shared_experts" in c:
        w.add_expert_shared_count(c["num_shared_experts"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if "moe_router_scaling_factor" in c:
        w.add_expert_weights_scale(c["moe_router_scaling_factor"])
        w.add_expert_weights_norm(c["norm_expert_weight"])
    if "n_routed_experts" in c:
        w.add_expert_shared_count(c.get("n_shared_experts") or 0)
        w.add_leading_dense_block_count(c.get("first_k_dense_replace", 0))
        w.add_expert_group_count(c.get("n_group") or 1)
        w.add_expert_group_used_count(c.get("topk_group") or 1)
        w.add_expert_weights_scale(float(c.get("routed_scaling_factor") or 1))
        w.add_expert_weights_norm(bool(c.get("norm_topk_prob")))
        sigmoid = c["architectures"][0] not in ("DeepseekV2ForCausalLM", "Mistral4ForCausalLM")
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)


def write_sliding(w, arch, c):
    """Heads and windows of layers that see near keys only."""
    near = [kind == "sliding_attention" for kind in c["layer_types"]]
    by_kind = lambda far, local: [local if n else far for n in near]
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern(near)
    if arch == "mimo2":
        w.add_head_count(c["num_attention_heads"])
        w.add_head_count_kv(by_kind(c["num_key_value_heads"], c["swa_num_key_value_heads"]))
        w.add_value_length(c["v_head_dim"])
        w.add_rope_freq_base_swa(float(c["swa_rope_theta"]))
        w.add_float32(f"{arch}.attention.value_scale", c["attention_value_scale"])
    if arch == "step35":
        other = c["attention_other_setting"]
        w.add_head_count(by_kind(c["num_attention_heads"], other["num_attention_heads"]))
        w.add_head_count_kv(by_kind(c["num_attention_groups"], other["num_attention_groups"]))
        w.add_value_length(c["head_dim"])
        w.add_rope_freq_base_swa(float(c["rope_theta"][near.index(True)]))
        w.add_swiglu_clamp_exp(c["swiglu_limits"])
        w.add_swiglu_clamp_shexp(c["swiglu_limits_shared"])
    if arch == "gemma4":
        w.add_head_count(c["num_attention_heads"])
        w.add_head_count_kv(by_kind(c["num_global_key_value_heads"], c["num_key_value_heads"]))
        w.add_value_length(c["global_head_dim"])
        w.add_key_length_swa(c["head_dim"])
        w.add_value_length_swa(c["head_dim"])
        w.add_rope_dimension_count_swa(c["head_dim"])
        w.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
        w.add_shared_kv_layers(0)
        w.add_embedding_length_per_layer_input(0)


def write_latents(w, arch, c):
    rank, nope, rotated = c["kv_lora_rank"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    if c.get("q_lora_rank"):
        w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(rank)
    if arch == "kimi-linear":
        linear = c["linear_attn_config"]
        w.add_head_count_kv([c["num_key_value_heads"] if i + 1 in linear["full_attn_layers"] else 0 for i in range(c["num_hidden_layers"])])
        w.add_key_length(rank + rotated)
        w.add_key_length_mla(nope + rotated)
        w.add_value_length_mla(c["v_head_dim"])
        w.add_kda_head_dim(linear["head_dim"])
        w.add_ssm_conv_kernel(linear["short_conv_kernel_size"])
    elif splits_latents(arch, c):
        w.add_head_count_kv(1)
        w.add_key_length(rank + rotated)
        w.add_value_length(rank)
        w.add_key_length_mla(nope + rotated)
        w.add_value_length_mla(c["v_head_dim"])
    else:
        w.add_head_count_kv(c["num_attention_heads"])
        w.add_key_length(nope + rotated)
        w.add_value_length(c["v_head_dim"])
    return rotated


def num_modules(arch, c):
    """Older converters leave out the module of qwen3next."""
    return c.get("mtp_num_hidden_layers", 0) if arch in ("qwen35", "qwen35moe") or "--mtp" in sys.argv else 0


def write_metadata(w, arch, c):
    dims = c.get("global_head_dim") or c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"] + num_modules(arch, c))
    if num_modules(arch, c):
        w.add_nextn_predict_layers(num_modules(arch, c))
    w.add_feed_forward_length(c.get("intermediate_size_mlp") or c.get("intermediate_size") or 0)
    if arch not in SLIDING:
        w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_rms_eps(c.get("rms_norm_eps") or c["layernorm_epsilon"])
    if arch in LATENT:
        rotated = write_latents(w, arch, c)
    elif arch in SLIDING:
        w.add_key_length(dims)
        write_sliding(w, arch, c)
        rotated = int(dims * c.get("partial_rotary_factor", 1))
    else:
        kinds = c.get("layer_types") or []
        linear = ["linear" in kind for kind in kinds]
        w.add_head_count_kv([0 if is_linear else c["num_key_value_heads"] for is_linear in linear] if any(linear) else c["num_key_value_heads"])
        w.add_key_length(dims)
        w.add_value_length(dims)
        rope = c.get("rope_parameters") or {}
        share = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 1))
        rotated = c.get("rotary_dim") or int(dims * share)
    write_rope(w, arch, c, rotated)
    write_experts(w, c)
    if arch == "gpt-oss":
        w.add_sliding_window(c["sliding_window"])
    if arch == "llama4":  # which published files leave out, since all have the same
        w.add_sliding_window(c["attention_chunk_size"])
        w.add_uint32(f"{arch}.attention.temperature_length", c["floor_scale"])
        w.add_interleave_moe_layer_step(c["interleave_moe_layer_step"])
    if arch in HYBRID:
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    c = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES[c["architectures"][0]]
    c = c | c.get("text_config", {}) | {"architectures": c["architectures"]}
    tensors = read_folder(folder)
    c["mtp_num_hidden_layers"] = len({name.split(".")[2] for name in tensors if name.startswith("mtp.layers.")})
    w = gguf.GGUFWriter(target, arch)
    write_metadata(w, arch, c)
    layers = {}
    for name, x in tensors.items():
        name = behind_layers(name, c)
        parts = name.split(".")
        if name == "model.embed_tokens.weight":
            w.add_tensor("token_embd.weight", x)
        elif name == "model.norm.weight":
            w.add_tensor("output_norm.weight", change(arch, c, "norm", name, x))
        elif name == "lm_head.weight":
            w.add_tensor("output.weight", x)
        elif name.startswith("model.layers.") and int(parts[2]) < c["num_hidden_layers"] + num_modules(arch, c):
            layers.setdefault(int(parts[2]), {})[".".join(parts[3:])] = x
    for i, layer in sorted(layers.items()):
        for name, x in convert_layer(arch, c, layer).items():
            raw = gguf.GGMLQuantizationType.MXFP4 if x.dtype == np.uint8 else None
            w.add_tensor(f"blk.{i}.{name}", np.ascontiguousarray(x), raw_dtype=raw)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
