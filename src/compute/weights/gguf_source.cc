#include "compute/weights/gguf_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <utility>

#include "compute/weights/byte_sample.h"
#include "compute/weights/fingerprint.h"
#include "compute/weights/gguf_changes.h"
#include "compute/weights/gguf_fused.h"
#include "compute/weights/gguf_names.h"
#include "compute/weights/gguf_rows.h"
#include "compute/weights/mapped_pages.h"

namespace hocket {
namespace {

constexpr std::string_view kLatent = ".attn_kv_b.weight";

// The location with the name that the file has.
GgufFile::TensorData found_at(const GgufFile& file, GgufLocation& location) {
  GgufFile::TensorData found = file.find(location.name);
  if (found.tensor == nullptr && !location.other_name.empty()) {
    found = file.find(location.other_name);
    if (found.tensor != nullptr) location.name = location.other_name;
  }
  return found;
}

// The names of the two parts of kv_b_proj.
std::pair<std::string, std::string> latent_parts(const GgufLocation& location) {
  const std::string layer = location.name.substr(0, location.name.size() - kLatent.size());
  return {layer + ".attn_k_b.weight", layer + ".attn_v_b.weight"};
}

GgufMatrix matrix_of(const GgufFile::TensorData& found) {
  const std::vector<int64_t>& shape = found.tensor->shape;
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return {found.tensor->type, found.data, rows, shape.back()};
}

std::unexpected<Error> wrong_shape(std::string_view name, const std::vector<int64_t>& shape) {
  return fail(error(ErrorCode::wrong_shape, "{} has the shape [{}], which does not fit the model",
                    name, fmt::join(shape, ", "))
                  .with_fix("convert the model again with a newer llama.cpp"));
}

std::span<const std::byte> sample_of(const GgufFile::Part& part, const GgufTensor& tensor) {
  return middle_sample(
      part.bytes.subspan(static_cast<size_t>(part.header.data_offset + tensor.begin),
                         static_cast<size_t>(tensor.end - tensor.begin)));
}

StoredTensor stored_matrix(const GgufMatrix& matrix, std::vector<int64_t> shape,
                           GgufChange change) {
  StoredTensor out{.type = StoredType::rows, .shape = std::move(shape)};
  if (matrix.type->block > 1 || change != GgufChange::none) {
    out.rows = gguf_rows(matrix, change);
    return out;
  }
  out.type = matrix.type->id == GgufTypeId::f32   ? StoredType::f32
             : matrix.type->id == GgufTypeId::f16 ? StoredType::f16
                                                  : StoredType::bf16;
  out.data = matrix.data, out.bytes = matrix.bytes();
  return out;
}

Result<StoredTensor> latent_of(const GgufFile& file, const GgufLocation& location) {
  const auto& [key_name, value_name] = latent_parts(location);
  const GgufFile::TensorData keys = file.find(key_name), values = file.find(value_name);
  if (values.tensor == nullptr)
    return fail(error(ErrorCode::missing_tensor, "{} holds {}, but not {}", file.path().string(),
                      key_name, value_name)
                    .with_fix("download the model again"));
  const std::vector<int64_t>& k = keys.tensor->shape;
  const std::vector<int64_t>& v = values.tensor->shape;
  if (k.size() != 3) return wrong_shape(key_name, k);
  if (v.size() != 3 || v[0] != k[0] || v[2] != k[1]) return wrong_shape(value_name, v);
  StoredTensor out{.type = StoredType::rows, .shape = {k[0] * (k[2] + v[1]), v[2]}};
  out.rows = gguf_latent_rows(matrix_of(keys), matrix_of(values), k[0]);
  return out;
}

}  // namespace

GgufWeights::GgufWeights(std::unique_ptr<const GgufFile> file) : file_(std::move(file)) {
  const GgufMetadata& metadata = file_->metadata();
  const std::string_view architecture = metadata.text("general.architecture").value_or("");
  const auto number = [&](std::string_view key) {
    return metadata.integer(fmt::format("{}.{}", architecture, key)).value_or(0);
  };
  num_layers_ = number("block_count") - number("nextn_predict_layers");
  for (const GgufFile::Part& part : file_->parts())
    for (const auto& [name, tensor] : part.header.tensors)
      name_at_.emplace(part.bytes.data() + part.header.data_offset + tensor.begin, name);
}

Result<StoredTensor> GgufWeights::find_unnoted(std::string_view folder_name) const {
  const std::string name = name_behind_layers(folder_name, num_layers_);
  if (std::optional<Result<StoredTensor>> changed = find_changed(*file_, name)) return *changed;
  GgufLocation location = gguf_location(name);
  if (location.name.empty()) location.name = name;
  GgufFile::TensorData found = found_at(*file_, location);
  GgufFusedPart fused;
  if (found.tensor == nullptr) {
    fused = find_fused(*file_, location);
    if (fused.found.tensor != nullptr) found = fused.found, location.name = fused.name;
  }
  if (found.tensor == nullptr) {
    if (location.name.ends_with(kLatent) &&
        file_->find(latent_parts(location).first).tensor != nullptr)
      return latent_of(*file_, location);
    return fail(
        error(ErrorCode::missing_tensor, "{} holds no tensor {}{}", file_->path().string(), name,
              location.name == name ? "" : fmt::format(", which is {} there", location.name))
            .with_fix("the file was converted from another model, or a part is missing: "
                      "download the model again"));
  }
  GgufMatrix matrix = matrix_of(found);
  std::vector<int64_t> shape = found.tensor->shape;
  if (location.expert >= 0) {
    if (shape.size() < 2 || location.expert >= shape[0]) return wrong_shape(location.name, shape);
    matrix.rows /= shape[0];
    matrix.skip_rows(location.expert * matrix.rows);
    shape.erase(shape.begin());
  }
  if (fused.found.tensor != nullptr) {
    const bool is_list = shape.size() == 1;  // biases, one a row
    if (is_list) matrix.rows = std::exchange(matrix.k, 1);
    if (fused.rows < 1 || (is_list && matrix.type->block > 1))
      return wrong_shape(location.name, found.tensor->shape);
    matrix.skip_rows(fused.first);
    matrix.rows = shape[0] = fused.rows;
  }
  if (name.ends_with("shared_expert_gate.weight") && shape.size() == 1)
    shape.insert(shape.begin(), 1);
  return stored_matrix(matrix, std::move(shape), GgufChange::none);
}

Result<StoredTensor> GgufWeights::find(std::string_view name) const {
  Result<StoredTensor> found = find_unnoted(name);
  if (found) note(*found);
  return found;
}

void GgufWeights::note(const StoredTensor& tensor) const {
  const MutexLock lock(mutex_);
  for (const std::span<const std::byte> bytes : stored_bytes(tensor))
    if (const auto next = name_at_.upper_bound(bytes.data()); next != name_at_.begin())
      read_.insert(std::prev(next)->second);
}

std::vector<std::string> GgufWeights::unread() const {
  std::set<std::string_view> modules;  // "blk.46." of layers that are modules
  for (const auto& [data, name] : name_at_)
    if (const size_t at = name.find("nextn."); at != name.npos) modules.insert(name.substr(0, at));
  const MutexLock lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [data, name] : name_at_) {
    const size_t layer = name.starts_with("blk.") ? name.find('.', 4) + 1 : 0;
    if (name != "rope_freqs.weight" && !read_.contains(name) &&
        !modules.contains(name.substr(0, layer)))
      all.emplace_back(name);
  }
  return all;
}

