// A model family: the names of the weights of one architecture, and the kind of each layer. Its
// config is read by weights/hf_families.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/models/layer.h"
#include "compute/weights/loader.h"
#include "core/model_config.h"

namespace hocket {

// The parts of a family's tensor names that differ from those of other families.
struct TensorNames {
  // Before embed_tokens, layers and norm.
  std::string_view model = "model.";
  int first_layer = 0;  // number of the first layer
  std::string_view head = "lm_head.weight";
  // In self_attn, the logits of the heads' sinks.
  std::string_view sinks = "sinks";
  // In a layer, before the matrices of a dense MLP, and before the gate and the experts.
  std::string_view dense = "mlp.", moe = "mlp.";
  // After `moe`.
  std::string_view router = "gate.weight";
  // After `moe`.
  std::string_view correction_bias = "gate.e_score_correction_bias";
  // The matrices of an expert.
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  // In a layer, before the matrices of the shared experts.
  std::string_view shared = "mlp.shared_experts.";
  // In a layer, the norm before its MLP.
  std::string_view mlp_norm = "post_attention_layernorm.weight";
};

// The names of modules for multi-token prediction: each is a layer and four tensors beside it.
struct MtpNames {
  // Before "layers.{i}." of module i; empty: the modules are layers behind those of the model.
  std::string_view model = {};
  // True if the four are named like tensors of the layer; else they are behind `model`.
  bool in_layer = true;
  std::string_view embedding_norm = "enorm.weight", hidden_norm = "hnorm.weight";
  std::string_view projection = "eh_proj.weight", final_norm = "shared_head.norm.weight";
  std::string_view mlp_norm = TensorNames().mlp_norm;
};

struct ModelFamily {
  std::string_view architecture;  // its name in config.json
  // Asks the loader for the weights of layer `index` (only for these of its experts) and sets the
  // layer's kind. Errors stay in the loader.
  Layer (*load_layer)(const ModelConfig& model, const TensorNames& names, int index,
                      std::span<const int> experts, WeightLoader& loader);
  TensorNames names = {};
  const MtpNames* mtp = nullptr;  // null: modules for multi-token prediction are not loaded
  // Layers behind the last are such modules, though they are not loaded.
  bool has_layers_behind = false;

  std::string embedding_name() const { return std::string(names.model) + "embed_tokens.weight"; }
  std::string final_norm_name() const { return std::string(names.model) + "norm.weight"; }
  std::string head_name() const { return std::string(names.head); }
};

// Returns the ids of all experts of a layer, for a rank that holds all.   Thread: any.
std::vector<int> all_experts(const ModelConfig& model);

// Returns the family of an architecture.
// Errors: unsupported_model.   Thread: any.
Result<const ModelFamily*> find_family(std::string_view architecture);

// Returns true if a tensor of the model's files is known to be of no use: it belongs to a part that
// is left aside, to a module for multi-token prediction, or to formats of rows and caches.
// Thread: any.
bool is_passed_over(const ModelConfig& model, std::string_view tensor);

// Returns true if the model's files have a module for multi-token prediction that can be loaded.
// Thread: any.
bool has_module(const ModelConfig& model);

}  // namespace hocket
