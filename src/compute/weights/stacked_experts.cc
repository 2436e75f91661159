#include "compute/weights/stacked_experts.h"

#include <algorithm>
#include <charconv>

#include "compute/weights/safetensors.h"
#include "compute/weights/tracked_weight_source.h"
#include "gguf/file.h"

namespace hocket {
namespace {

constexpr std::string_view kExpertsFolder = "experts.";

// The ends of two names: that of a tensor of one expert, and that of the same of all experts.
struct TensorKind {
  std::string_view of_one, of_all;  // ends of the names
  size_t axes;
  bool outputs_first;  // whatever the form is
  // Numbers of fp8 are read row after row, so that they must lie with their outputs first.
  bool only_with_outputs_first = false;
};
constexpr TensorKind kTensorKinds[] = {{".weight", "", 3, false},
                                       {".weight_scale_inv", "_scale_inv", 3, true, true},
                                       {".weight_packed", "_blocks", 4, true},
                                       {".weight_scale", "_scales", 3, true},
                                       {".bias", "_bias", 2, true}};

// The location of one expert's tensor in a stacked one.
struct Location {
  std::string tensor;  // name of the stacked tensor
  const TensorKind* kind = nullptr;
  int64_t expert = 0;
  int part = 0, num_parts = 1;  // gate and up are halves of one tensor
};

// Returns the location of "...experts.{e}.gate_proj.weight" and its like; empty for any other name.
std::optional<Location> location_of(std::string_view name, MoeConfig::Stacked form) {
  const size_t folder = name.rfind(kExpertsFolder);
  if (folder == name.npos) return std::nullopt;
  const size_t number = folder + kExpertsFolder.size();
  Location location;
  const char* const end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data() + number, end, location.expert);
  if (problem != std::errc() || location.expert < 0) return std::nullopt;
  const std::string_view tensor(rest, end), module = tensor.substr(0, tensor.rfind('.'));
  for (const TensorKind& kind : kTensorKinds)
    if (tensor.substr(module.size()) == kind.of_one) location.kind = &kind;
  const bool gate = module == ".gate_proj", up = module == ".up_proj";
  if (location.kind == nullptr || (!gate && !up && module != ".down_proj")) return std::nullopt;
  if (location.kind->only_with_outputs_first && form == MoeConfig::Stacked::inputs_first)
    return std::nullopt;
  const bool apart = form == MoeConfig::Stacked::apart;
  if (apart) {
    location.tensor = std::string(name.substr(0, folder)) + std::string(tensor.substr(1));
    return location;
  }
  location.part = up ? 1 : 0;
  location.num_parts = gate || up ? 2 : 1;
  location.tensor = std::string(name.substr(0, number)) +
                    (location.num_parts == 2 ? "gate_up_proj" : "down_proj") +
                    std::string(location.kind->of_all);
  return location;
}

// Returns the expert's matrix in numbers that stand as [experts, outputs, k] or [experts, k,
// outputs].
StoredTensor part_of(const StoredTensor& all, const Location& location, bool outputs_first,
                     bool interleaved) {
  const int64_t outputs = all.shape[outputs_first ? 1 : 2];
  int64_t k = outputs_first ? 1 : all.shape[1];
  for (size_t axis = 2; outputs_first && axis < all.shape.size(); ++axis) k *= all.shape[axis];
  const int64_t rows = outputs / location.num_parts, size = stored_type_size(all.type);
  const int64_t apart = interleaved ? location.num_parts : 1;  // from one row to the next
  const int64_t first = location.part * (interleaved ? 1 : rows);
  const int64_t row_step = outputs_first ? k : 1, column_step = outputs_first ? 1 : outputs;
  StoredTensor one{.type = all.type, .shape = {rows, k}};
  if (all.shape.size() == 2) one.shape = {rows};
  one.data = all.data + (location.expert * outputs * k + first * row_step) * size;
  one.bytes = ((rows - 1) * apart * row_step + (k - 1) * column_step + 1) * size;
  if (!outputs_first) one.column_step = outputs;
  if (apart > 1) one.row_step = apart * row_step;
  return one;
}

// Returns the scale of one expert in [experts, 1, 1], which its gate and up share.
Result<StoredTensor> scale_of(const StoredTensor& all, const Location& location, int num_experts) {
  if (all.shape != std::vector<int64_t>{num_experts, 1, 1} || location.expert >= num_experts)
    return fail(error(ErrorCode::unsupported_model,
                      "{} does not hold one scale for each of {} experts, which is the only form "
                      "of stacked experts in fp8 that is supported",
                      location.tensor, num_experts)
                    .with_fix("take a copy of the model that holds its experts one by one"));
  if (all.type == StoredType::other) return all;  // the reader refuses the type by name
  const int64_t size = stored_type_size(all.type);
  return StoredTensor{
      .type = all.type, .shape = {1, 1}, .data = all.data + location.expert * size, .bytes = size};
}

}  // namespace

StackedExperts::StackedExperts(std::unique_ptr<WeightSource> files, const MoeConfig& moe)
    : files_(std::move(files)),
      form_(moe.stacked),
      interleaved_(moe.interleaved),
      num_experts_(moe.num_experts) {}

bool StackedExperts::has(std::string_view name) const {
  if (files_->has(name)) return true;
  const std::optional<Location> location = location_of(name, form_);
  return location && files_->has(location->tensor);
}

Result<StoredTensor> StackedExperts::find(std::string_view name) const {
  const std::optional<Location> location =
      files_->has(name) ? std::nullopt : location_of(name, form_);
  if (!location || !files_->has(location->tensor)) return files_->find(name);
  HOCKET_TRY(StoredTensor all, files_->find(location->tensor));
  const bool is_scale = location->kind->of_one == ".weight_scale_inv";
  if (is_scale && form_ != MoeConfig::Stacked::apart) return scale_of(all, *location, num_experts_);
  const bool outputs_first =
      location->kind->outputs_first || form_ != MoeConfig::Stacked::inputs_first;
  if (all.shape.size() != location->kind->axes || all.shape[0] != num_experts_ ||
      location->expert >= num_experts_ ||
      all.shape[outputs_first ? 1 : 2] % location->num_parts != 0 ||
      std::ranges::find(all.shape, 0) != all.shape.end())
    return fail(error(ErrorCode::wrong_shape,
                      "{} has {} axes, the first of {}, which does not hold expert {} of {} with "
                      "its gate, up and down",
                      location->tensor, all.shape.size(), all.shape.empty() ? 0 : all.shape[0],
                      location->expert, num_experts_)
                    .with_fix("config.json and the weights are of different models: download both "
                              "again"));
  if (all.type == StoredType::other) return all;  // the reader refuses the type by name
  return part_of(all, *location, outputs_first, interleaved_ && location->num_parts > 1);
}

Result<std::unique_ptr<WeightSource>> open_model_weights(const std::filesystem::path& folder,
                                                         const MoeConfig& moe) {
  HOCKET_TRY(std::unique_ptr<WeightSource> files, open_model_weights(folder));
  // A GGUF file remembers by itself what was read, under its own names.
  if (gguf_file_of(folder).empty()) files = std::make_unique<TrackedWeightSource>(std::move(files));
  if (moe.stacked == MoeConfig::Stacked::never) return files;
  return std::make_unique<StackedExperts>(std::move(files), moe);
}

}  // namespace hocket
