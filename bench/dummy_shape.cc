#include "bench/dummy_shape.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hocket {
namespace {

struct DummySizes {
  std::string_view name;
  int hidden, layers, heads, kv_heads, head_dim, experts, top_k, intermediate;
};

constexpr std::array kDummyShapes = {
    DummySizes{"small", 1024, 12, 16, 4, 64, 32, 4, 512},
    DummySizes{"mid", 2048, 16, 32, 4, 128, 64, 8, 768},
    DummySizes{"wire", 2048, 6, 8, 2, 64, 32, 4, 128},
};

std::string config_of(const DummySizes& s) {
  return nlohmann::json({{"architectures", {"Qwen3MoeForCausalLM"}},
                         {"model_type", "qwen3_moe"},
                         {"hidden_act", "silu"},
                         {"hidden_size", s.hidden},
                         {"num_hidden_layers", s.layers},
                         {"num_attention_heads", s.heads},
                         {"num_key_value_heads", s.kv_heads},
                         {"head_dim", s.head_dim},
                         {"num_experts", s.experts},
                         {"num_experts_per_tok", s.top_k},
                         {"moe_intermediate_size", s.intermediate},
                         {"intermediate_size", 4 * s.hidden},
                         {"norm_topk_prob", true},
                         {"vocab_size", 32000},
                         {"max_position_embeddings", 32768},
                         {"rms_norm_eps", 1e-6},
                         {"rope_theta", 1e6},
                         {"tie_word_embeddings", false},
                         {"torch_dtype", "bfloat16"}})
      .dump(2);
}

}  // namespace

Result<DummyShape> DummyShape::create(std::string_view name) {
  const auto shape = std::ranges::find(kDummyShapes, name, &DummySizes::name);
  if (shape == kDummyShapes.end())
    return fail(error(ErrorCode::bad_value, "--shape {} is not one of small, mid, wire", name)
                    .with_param("shape"));
  std::error_code code;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(code);
  std::string path = (temporary / "hocket-shape-XXXXXX").string();
  if (code || mkdtemp(path.data()) == nullptr)
    return fail(error(ErrorCode::io, "no folder can be made in {}", temporary.string())
                    .with_fix("TMPDIR=a folder that can be written"));
  DummyShape made{path};
  std::ofstream file(made.folder_ / "config.json");
  file << config_of(*shape);
  file.close();
  if (!file) return fail(ErrorCode::io, "{}/config.json cannot be written", path);
  return made;
}

DummyShape::~DummyShape() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace hocket
