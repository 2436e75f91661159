// Models in which the language model is one part: the files of a text model, renamed and nested as
// the wrapper's publisher does it, compute what the text model computes, and the start says what is
// left aside.
#include <gmock/gmock.h>

#include "engine/check/quality.h"
#include "engine/tests/forms.h"
#include "engine/tests/tensor_file.h"

namespace hocket {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::Not;

struct Wrapper {
  const char *architecture, *text_model;
  const char *model, *head;  // are in the place of "model." and of "lm_head."
  const char* tower;         // the first part of the names of what is not loaded
};
const Wrapper kWrappers[] = {{"Llama4ForConditionalGeneration", "llama4", "language_model.model.",
                              "language_model.lm_head.", "vision_model."},
                             {"Gemma4ForConditionalGeneration", "gemma4_moe",
                              "model.language_model.", "lm_head.", "model.vision_tower."},
                             {"Mistral3ForConditionalGeneration", "mistral4",
                              "language_model.model.", "language_model.lm_head.", "vision_tower."},
                             {"Qwen3_5ForConditionalGeneration", "qwen3_5", "model.language_model.",
                              "lm_head.", "model.visual."}};

std::filesystem::path folder_of(const Wrapper& wrapper) {
  const auto from = source_dir() / kGolden / wrapper.text_model;
  const auto folder = std::filesystem::path(::testing::TempDir()) / wrapper.architecture;
  std::filesystem::create_directories(folder);

  nlohmann::json text = nlohmann::json::parse(std::ifstream(from / "config.json"));
  text.erase("architectures");
  std::ofstream(folder / "config.json") << nlohmann::json{{"architectures", {wrapper.architecture}},
                                                          {"text_config", std::move(text)},
                                                          {"vision_config", {{"hidden_size", 16}}}};

  TensorFile tensors(from / "model.safetensors");
  nlohmann::json renamed;
  for (auto& [name, tensor] : tensors.header.items()) {
    std::string other = name;
    if (name.starts_with("model.")) other.replace(0, 6, wrapper.model);
    if (name.starts_with("lm_head.")) other.replace(0, 8, wrapper.head);
    renamed[other] = std::move(tensor);
  }
  tensors.header = std::move(renamed);
  tensors.add(std::string(wrapper.tower) + "patch_embed.weight");
  tensors.write(folder / "model.safetensors");
  return folder;
}

std::unique_ptr<Runner> runner_of(const std::filesystem::path& folder) {
  ServerSettings settings = settings_for(folder);
  settings.compute.num_threads = 2;
  auto made = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  if (made) return *std::move(made);
  ADD_FAILURE() << describe(made.error());
  return nullptr;
}

const auto kLeftVision =
    AllOf(Field(&SettingChange::flag, "weights"), Field(&SettingChange::from, "vision_config"),
          Field(&SettingChange::to, "not loaded"));

// The tower is known to be of no use, so it is not among tensors that nobody reads.
auto SaysThatImagesAreLeftAside() {
  return AllOf(Contains(kLeftVision), Not(Contains(Field(&SettingChange::to, "not read"))));
}

class WrappedModel : public ::testing::TestWithParam<Wrapper> {};

TEST_P(WrappedModel, ComputesWhatItsTextModelDoes) {
  std::vector<Script> scripts(1);
  for (const int token : random_tokens(3, 90)) scripts[0].prompt.push_back(TokenId{token});
  for (const int token : random_tokens(4, 9)) scripts[0].fed.push_back(TokenId{token});
  const auto text = runner_of(kGolden / GetParam().text_model);
  const auto whole = runner_of(folder_of(GetParam()));
  ASSERT_TRUE(text && whole);
  EXPECT_EQ(whole->info().model.architecture, GetParam().architecture);
  const auto want = record_logits(*text, scripts, {}), got = record_logits(*whole, scripts, {});
  ASSERT_TRUE(want && got);
  EXPECT_EQ(want->rows(), scripts[0].num_tokens());
  EXPECT_TRUE(same_logits(*got, *want));

  EXPECT_THAT(whole->info().changes, SaysThatImagesAreLeftAside());
  EXPECT_THAT(text->info().changes, Not(Contains(kLeftVision)));
}

INSTANTIATE_TEST_SUITE_P(Golden, WrappedModel, ::testing::ValuesIn(kWrappers),
                         [](const auto& one) { return std::string(one.param.architecture); });

// Families whose golden folders are wrappers themselves.
class WrappedFolder : public ::testing::TestWithParam<const char*> {};

TEST_P(WrappedFolder, SaysWhatIsLeftAside) {
  const auto whole = runner_of(kGolden / GetParam());
  ASSERT_TRUE(whole);
  EXPECT_THAT(whole->info().changes, SaysThatImagesAreLeftAside());
}

INSTANTIATE_TEST_SUITE_P(Golden, WrappedFolder,
                         ::testing::Values("kimi_k25", "qwen3_5_moe", "qwen3_vl_moe", "step3p7"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace hocket
