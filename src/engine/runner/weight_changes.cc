#include "engine/runner/weight_changes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/show_bytes.h"
#include "compute/models/family.h"
#include "compute/models/mtp_module.h"
#include "compute/weights/gguf_footprints.h"
#include "compute/weights/tracked_weight_source.h"
#include "engine/plan/scheduler_settings.h"
#include "gguf/config.h"
#include "gguf/file.h"
#include "gguf/tokenizer_json.h"

namespace hocket {
namespace {

constexpr size_t kMaxNames = 4;  // in a line

// Names the tensors that are neither loaded nor known to be of no use. A rank among others loads
// only some experts.
std::vector<UnreadTensors> left_over(const ModelChoice& choice, const WeightSource& files) {
  return unread_tensors(files, [&](std::string_view name) {
    const bool of_others = !choice.experts.empty() && name.contains("experts.");
    return of_others || is_passed_over(choice.model, name);
  });
}

SettingChange say_left_over(const ModelConfig& model, std::span<const UnreadTensors> all) {
  std::string names;
  int count = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    count += all[i].count;
    bytes += all[i].bytes;
    if (i < kMaxNames)
      names += fmt::format("{}{} {}", i == 0 ? "" : ", ", all[i].count, all[i].names);
  }
  if (all.size() > kMaxNames) names += fmt::format(" and {} other names", all.size() - kMaxNames);
  return {.flag = "weights",
          .from = fmt::format("{} tensors of {} ({})", count, show_bytes(bytes), names),
          .to = "not read",
          .why = fmt::format("{} has no use for them; if the model computes with them, its answers "
                             "are wrong here",
                             model.architecture)};
}

// True if a GGUF file has layers for multi-token prediction that its architecture is not known to
// have.
bool leaves_draft_layers(const ModelChoice& choice, const WeightSource* files) {
  if (files == nullptr || choice.model.quant.layout != QuantConfig::Layout::gguf ||
      has_module(choice.model))
    return false;
  return std::ranges::any_of(files->names(),
                             [](const std::string& name) { return name.contains(".nextn."); });
}

// Says what the blocks of a type are in memory. Types of less than four bits have wider formats,
// and people choose these files by their size.
SettingChange block_change(const GgufFootprint& price, WeightFormat quantize) {
  constexpr double kGrown = 1.15;
  const double times = static_cast<double>(price.memory_bytes) /
                       static_cast<double>(std::max<int64_t>(price.file_bytes, 1));
  SettingChange change{.flag = "weights",
                       .from = fmt::format("{}, {}", price.type, show_bytes(price.file_bytes)),
                       .to = fmt::format("{}, {}", price.format, show_bytes(price.memory_bytes)),
                       .why = price.keeps_values
                                  ? "kernels read this format; the values are the same"
                                  : "kernels read this format; the values are rounded once"};
  if (times <= kGrown) return change;
  change.to += fmt::format(" ({:.1f} times)", times);
  if (quantize == WeightFormat::bf16 && price.in_bytes)
    change.why += "; --quantization int4 makes layers 4.38 bits a weight, at a loss";
  return change;
}

}  // namespace

int num_held_modules(const ModelConfig& model, const WeightSource& files) {
  const Result<const ModelFamily*> family = find_family(model.architecture);
  if (!family) return model.num_mtp_loaded;
  int num = 0;
  while (num < model.num_mtp_loaded && holds_mtp_module(model, **family, num, files)) ++num;
  return num;
}

Result<SettingChange> leave_modules(const SpeculationSettings& settings, int num_held,
                                    ModelConfig& model) {
  const int wanted = model.num_mtp_loaded;
  model.num_mtp_layers = model.num_mtp_loaded = num_held;
  if (num_held > 0)
    return SettingChange{
        .flag = "weights",
        .from = fmt::format("{} modules for multi-token prediction", wanted),
        .to = std::to_string(num_held),
        .why = "the files hold no more of those that config.json names; each gives one draft"};
  if (speculation_named(settings.algorithm) == "NEXTN")
    return fail(error(ErrorCode::missing_tensor,
                      "the files hold no module for multi-token prediction, as config.json says "
                      "and --speculative-algorithm {} asks",
                      settings.algorithm)
                    .with_fix("--speculative-algorithm NGRAM, or the files of the publisher")
                    .with_param("speculative-algorithm"));
  return SettingChange{.flag = "--speculative-algorithm",
                       .from = settings.algorithm,
                       .to = "NGRAM",
                       .why =
                           "the files hold no module for multi-token prediction, as config.json "
                           "says"};
}

