// Fuzzes a GGUF file. Any bytes give an error message, or tensors that lie within the file and do
// not overlap; the configuration and the tokenizer that its metadata say are read, or refused with
// a message.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_footprints.h"
#include "compute/weights/gguf_source.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/stored_rows.h"
#include "gguf/config.h"
#include "gguf/tokenizer_json.h"
#include "text/tokens/tokenizer.h"

namespace {

template <class T>
bool is_sound(const hocket::Result<T>& result) {
  if (!result) HOCKET_CHECK(!result.error().message.empty());
  return result.has_value();
}

void check_tensors(const hocket::GgufFile::Part& part) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, tensor] : part.header.tensors) {
    HOCKET_CHECK(tensor.begin >= 0);
    HOCKET_CHECK(tensor.begin < tensor.end);
    HOCKET_CHECK(part.header.data_offset + tensor.end <= std::ssize(part.bytes));
    ranges.emplace_back(tensor.begin, tensor.end);
  }
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i) HOCKET_CHECK(ranges[i - 1].second <= ranges[i].first);
}

// Reads the last row of a tensor that is not plain.
void read_last_row(const hocket::StoredTensor& tensor) {
  if (tensor.type != hocket::StoredType::rows) return;
  int64_t numbers = 1;
  for (const int64_t axis : tensor.shape) numbers *= axis;
  const int64_t columns = tensor.rows->columns();
  HOCKET_CHECK(numbers % columns == 0);
  std::vector<float> row(static_cast<size_t>(columns));
  tensor.rows->read(numbers / columns - 1, {row.data(), 1, columns});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("gguf", MFD_CLOEXEC);
  HOCKET_CHECK(fd >= 0);
  HOCKET_CHECK(write(fd, data, size) == static_cast<ssize_t>(size));
  auto file = hocket::GgufFile::open("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!is_sound(file)) return 0;
  for (const hocket::GgufFile::Part& part : (*file)->parts()) check_tensors(part);
  if (const auto config = hocket::gguf_config_json(**file); is_sound(config))
    is_sound(hocket::parse_hf_config(*config));
  const auto names = hocket::gguf_tokenizer_config_json(**file);
  if (const auto tokenizer = hocket::gguf_tokenizer_json(**file);
      is_sound(tokenizer) && is_sound(names))
    is_sound(hocket::Tokenizer::from_json(*tokenizer, *names));
  hocket::gguf_config_assumptions(**file);
  hocket::gguf_tokenizer_assumptions(**file);
  hocket::most_blocks(**file);
  for (const auto quantize : {hocket::WeightFormat::bf16, hocket::WeightFormat::int4})
    hocket::gguf_footprints(**file, quantize);
  const hocket::GgufWeights weights(*std::move(file));
  HOCKET_CHECK(weights.identity().has_value());
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.kv_b_proj.weight",
        "model.layers.0.mlp.experts.1.down_proj.weight", "model.layers.0.linear_attn.A_log",
        "model.layers.0.linear_attn.in_proj_qkv.weight",
        "model.layers.0.linear_attn.out_proj.weight",
        "model.layers.0.linear_attn.in_proj_qkvz.weight", "model.norm.weight",
        "model.layers.0.experts.1.up_proj.weight", "model.layers.0.self_attn.A_log",
        "model.layers.0.self_attn.q_conv1d.weight"})
    if (const auto tensor = weights.find(name); is_sound(tensor)) read_last_row(*tensor);
  HOCKET_CHECK(weights.unread().size() <= weights.names().size());
  return 0;
}
