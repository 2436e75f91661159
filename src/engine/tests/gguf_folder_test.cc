// A GGUF file that was made from a folder is that folder again: in float32 its packed weights and
// its logits are the folder's. tools/gguf_model made the files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "compute/weights/hf_config.h"
#include "compute/weights/stacked_experts.h"
#include "engine/check/checker.h"
#include "engine/plan/model_choice.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using testing::settings_for;

const std::filesystem::path kFolder = "tests/golden";

// How near the file's numbers are to the folder's.
enum class Bits : uint8_t {
  equal,
  rounded_rope,  // the divisors of frequencies are float32 in the file
  rounded        // the converter adds 1, or takes an exponential, which rounds
};
struct GgufCopy {
  const char* file;
  const char* folder;
  Bits bits = Bits::equal;
  int modules = 0;  // for multi-token prediction
};
constexpr GgufCopy kGgufCopies[] = {{"gguf_qwen2", "qwen2"},
                                    {"gguf_qwen3", "qwen3"},
                                    {"gguf_qwen3vlmoe", "qwen3_vl_moe"},
                                    {"gguf_deepseek_v2", "deepseek_v2_lite"},
                                    {"gguf_kimi_k2", "kimi_k25"},
                                    {"gguf_glm4_flash", "glm4_moe_lite"},
                                    {"gguf_mistral4", "mistral4"},
                                    {"gguf_glm4moe", "glm4_moe_mtp"},
                                    {"gguf_ernie4_5_moe", "ernie4_5_moe"},
                                    {"gguf_gpt_oss", "gpt_oss_mxfp4"},
                                    {"gguf_minimax_m2", "minimax_m2"},
                                    {"gguf_mimo2", "mimo_v2_flash"},
                                    {"gguf_gemma4", "gemma4_moe"},
                                    {"gguf_llama4", "llama4", Bits::rounded_rope},
                                    {"gguf_step35", "step3p7"},
                                    {"gguf_kimi_linear", "kimi_linear", Bits::rounded},
                                    {"gguf_qwen3next", "qwen3_next", Bits::rounded},
                                    {"gguf_qwen3next_mtp", "qwen3_next_mtp", Bits::rounded, 1},
                                    {"gguf_qwen35", "qwen3_5", Bits::rounded},
                                    {"gguf_qwen35moe", "qwen3_5_moe_mtp", Bits::rounded, 1}};

ServerSettings settings_of(const char* name, int modules = 0) {
  ServerSettings settings = settings_for(kFolder / name);
  settings.model.dtype = "float32";
  settings.model.max_mtp_modules = modules;
  return settings;
}

// Returns all weights as the model's layers read them.
std::vector<float> packed_weights(const char* name, int modules) {
  const auto choice = choose_model_form(settings_of(name, modules));
  EXPECT_TRUE(choice.has_value()) << describe(choice.error());
  EXPECT_EQ(choice->model.num_mtp_loaded, modules);
  const auto source = open_model_weights(source_dir() / kFolder / name, choice->model.moe);
  EXPECT_TRUE(source.has_value()) << describe(source.error());
  WeightLoader::Options options = choice->loader_options();
  options.source = source->get();
  const auto measured = measure_weights(*choice, options.source);
  EXPECT_TRUE(measured.has_value()) << describe(measured.error());
  options.bytes = measured->bytes;
  auto loader = WeightLoader::loading(options);
  EXPECT_TRUE(loader.has_value());
  EXPECT_TRUE(load_held(*choice, *loader).has_value());
  const Buffer memory = loader->take_memory();
  std::vector<float> out(static_cast<size_t>(memory.bytes()) / sizeof(float));
  std::memcpy(out.data(), memory.data(), out.size() * sizeof(float));
  return out;
}

TEST(GgufFolder, WeightsAreThoseOfTheFolder) {
  for (const GgufCopy& copy : kGgufCopies) {
    SCOPED_TRACE(copy.file);
    const std::vector<float> got = packed_weights(copy.file, copy.modules);
    const std::vector<float> want = packed_weights(copy.folder, copy.modules);
    ASSERT_EQ(got.size(), want.size());
    int64_t differ = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
      ++differ;
      ASSERT_NEAR(got[i], want[i], copy.bits == Bits::rounded ? 4e-7 : 0) << i;
    }
    std::printf("%-22s %8zu numbers, %ld rounded\n", copy.file, want.size(),
                static_cast<long>(differ));
    EXPECT_EQ(differ > 0, copy.bits == Bits::rounded);
  }
}

class Logits final : public RowReader {
 public:
  void head(ScriptRow row, const Head& head) override {
    rows_[{row.script, row.position}].assign(head.logits.begin(), head.logits.end());
  }
  const auto& rows() const { return rows_; }

 private:
  std::map<std::pair<int, int>, std::vector<float>> rows_;
};

Logits logits_of(const char* name, const char* prompts_of) {
  Logits logits;
  auto runner =
      Runner::create({.settings = settings_of(name), .progress = {}, .tokenizer_eos = {}});
  EXPECT_TRUE(runner.has_value()) << describe(runner.error());
  const auto reference =
      Reference::read(source_dir() / kFolder / prompts_of, (*runner)->info().model);
  EXPECT_TRUE(reference.has_value()) << describe(reference.error());
  EXPECT_TRUE(play_scripts(**runner, scripts_of(*reference), {}, logits).has_value());
  return logits;
}

TEST(GgufFolder, LogitsAreThoseOfTheFolder) {
  for (const GgufCopy& copy : kGgufCopies) {
    if (copy.bits != Bits::equal) continue;
    SCOPED_TRACE(copy.file);
    const Logits got = logits_of(copy.file, copy.folder);
    const Logits want = logits_of(copy.folder, copy.folder);
    EXPECT_GT(want.rows().size(), 100U);
    EXPECT_EQ(got.rows(), want.rows());
  }
}

}  // namespace
}  // namespace hocket
