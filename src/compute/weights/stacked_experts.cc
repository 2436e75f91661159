#include "compute/weights/stacked_experts.h"

#include <charconv>

#include "compute/weights/safetensors.h"

namespace hocket {
namespace {

constexpr std::string_view kExpertsFolder = "experts.";

// The place of one expert's matrix in a stacked tensor.
struct Place {
  std::string tensor;  // name of the stacked tensor
  int64_t expert = 0;
  int part = 0, num_parts = 1;  // gate and up are halves of one tensor
};

// Returns the place of "...experts.{e}.gate_proj.weight" and its like; empty for any other name.
std::optional<Place> place_of(std::string_view name) {
  const size_t folder = name.rfind(kExpertsFolder);
  if (folder == name.npos) return std::nullopt;
  const size_t number = folder + kExpertsFolder.size();
  Place place;
  const char* const end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data() + number, end, place.expert);
  if (problem != std::errc() || place.expert < 0) return std::nullopt;
  const std::string_view module(rest, end);
  if (module == ".gate_proj.weight" || module == ".up_proj.weight") {
    place.part = module == ".up_proj.weight" ? 1 : 0;
    place.num_parts = 2;
  } else if (module != ".down_proj.weight") {
    return std::nullopt;
  }
  place.tensor =
      std::string(name.substr(0, number)) + (place.num_parts == 2 ? "gate_up_proj" : "down_proj");
  return place;
}

}  // namespace

StackedExperts::StackedExperts(std::unique_ptr<WeightSource> files, MoeConfig::Stacked form)
    : files_(std::move(files)), form_(form) {}

bool StackedExperts::has(std::string_view name) const {
  if (files_->has(name)) return true;
  const std::optional<Place> place = place_of(name);
  return place && files_->has(place->tensor);
}

Result<StoredTensor> StackedExperts::find(std::string_view name) const {
  const std::optional<Place> place = files_->has(name) ? std::nullopt : place_of(name);
  if (!place || !files_->has(place->tensor)) return files_->find(name);
  HOCKET_TRY(StoredTensor all, files_->find(place->tensor));
  const bool outputs_first = form_ == MoeConfig::Stacked::outputs_first;
  if (all.shape.size() != 3 || place->expert >= all.shape[0] ||
      all.shape[outputs_first ? 1 : 2] % place->num_parts != 0)
    return fail(error(ErrorCode::wrong_shape,
                      "{} has {} axes or sizes that do not hold expert {} of gate, up and down",
                      place->tensor, all.shape.size(), place->expert)
                    .with_fix("config.json and the weights are of different models: download both "
                              "again"));
  if (all.type == StoredType::other) return all;  // the reader refuses the type by name
  const int64_t outputs = all.shape[outputs_first ? 1 : 2], k = all.shape[outputs_first ? 2 : 1];
  const int64_t rows = outputs / place->num_parts, size = stored_type_size(all.type);
  const int64_t expert_begin = place->expert * outputs * k;
  StoredTensor one{.type = all.type, .shape = {rows, k}};
  if (outputs_first) {
    one.data = all.data + (expert_begin + place->part * rows * k) * size;
    one.bytes = rows * k * size;
  } else {
    one.data = all.data + (expert_begin + place->part * rows) * size;
    one.bytes = ((k - 1) * outputs + rows) * size;
    one.column_step = outputs;
  }
  return one;
}

Result<std::unique_ptr<WeightSource>> open_model_weights(const std::filesystem::path& folder,
                                                         const MoeConfig& moe) {
  HOCKET_TRY(std::unique_ptr<WeightSource> files, open_model_weights(folder));
  if (moe.stacked == MoeConfig::Stacked::never) return files;
  return std::make_unique<StackedExperts>(std::move(files), moe.stacked);
}

}  // namespace hocket
