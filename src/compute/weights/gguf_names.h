// Names of tensors: those of Hugging Face folders, and those of GGUF files.   Private to the room.
// Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

// The location in a GGUF file of a tensor that a folder has by itself.
struct GgufLocation {
  std::string name;        // "blk.3.ffn_gate_exps.weight"; empty: GGUF has no such tensor
  std::string other_name;  // a second name that files may have instead
  int64_t expert = -1;     // a part of a tensor of all experts; -1: the whole tensor
};

// Returns the location of "model.layers.3.mlp.experts.7.gate_proj.weight" and its like.
GgufLocation gguf_location(std::string_view name);

// Returns "model.layers.48.eh_proj.weight" for "mtp.fc.weight" and its like, with the names that
// GGUF gives to modules for multi-token prediction: they are layers behind those of the model. Any
// other name stays.
std::string name_behind_layers(std::string_view name, int64_t num_layers);

}  // namespace hocket
