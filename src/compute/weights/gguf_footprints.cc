#include "compute/weights/gguf_footprints.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_changes.h"
#include "compute/weights/gguf_rows.h"
#include "compute/weights/product_spec.h"

namespace hocket {
namespace {

// How the loader treats a matrix: gates and kv_b_proj are never under scales in memory, embedding
// and head only in a format of GGUF, the head also in int8.
ProductSpec::Quantized quantized_of(const GgufFile& file, std::string_view name) {
  constexpr std::string_view kHead = "output.weight";
  if (name == kHead) return ProductSpec::Quantized::to_int8;
  if (name == "token_embd.weight")
    return file.find(kHead).tensor == nullptr ? ProductSpec::Quantized::by_gguf
                                              : ProductSpec::Quantized::looked_up;
  constexpr std::string_view kPlain[] = {"_inp.weight", "_inp_shexp.weight", "attn_kv_b.weight",
                                         "attn_k_b.weight", "attn_v_b.weight"};
  return std::ranges::any_of(kPlain, [&](std::string_view end) { return name.ends_with(end); })
             ? ProductSpec::Quantized::never
             : ProductSpec::Quantized::allowed;
}

// Bytes of `numbers` numbers, with their scales and zeros.
int64_t bytes_in_memory(MatrixFormat format, int64_t numbers) {
  if (!format.is_scaled()) return numbers * 2;
  const int64_t groups = numbers / format.group;
  switch (format.format) {
    case WeightFormat::int4:
      return numbers / 2 + groups * (scale_size(format.format) + 1);
    case WeightFormat::mxfp4:
      return numbers / 2 + groups;
    default:
      if (has_block_scales(format.format))
        return numbers / kIntegerBlockK * tile_bytes(format.format) / kPanelN +
               numbers / kScaleBlock * block_scales_size(format.format) / kPanelN;
      return numbers +
             groups * (scale_size(format.format) + (format.format == WeightFormat::int8 ? 1 : 0));
  }
}

}  // namespace

std::vector<GgufFootprint> gguf_footprints(const GgufFile& file, WeightFormat quantize) {
  WeightLoader::Options options{.quantize = quantize};
  options.stored.layout = QuantConfig::Layout::gguf;
  std::map<std::pair<std::string_view, std::string>, GgufFootprint> prices;
  for (const GgufFile::Part& part : file.parts())
    for (const auto& [name, tensor] : part.header.tensors) {
      if (tensor.type->block == 1 || tensor.shape.size() < 2) continue;
      const MatrixFormat own = format_of_blocks(tensor.type->id);
      const std::optional<int64_t> width = gathered_width(file, name);
      const MatrixFormat held = width ? gguf_gathered_format(own, *width) : own;
      const MatrixFormat format = format_in_memory(
          options, held, static_cast<int>(tensor.shape.back()), quantized_of(file, name));
      std::string words(weight_format_name(format.format));
      if (format.is_scaled()) words += fmt::format(" in groups of {}", format.group);
      GgufFootprint& price = prices[{tensor.type->name, words}];
      price.type = tensor.type->name, price.format = words;
      price.keeps_values = format.is_scaled() && format == own && keeps_values(tensor.type->id);
      price.in_bytes = format.format == WeightFormat::q8_0;
      const int64_t bytes = tensor.end - tensor.begin;
      price.file_bytes += bytes;
      price.memory_bytes +=
          bytes_in_memory(format, bytes / tensor.type->bytes * tensor.type->block);
    }
  std::vector<GgufFootprint> out;
  for (auto& [key, price] : prices) out.push_back(std::move(price));
  return out;
}

}  // namespace hocket