bool GgufWeights::has(std::string_view name) const {
  GgufLocation location = gguf_location(name_behind_layers(name, num_layers_));
  if (found_at(*file_, location).tensor != nullptr) return true;
  if (find_fused(*file_, location).found.tensor != nullptr) return true;
  return location.name.ends_with(kLatent) &&
         file_->find(latent_parts(location).first).tensor != nullptr;
}

std::vector<std::string> GgufWeights::names() const {
  std::vector<std::string> all;
  for (const auto& [data, name] : name_at_) all.emplace_back(name);
  return all;
}

void GgufWeights::will_read(const StoredTensor& tensor) const {
  for (const GgufFile::Part& part : file_->parts())
    fetch_pages(part.bytes, {tensor.data, static_cast<size_t>(tensor.bytes)});
}

void GgufWeights::done_with(const StoredTensor& tensor) const {
  for (const GgufFile::Part& part : file_->parts())
    drop_pages(part.bytes, {tensor.data, static_cast<size_t>(tensor.bytes)});
}

std::optional<uint64_t> GgufWeights::identity() const {
  // All samples are asked for first, so that a disk reads many at once.
  for (const GgufFile::Part& part : file_->parts())
    for (const auto& [name, tensor] : part.header.tensors)
      fetch_pages(part.bytes, sample_of(part, tensor));
  Fingerprint all;
  for (const GgufFile::Part& part : file_->parts()) {
    all.add(part.path.filename().string());
    all.add_all(part.bytes.size(), part.changed_ns);
    all.add(text_of(part.bytes.first(static_cast<size_t>(part.header.data_offset))));
    for (const auto& [name, tensor] : part.header.tensors)
      all.add(text_of(sample_of(part, tensor)));
  }
  return all.value();
}

}  // namespace hocket
