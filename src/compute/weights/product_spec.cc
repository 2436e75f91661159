#include "compute/weights/product_spec.h"

#include <algorithm>

#include "compute/weights/gguf_blocks.h"

namespace hocket {
namespace {

// Source bytes of heads that are packed before their file pages are released.
constexpr int64_t kReleaseBytes = int64_t{8} << 20;
constexpr int64_t kTasksAWorker = 2;

// Q4_0 and MXFP4 have formats that folders have, too.
bool may_be_blocks(MatrixFormat format) {
  const MatrixFormat q4_0 = {WeightFormat::int4, kGgufGroup};
  return is_of_gguf(format) || format == q4_0 || format.format == WeightFormat::mxfp4;
}

// Products of mxfp4 have the bits of products of bf16, those of int4 do not.
bool stays_in_blocks(const WeightLoader::Options& options, MatrixFormat held,
                     ProductSpec::Quantized quantized) {
  if (is_of_gguf(held)) return true;
  if (options.stored.layout != QuantConfig::Layout::gguf || !may_be_blocks(held)) return false;
  return held.format == WeightFormat::mxfp4 || quantized == ProductSpec::Quantized::looked_up;
}

}  // namespace

Stack stack_of(std::span<const WeightLoader::Part> parts) {
  Stack stack;
  for (const WeightLoader::Part& part : parts) {
    stack.parts.push_back({part.name, part.n, stack.n, kPanelN});
    stack.n += part.n;
  }
  return stack;
}

void transpose_taps(std::span<float> numbers, size_t num_taps) {
  const std::vector<float> by_channel(numbers.begin(), numbers.end());
  const size_t channels = numbers.size() / num_taps;
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i % num_taps * channels + i / num_taps] = by_channel[i];
}

Floats bias_of(const SourceMatrix& part) {
  return {module_of(part.name) + ".bias", {{part.n}, {1, part.n}}, part.n};
}

ProductSpec::Quantized embedding_kept(const ModelConfig& config) {
  return config.tie_word_embeddings ? ProductSpec::Quantized::by_gguf
                                    : ProductSpec::Quantized::looked_up;
}

int tasks_at_once(int64_t task_bytes, int tasks, size_t num_workers) {
  const int64_t busy = kTasksAWorker * static_cast<int64_t>(num_workers);
  return static_cast<int>(std::min<int64_t>(std::max(kReleaseBytes / task_bytes, busy), tasks));
}

bool is_of_gguf(MatrixFormat format) {
  return has_block_scales(format.format) || format == kQ8Format;
}

bool are_joined(MatrixFormat a, MatrixFormat b) {
  return a == b || !may_be_blocks(a) || !may_be_blocks(b);
}

MatrixFormat common_format(MatrixFormat a, MatrixFormat b) {
  if (a == b) return a;
  return may_be_blocks(a) && may_be_blocks(b) ? kQ8Format : MatrixFormat{};
}

MatrixFormat format_asked(MatrixFormat held, WeightFormat asked, int k) {
  const WeightFormat format = format_asked(held.format, asked);
  if (format == held.format) return held;
  return {format, format == WeightFormat::int8 ? whole_group(k) : kOnTheFlyInt4Group};
}

MatrixFormat format_in_memory(const WeightLoader::Options& options, MatrixFormat held, int k,
                              ProductSpec::Quantized quantized) {
  if (options.dtype == DType::f32) return {WeightFormat::f32, 0};
  if (quantized == ProductSpec::Quantized::never) return {};
  if (quantized == ProductSpec::Quantized::by_gguf ||
      quantized == ProductSpec::Quantized::looked_up)
    return stays_in_blocks(options, held, quantized) ? held : MatrixFormat{};
  if (quantized == ProductSpec::Quantized::to_int8) {
    if (is_of_gguf(held)) return held;
    if (options.quantize == WeightFormat::bf16) return {};
    return {WeightFormat::int8, whole_group(k)};
  }
  return format_asked(held, options.quantize, k);
}

void describe_to(Fingerprint& out, const ProductSpec& product, MatrixFormat format) {
  out.add_all(product.n, product.k, format.format, format.group, product.quantized, product.bias,
              product.parts.size());
  for (const SourceMatrix& part : product.parts) {
    out.add(part.name);
    out.add_all(part.n, part.row_begin, part.rows_apart);
  }
}

void describe_to(Fingerprint& out, const WeightLoader::Options& options) {
  const QuantConfig& stored = options.stored;
  out.add_all(options.dtype, options.quantize, stored.layout, stored.group,
              stored.gptq_zeros_less_1, stored.skipped.size());
  for (const std::string& module : stored.skipped) out.add(module);
}

void note_change(std::span<const MatrixReader> parts, int64_t bytes, MatrixFormat kept,
                 FormatChanges& all) {
  const auto changes = [&](const MatrixReader& part) {
    return part.format().is_scaled() && part.format() != kept;
  };
  if (kept.format == WeightFormat::f32 || std::ranges::none_of(parts, changes)) return;
  const auto differs = [&](const MatrixReader& part) {
    return part.format() != parts.front().format();
  };
  FormatChange& out = !kept.is_scaled()                     ? all.widened
                      : std::ranges::any_of(parts, differs) ? all.joined
                                                            : all.requantized;
  ++out.num_products;
  out.kept_bytes += bytes;
  for (const MatrixReader& part : parts) {
    const auto& [format, group] = part.format();
    out.stored_bytes +=
        PackedWeight{.format = format, .n = part.n(), .k = part.k(), .group = group}.bytes();
  }
}

Error too_deep(const ProductSpec& product) {
  return error(ErrorCode::unsupported_model,
               "{} has {} inputs; products of quantized integers have at most {}",
               product.parts.front().name, product.k, kMaxIntegerDepth)
      .with_fix("use the model in bfloat16, without --quantization");
}

Error not_finite(const MatrixReader& reader) {
  const char* what = "an infinity or NaN, or a number too large to be quantized";
  if (reader.kind() == MatrixReader::Kind::scaled)
    what =
        is_mx(reader.format().format)
            ? "a number or a scale that is NaN, or a scale whose products bfloat16 cannot hold"
        : reader.format().format == WeightFormat::fp8
            ? "a float8 that is not a number, or a scale that is not finite"
            : "a scale that is not finite, or that is too large for the format in which it is kept";
  return error(ErrorCode::unsupported_model, "{} holds {}", reader.name(), what)
      .with_fix("the files are damaged, or were from the start: download them again");
}

}  // namespace hocket
