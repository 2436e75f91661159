#include "compute/weights/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace hocket {
namespace {

constexpr int64_t kMaxModules = 512;  // for multi-token prediction

struct ModuleName {
  std::string_view folder, gguf, other = {};
};

// Modules of a layer, whose tensors end in .weight or .bias in both forms. Folders before the
// modules of an MLP are "mlp." here, and "mlp.shared_expert." of shared experts.
constexpr ModuleName kModules[] = {
    {"input_layernorm", "attn_norm"},
    // Gemma has a norm before the MLP, too, with the name that the others use.
    {"post_attention_layernorm", "post_attention_norm", "ffn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.g_proj", "attn_gate"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.q_conv1d", "ssm_conv1d_q"},
    {"self_attn.k_conv1d", "ssm_conv1d_k"},
    {"self_attn.v_conv1d", "ssm_conv1d_v"},
    {"self_attn.b_proj", "ssm_beta"},
    {"self_attn.f_a_proj", "ssm_f_a"},
    {"self_attn.f_b_proj", "ssm_f_b"},
    {"self_attn.g_a_proj", "ssm_g_a"},
    {"self_attn.g_b_proj", "ssm_g_b"},
    {"self_attn.o_norm", "ssm_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"router.proj", "ffn_gate_inp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},  // in older files; newer ones hold its parts
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"eh_proj", "nextn.eh_proj"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"shared_head.norm", "nextn.shared_head_norm"},
};

// Tensors whose last word differs, too.
constexpr std::pair<std::string_view, std::string_view> kTensors[] = {
    {"self_attn.sinks", "attn_sinks.weight"},
    {"self_attn.attention_sink_bias", "attn_sinks.weight"},
    {"self_attn.A_log", "ssm_a"},
    {"self_attn.dt_bias", "ssm_dt.bias"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.router_bias", "exp_probs_b.bias"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
};

constexpr ModuleName kOfExperts[] = {{"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},
                                     {"up_proj", "ffn_up_exps"},     {"w3", "ffn_up_exps"},
                                     {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"}};

// The names that families give to folders of an MLP, and that of the tables above.
constexpr std::pair<std::string_view, std::string_view> kFolders[] = {
    {"block_sparse_moe.", "mlp."},
    {"feed_forward.", "mlp."},
    {"moe.", "mlp."},
    {"share_expert.", "mlp.shared_expert."},
    {"experts.", "mlp.experts."},
    {"mlp.shared_experts.", "mlp.shared_expert."}};

// Returns the name that the tables have.
std::string with_usual_folder(std::string_view tensor) {
  std::string name(tensor);
  for (const auto& [folder, usual] : kFolders)
    if (name.starts_with(folder)) name = std::string(usual) + name.substr(folder.size());
  return name;
}

// Removes a number and the dot behind it from the front.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number < 0 || end == text.data() + text.size() || *end != '.')
    return std::nullopt;
  text.remove_prefix(end - text.data() + 1);
  return number;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Returns the location in a layer of "mlp.experts.7.gate_proj.weight".
GgufLocation location_of_expert(std::string_view tensor) {
  if (!take_prefix(tensor, "mlp.experts.")) return {};
  const std::optional<int64_t> expert = take_number(tensor);
  const size_t dot = tensor.find('.');
  if (!expert || dot == tensor.npos) return {};
  const auto* const found =
      std::ranges::find(kOfExperts, tensor.substr(0, dot), &ModuleName::folder);
  if (found == std::end(kOfExperts)) return {};
  return {std::string(found->gguf) + std::string(tensor.substr(dot)), {}, *expert};
}

GgufLocation location_in_layer(std::string_view tensor) {
  for (const auto& [folder, gguf] : kTensors)
    if (tensor == folder) return {.name = std::string(gguf)};
  const size_t dot = tensor.rfind('.');
  if (dot == tensor.npos) return {};
  const std::string_view module = tensor.substr(0, dot), last = tensor.substr(dot);
  const auto* const found = std::ranges::find(kModules, module, &ModuleName::folder);
  if (found == std::end(kModules)) return location_of_expert(tensor);
  GgufLocation location{.name = std::string(found->gguf) + std::string(last)};
  if (!found->other.empty()) location.other_name = std::string(found->other) + std::string(last);
  return location;
}

// Tensors of Qwen's module that are beside its layer, and their names in other families.
constexpr std::pair<std::string_view, std::string_view> kBesideLayer[] = {
    {"fc.", "eh_proj."},
    {"pre_fc_norm_embedding.", "enorm."},
    {"pre_fc_norm_hidden.", "hnorm."},
    {"norm.", "shared_head.norm."}};

}  // namespace

std::string name_behind_layers(std::string_view name, int64_t num_layers) {
  std::string_view module = name;
  if (!take_prefix(module, "mtp.")) return std::string(name);
  for (const auto& [qwen, usual] : kBesideLayer)
    if (module.starts_with(qwen))
      return fmt::format("model.layers.{}.{}{}", num_layers, usual, module.substr(qwen.size()));
  const std::optional<int64_t> layer =
      take_prefix(module, "layers.") ? take_number(module) : std::nullopt;
  if (!layer || *layer > kMaxModules) return std::string(name);
  return fmt::format("model.layers.{}.{}", num_layers + *layer, module);
}

GgufLocation gguf_location(std::string_view name) {
  if (name == "model.embed_tokens.weight") return {.name = "token_embd.weight"};
  if (name == "model.norm.weight") return {.name = "output_norm.weight"};
  if (name == "lm_head.weight") return {.name = "output.weight"};
  if (!take_prefix(name, "model.layers.")) return {};
  const std::optional<int64_t> layer = take_number(name);
  if (!layer) return {};
  GgufLocation location = location_in_layer(with_usual_folder(name));
  if (location.name.empty()) return location;
  location.name = fmt::format("blk.{}.{}", *layer, location.name);
  if (!location.other_name.empty())
    location.other_name = fmt::format("blk.{}.{}", *layer, location.other_name);
  return location;
}

}  // namespace hocket
