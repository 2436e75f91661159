#include "compute/weights/gguf_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "compute/weights/gguf_names.h"
#include "compute/weights/gguf_rows.h"

namespace hocket {
namespace {

// The heads of the delta nets, and the order of their values.
//
//   folder           value head j belongs to key head j / (nv / nk)
//   file, is_tiled   value head j belongs to key head j mod nk
struct DeltaHeads {
  int64_t nk = 0, nv = 0, dk = 0, dv = 0;
  bool is_tiled = false;

  // Returns the index in the file of the folder's value head j.
  int64_t file_index(int64_t j) const {
    const int64_t each = nv / nk;
    return is_tiled ? j % each * nk + j / each : j;
  }
  std::vector<int64_t> file_indexes() const {
    std::vector<int64_t> all;
    for (int64_t j = 0; j < nv; ++j) all.push_back(file_index(j));
    return all;
  }
};

bool is_hybrid(std::string_view architecture) {
  return architecture == "qwen3next" || architecture == "qwen35" || architecture == "qwen35moe";
}

std::optional<DeltaHeads> heads_of(const GgufFile& file, std::string_view architecture) {
  const auto number = [&](std::string_view key) {
    return file.metadata().integer(fmt::format("{}.ssm.{}", architecture, key)).value_or(0);
  };
  DeltaHeads heads{
      .nk = number("group_count"), .nv = number("time_step_rank"), .dk = number("state_size")};
  constexpr int64_t kMax = 1 << 16;
  for (const int64_t size : {heads.nk, heads.nv, heads.dk})
    if (size < 1 || size > kMax) return std::nullopt;
  heads.dv = number("inner_size") / heads.nv;
  if (heads.dv < 1 || heads.dv > kMax || heads.nv % heads.nk != 0) return std::nullopt;
  heads.is_tiled = architecture != "qwen3next";
  return heads;
}

// Returns the rows of `width` of each value head, in the folder's order, from row `first` of the
// file on.
std::vector<GgufRun> value_runs(const DeltaHeads& heads, int64_t width, int64_t first = 0) {
  std::vector<GgufRun> runs;
  for (int64_t j = 0; j < heads.nv; ++j)
    runs.push_back({0, first + heads.file_index(j) * width, width});
  return runs;
}

// Returns the runs of in_proj_qkv and of the taps: queries and keys as they are, then values.
std::vector<GgufRun> channel_runs(const DeltaHeads& heads) {
  const int64_t keys = 2 * heads.nk * heads.dk;
  std::vector<GgufRun> runs = value_runs(heads, heads.dv, keys);
  runs.insert(runs.begin(), GgufRun{0, 0, keys});
  return runs;
}

// in_proj_qkvz: [q k v z] of each key head, from qkv and z.
std::vector<GgufRun> grouped_runs(const DeltaHeads& heads) {
  const int64_t keys = heads.nk * heads.dk, values = heads.nv / heads.nk * heads.dv;
  std::vector<GgufRun> runs;
  for (int64_t h = 0; h < heads.nk; ++h) {
    runs.push_back({0, h * heads.dk, heads.dk});
    runs.push_back({0, keys + h * heads.dk, heads.dk});
    runs.push_back({0, 2 * keys + h * values, values});
    runs.push_back({1, h * values, values});
  }
  return runs;
}

Result<GgufMatrix> matrix_with(const GgufFile& file, const std::string& name, int64_t rows,
                               int64_t columns) {
  const GgufFile::TensorData found = file.find(name);
  if (found.tensor == nullptr)
    return fail(
        error(ErrorCode::missing_tensor, "{} holds no tensor {}", file.path().string(), name)
            .with_fix("convert the model again with a newer llama.cpp"));
  const std::vector<int64_t>& shape = found.tensor->shape;
  int64_t numbers = 1;
  for (const int64_t axis : shape) numbers *= axis;
  const int64_t k = columns > 0 ? columns : shape.back();
  if (k % found.tensor->type->block != 0 || numbers != rows * k)
    return fail(error(ErrorCode::wrong_shape,
                      "{} has {} numbers, but the heads ask for {} rows of {}", name, numbers, rows,
                      k)
                    .with_fix("convert the model again with a newer llama.cpp"));
  return GgufMatrix{found.tensor->type, found.data, rows, k};
}

StoredTensor tensor_of(std::shared_ptr<const StoredRows> rows, std::vector<int64_t> shape) {
  StoredTensor out{.type = StoredType::rows, .shape = std::move(shape)};
  out.rows = std::move(rows);
  return out;
}

bool is_changed_norm(std::string_view name) {
  constexpr std::string_view kNorms[] = {
      "input_layernorm.weight",  "post_attention_layernorm.weight",
      "self_attn.q_norm.weight", "self_attn.k_norm.weight",
      ".enorm.weight",           ".hnorm.weight",
      ".shared_head.norm.weight"};
  return name == "model.norm.weight" ||
         std::ranges::any_of(kNorms, [&](std::string_view norm) { return name.ends_with(norm); });
}

// Returns the tensor `module` of a delta net; empty if it is the same in the file.
std::optional<Result<StoredTensor>> find_delta(const GgufFile& file, const DeltaHeads& heads,
                                               std::string_view module,
                                               const std::string& location) {
  const auto gathered = [&](int64_t rows, int64_t columns, std::vector<GgufRun> runs,
                            std::vector<int64_t> shape,
                            GgufChange change = GgufChange::none) -> Result<StoredTensor> {
    HOCKET_TRY(const GgufMatrix matrix, matrix_with(file, location, rows, columns));
    for (int64_t& axis : shape)
      if (axis == 0) axis = matrix.k;
    return tensor_of(gguf_gathered_rows({gguf_rows(matrix, change)}, std::move(runs)),
                     std::move(shape));
  };
  const int64_t channels = 2 * heads.nk * heads.dk + heads.nv * heads.dv;
  const int64_t values = heads.nv * heads.dv;
  if (module == "A_log")
    return gathered(heads.nv, 1, value_runs(heads, 1), {heads.nv},
                    GgufChange::negative_exponential);
  if (module == "conv1d.weight")
    return gathered(channels, 0, channel_runs(heads), {channels, 1, 0});
  if (!heads.is_tiled) return std::nullopt;
  if (module == "dt_bias") return gathered(heads.nv, 1, value_runs(heads, 1), {heads.nv});
  if (module == "in_proj_qkv.weight")
    return gathered(channels, 0, channel_runs(heads), {channels, 0});
  if (module == "in_proj_z.weight")
    return gathered(values, 0, value_runs(heads, heads.dv), {values, 0});
  if (module == "in_proj_a.weight" || module == "in_proj_b.weight")
    return gathered(heads.nv, 0, value_runs(heads, 1), {heads.nv, 0});
  return std::nullopt;
}

Result<StoredTensor> find_out_proj(const GgufFile& file, const DeltaHeads& heads,
                                   const std::string& location) {
  const GgufFile::TensorData found = file.find(location);
  const int64_t rows = found.tensor == nullptr ? 0 : found.tensor->shape.front();
  HOCKET_TRY(const GgufMatrix matrix, matrix_with(file, location, rows, heads.nv * heads.dv));
  return tensor_of(gguf_gathered_columns(gguf_rows(matrix), heads.file_indexes()),
                   {matrix.rows, matrix.k});
}

Result<StoredTensor> find_qkvz(const GgufFile& file, const DeltaHeads& heads,
                               std::string_view layer) {
  const auto part = [&](std::string_view module) {
    return gguf_location(fmt::format("{}{}.weight", layer, module)).name;
  };
  const int64_t values = heads.nv * heads.dv, channels = 2 * heads.nk * heads.dk + values;
  HOCKET_TRY(const GgufMatrix qkv, matrix_with(file, part("in_proj_qkv"), channels, 0));
  HOCKET_TRY(const GgufMatrix z, matrix_with(file, part("in_proj_z"), values, qkv.k));
  return tensor_of(gguf_gathered_rows({gguf_rows(qkv), gguf_rows(z)}, grouped_runs(heads)),
                   {channels + values, qkv.k});
}

// Decays and taps of Kimi's delta nets, whose shapes are padded with axes of 1.
std::optional<Result<StoredTensor>> find_channel_delta(const GgufFile& file,
                                                       std::string_view name) {
  const bool decays = name.ends_with(".self_attn.A_log"), shifts = name.ends_with(".dt_bias");
  if (!decays && !shifts && !name.ends_with("_conv1d.weight")) return std::nullopt;
  const GgufFile::TensorData found = file.find(gguf_location(name).name);
  if (found.tensor == nullptr) return std::nullopt;
  int64_t numbers = 1;
  for (const int64_t axis : found.tensor->shape) numbers *= axis;
  if (decays || shifts)
    return tensor_of(gguf_rows({found.tensor->type, found.data, 1, numbers},
                               decays ? GgufChange::negative_exponential : GgufChange::none),
                     {numbers});
  const int64_t taps = found.tensor->shape.back(), channels = numbers / taps;
  return tensor_of(gguf_rows({found.tensor->type, found.data, channels, taps}),
                   {channels, 1, taps});
}

std::optional<Result<StoredTensor>> find_norm(const GgufFile& file, std::string_view name) {
  GgufLocation location = gguf_location(name);
  if (file.find(location.name).tensor == nullptr) location.name = location.other_name;
  const GgufFile::TensorData found = file.find(location.name);
  if (found.tensor == nullptr) return std::nullopt;
  const int64_t n = found.tensor->shape.back();
  return tensor_of(gguf_rows({found.tensor->type, found.data, 1, n}, GgufChange::added_one), {n});
}

}  // namespace

std::optional<Result<StoredTensor>> find_changed(const GgufFile& file, std::string_view name) {
  const std::string_view architecture = file.metadata().text("general.architecture").value_or("");
  if (architecture == "kimi-linear") return find_channel_delta(file, name);
  const bool hybrid = is_hybrid(architecture);
  if (!hybrid && architecture != "step35") return std::nullopt;
  if (is_changed_norm(name)) return find_norm(file, name);
  constexpr std::string_view kDelta = ".linear_attn.";
  const size_t at = name.find(kDelta);
  const std::optional<DeltaHeads> heads =
      hybrid ? heads_of(file, architecture) : std::optional<DeltaHeads>{};
  if (at == name.npos || !heads) return std::nullopt;
  const std::string_view layer = name.substr(0, at + kDelta.size());
  const std::string_view module = name.substr(layer.size());
  const std::string location = gguf_location(name).name;
  if (module == "in_proj_qkvz.weight") {
    if (file.find(location).tensor != nullptr) return std::nullopt;
    return find_qkvz(file, *heads, layer);
  }
  if (heads->is_tiled && module == "out_proj.weight") return find_out_proj(file, *heads, location);
  return find_delta(file, *heads, module, location);
}

std::optional<int64_t> gathered_width(const GgufFile& file, std::string_view name) {
  const std::string_view architecture = file.metadata().text("general.architecture").value_or("");
  if (!name.ends_with(".ssm_out.weight") || !is_hybrid(architecture)) return std::nullopt;
  const std::optional<DeltaHeads> heads = heads_of(file, architecture);
  return heads && heads->is_tiled ? std::optional(heads->dv) : std::nullopt;
}

}  // namespace hocket