std::vector<SettingChange> weight_changes(const ModelChoice& choice, const WeightLoader& loader,
                                          const WeightSource* files) {
  std::vector<SettingChange> all;
  for (const std::string& part : choice.model.left_aside)
    all.push_back({.flag = "weights",
                   .from = part,
                   .to = "not loaded",
                   .why = "the model is served with text alone"});
  if (leaves_draft_layers(choice, files))
    all.push_back(
        {.flag = "weights",
         .from = "layers for multi-token prediction (nextn)",
         .to = "not loaded",
         .why = fmt::format("they are not known in GGUF files of {}; answers do not depend "
                            "on them, and drafts come from the text",
                            choice.model.architecture)});
  const auto& [wide, joined, requantized] = loader.format_changes();
  if (wide.num_products > 0)
    all.push_back({.flag = "weights",
                   .from = fmt::format("{} quantized products of {}", wide.num_products,
                                       show_bytes(wide.stored_bytes)),
                   .to = fmt::format("bfloat16 of {}", show_bytes(wide.kept_bytes)),
                   .why =
                       "they stack matrices of different formats, or are never quantized in memory "
                       "(embedding, head, router, kv_b_proj)"});
  if (joined.num_products > 0)
    all.push_back({.flag = "weights",
                   .from = fmt::format("{} products of {}", joined.num_products,
                                       show_bytes(joined.stored_bytes)),
                   .to = fmt::format(
                       "{} of {}",
                       weight_format_name(choice.quantize == WeightFormat::bf16 ? WeightFormat::q8_0
                                                                                : choice.quantize),
                       show_bytes(joined.kept_bytes)),
                   .why = "they stack matrices of different formats; each number is rounded once "
                          "more"});
  // A GGUF file has a line for each type of its blocks.
  if (requantized.num_products > 0 && choice.model.quant.layout != QuantConfig::Layout::gguf)
    all.push_back({.flag = "weights",
                   .from = fmt::format("{} products in {} of {}", requantized.num_products,
                                       weight_format_name(choice.stored_format()),
                                       show_bytes(requantized.stored_bytes)),
                   .to = fmt::format("{} of {}", weight_format_name(choice.quantize),
                                     show_bytes(requantized.kept_bytes)),
                   .why = "--quantization asks for it; each number is rounded once more"});
  for (const std::string& from : loader.narrowed_from())
    all.push_back({.flag = "--dtype",
                   .from = from,
                   .to = std::string(dtype_name(choice.dtype)),
                   .why = "--dtype auto computes in bfloat16 whatever the files hold"});
  const auto [from_float32, changed] = loader.rounded_scales();
  if (from_float32 || changed > 0)
    all.push_back(
        {.flag = "weights",
         .from = fmt::format("int4 with {} scales", from_float32 ? "float32" : "bfloat16"),
         .to = "int4 with float16 scales",
         .why =
             fmt::format("scales of int4 are kept in float16{}",
                         changed > 0 ? fmt::format(", which changes {} of them", changed) : "")});
  if (files == nullptr) return all;
  if (const auto unread = left_over(choice, *files); !unread.empty())
    all.push_back(say_left_over(choice.model, unread));
  return all;
}

Result<std::vector<SettingChange>> file_changes(const ModelChoice& choice,
                                                const ModelSettings& settings) {
  std::vector<SettingChange> changes;
  if (choice.headers == nullptr) return changes;
  HOCKET_TRY(const auto file,
             GgufFile::open(gguf_file_of(settings.model_path), GgufExtent::header));
  std::vector<GgufAssumption> assumed = gguf_config_assumptions(*file);
  if (settings.tokenizer_path.empty())
    std::ranges::move(gguf_tokenizer_assumptions(*file), std::back_inserter(assumed));
  for (const auto& [key, from, to, why] : assumed) changes.push_back({key, from, to, why});
  if (choice.dtype != DType::bf16) return changes;
  for (const GgufFootprint& price : gguf_footprints(*file, choice.quantize))
    changes.push_back(block_change(price, choice.quantize));
  return changes;
}

}  // namespace hocket
