#include "compute/weights/matrix_reader.h"

#include <algorithm>

#include "compute/weights/quant_config.h"

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;

constexpr int kFp8Block = 128;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t length : shape)
    text += (text.size() == 1 ? "" : ", ") + std::to_string(length);
  return text + "]";
}

Result<StoredTensor> find_shaped(const WeightSource& source, const std::string& name,
                                 const std::vector<std::vector<int64_t>>& shapes) {
  HOCKET_TRY(StoredTensor found, source.find(name));
  if (std::find(shapes.begin(), shapes.end(), found.shape) == shapes.end())
    return fail(
        error(ErrorCode::wrong_shape, "{} has the shape {}, but config.json asks for {}", name,
              shape_text(found.shape), shape_text(shapes.front()))
            .with_fix("config.json and the weights are of different models: download both again"));
  return found;
}

std::unexpected<Error> wrong_type(const std::string& name, StoredType type,
                                  std::string_view expected) {
  return fail(error(ErrorCode::unsupported_model, "{} is stored as {}, not as {}", name,
                    stored_type_name(type), expected)
                  .with_fix("use a copy of the model in bfloat16, float16 or float32"));
}

bool is_plain(StoredType type) {
  return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 ||
         type == StoredType::rows;
}

// Returns bf16 for other layouts.
WeightFormat mx_format(QuantLayout layout) {
  switch (layout) {
    case QuantLayout::mxfp4:
      return WeightFormat::mxfp4;
    case QuantLayout::mxfp8:
      return WeightFormat::mxfp8;
    case QuantLayout::nvfp4:
      return WeightFormat::nvfp4;
    default:
      return WeightFormat::bf16;
  }
}

// Returns the format of a quantized module under `quant`.
Result<MatrixFormat> format_of(const QuantConfig& quant, const std::string& module, int k) {
  if (quant.layout == QuantLayout::none || quant.layout == QuantLayout::gguf) return MatrixFormat{};
  if (quant.layout == QuantLayout::fp8_block || quant.layout == QuantLayout::fp8_channel)
    return MatrixFormat{WeightFormat::fp8, kFp8Group};
  if (quant.layout == QuantLayout::int8_channel)
    return MatrixFormat{WeightFormat::int8, whole_group(k)};
  if (is_mx(mx_format(quant.layout))) {
    const WeightFormat format = mx_format(quant.layout);
    const int group = format == WeightFormat::nvfp4 ? kNvfp4Group : kMxGroup;
    if (k % group == 0) return MatrixFormat{format, group};
    return fail(error(ErrorCode::unsupported_model,
                      "{} has {} inputs, which are not whole groups of {}, as {} has", module, k,
                      group, weight_format_name(format))
                    .with_fix("use a copy of the model in bfloat16"));
  }
  const int group = quant.group;
  if (group == 0 || group >= k) return MatrixFormat{WeightFormat::int4, whole_group(k)};
  if (group != 32 && group != 64 && group != 128)
    return fail(
        error(ErrorCode::unsupported_model,
              "{} is quantized in groups of {} values; 32, 64, 128 or whole rows can be run",
              module, group)
            .with_fix("use a copy of the model with groups of 128"));
  return MatrixFormat{WeightFormat::int4, group};
}

}  // namespace

std::string module_of(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  HOCKET_CHECK(name.ends_with(kWeight));
  return name.substr(0, name.size() - kWeight.size());
}

Result<StoredTensor> find_plain(const WeightSource& source, const std::string& name,
                                const std::vector<std::vector<int64_t>>& shapes) {
  HOCKET_TRY(StoredTensor found, find_shaped(source, name, shapes));
  if (!is_plain(found.type)) return wrong_type(name, found.type, "bfloat16, float16 or float32");
  return found;
}

Result<MatrixReader> MatrixReader::open(const WeightSource& source, const QuantConfig& quant,
                                        const std::string& name, int n, int k) {
  MatrixReader reader;
  reader.source_ = &source;
  reader.name_ = name, reader.module_ = module_of(name);
  reader.n_ = n, reader.k_ = k;
  HOCKET_TRY(const bool quantized, reader.find_numbers(quant));
  if (!quantized) {
    HOCKET_TRY(reader.numbers_, find_plain(source, name, {{n, k}}));
    if (reader.numbers_.type != StoredType::rows) return reader;
    reader.format_ = reader.numbers_.rows->format();
    if (reader.format_.is_scaled()) reader.kind_ = Kind::scaled;
    return reader;
  }
  reader.kind_ = Kind::scaled;
  return reader;
}

Result<MatrixReader> MatrixReader::random(uint64_t seed, const QuantConfig& quant,
                                          const std::string& name, int n, int k) {
  MatrixReader reader;
  reader.kind_ = Kind::random;
  reader.seed_ = seed;
  reader.name_ = name, reader.module_ = module_of(name);
  reader.n_ = n, reader.k_ = k;
  if (is_quantized(quant, reader.module_)) {
    HOCKET_TRY(reader.format_, format_of(quant, reader.module_, k));
  }
  return reader;
}

// Returns false if the files hold the matrix unquantized.
Result<bool> MatrixReader::find_numbers(const QuantConfig& quant) {
  std::string_view mark;  // the tensor that only a quantized module has
  switch (quant.layout) {
    case QuantLayout::none:
    case QuantLayout::gguf:
      return false;
    case QuantLayout::fp8_block:
      mark = ".weight_scale_inv";
      break;
    case QuantLayout::fp8_channel:
    case QuantLayout::int8_channel:
      mark = ".weight_scale";
      break;
    case QuantLayout::awq:
    case QuantLayout::gptq:
      mark = ".qweight";
      break;
    case QuantLayout::packed:
    case QuantLayout::mxfp4:
      mark = ".weight_packed";
      break;
    case QuantLayout::mxfp8:
      mark = source_->has(module_ + ".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
      break;
    case QuantLayout::nvfp4:
      mark = ".weight_scale";
      break;
  }
  const std::string marking = module_ + std::string(mark);
  if (!source_->has(marking)) {
    const bool lost = is_quantized(quant, module_) && !source_->has(name_);
    HOCKET_TRY(const StoredTensor found, source_->find(lost ? marking : name_));
    if (found.type == StoredType::f8_e4m3 || found.type == StoredType::i8)
      return fail(error(ErrorCode::missing_tensor, "{} is stored as {}, but {} is missing", name_,
                        stored_type_name(found.type), marking)
                      .with_fix("download the model again, all files of it; if its experts are "
                                "stacked in one tensor, take a copy that holds them one by one"));
    return false;
  }
  HOCKET_TRY(format_, format_of(quant, module_, k_));
  const bool four_bits = format_.format == WeightFormat::int4;
  HOCKET_TRY_VOID(is_mx(format_.format) ? find_mx(quant)
                  : four_bits           ? find_int4(quant)
                                        : find_fp8_or_int8(quant));
  return true;
}

Result<StoredTensor> MatrixReader::find_also(const std::string& suffix, StoredType type,
                                             const std::vector<int64_t>& shape) {
  const std::string name = module_ + suffix;
  HOCKET_TRY(StoredTensor found, find_shaped(*source_, name, {shape}));
  if (found.type != type) return wrong_type(name, found.type, stored_type_name(type));
  return found;
}

Result<void> MatrixReader::find_scales(const std::string& suffix,
                                       const std::vector<std::vector<int64_t>>& shapes) {
  HOCKET_TRY(scales_, find_plain(*source_, module_ + suffix, shapes));
  small_.push_back(scales_);
  return {};
}

Result<void> MatrixReader::find_fp8_or_int8(const QuantConfig& quant) {
  const bool fp8 = format_.format == WeightFormat::fp8;
  HOCKET_TRY(numbers_, find_also(".weight", fp8 ? StoredType::f8_e4m3 : StoredType::i8, {n_, k_}));
  if (quant.layout == QuantLayout::fp8_block) {
    scale_rows_ = kFp8Block;
    scale_row_stride_ = round_up(k_, kFp8Block) / kFp8Block, scale_group_stride_ = 1;
    return find_scales(".weight_scale_inv",
                       {{round_up(n_, kFp8Block) / kFp8Block, scale_row_stride_}});
  }
  scale_row_stride_ = 1;
  HOCKET_TRY_VOID(find_scales(".weight_scale", {{n_, 1}, {n_}}));
  zero_add_ = kInt8Zero;
  if (fp8 || !source_->has(module_ + ".weight_zero_point")) return {};
  HOCKET_TRY(zero_bytes_, find_also(".weight_zero_point", StoredType::i8, {n_, 1}));
  zeros_ = Zeros::bytes;
  small_.push_back(zero_bytes_);
  return {};
}

Result<void> MatrixReader::find_int4(const QuantConfig& quant) {
  Nibbles& nibbles = nibbles_.emplace();
  std::string order = ".g_idx";
  switch (quant.layout) {
    case QuantLayout::awq: {
      HOCKET_TRY(numbers_, find_also(".qweight", StoredType::i32, {k_, nibble_words(n_)}));
      nibbles = {numbers_.data, Nibbles::Along::rows, Nibbles::Order::awq, 1, nibble_words(n_)};
      break;
    }
    case QuantLayout::gptq: {
      HOCKET_TRY(numbers_, find_also(".qweight", StoredType::i32, {nibble_words(k_), n_}));
      nibbles = {numbers_.data, Nibbles::Along::columns, Nibbles::Order::sequential, 1, n_};
      break;
    }
    default: {
      HOCKET_CHECK(quant.layout == QuantLayout::packed);
      HOCKET_TRY(numbers_, find_also(".weight_packed", StoredType::i32, {n_, nibble_words(k_)}));
      nibbles = {numbers_.data, Nibbles::Along::columns, Nibbles::Order::sequential,
                 nibble_words(k_), 1};
      order = ".weight_g_idx";
      if (const std::string shape = module_ + ".weight_shape"; source_->has(shape)) {
        HOCKET_TRY(shape_, find_shaped(*source_, shape, {{2}}));
        if (shape_->type != StoredType::i64 && shape_->type != StoredType::i32)
          return wrong_type(shape, shape_->type, "int64");
        small_.push_back(*shape_);
      }
    }
  }
  if (source_->has(module_ + order)) {
    HOCKET_TRY(order_, find_also(order, StoredType::i32, {k_}));
    small_.push_back(*order_);
  }
  return find_int4_zeros(quant);
}

Result<void> MatrixReader::find_int4_zeros(const QuantConfig& quant) {
  zero_nibbles_.along = Nibbles::Along::rows;
  if (quant.layout == QuantLayout::packed) {
    scale_row_stride_ = groups(), scale_group_stride_ = 1;
    std::vector<std::vector<int64_t>> shapes = {{n_, groups()}};
    if (groups() == 1) shapes.push_back({n_});
    HOCKET_TRY_VOID(find_scales(".weight_scale", shapes));
    constexpr std::string_view kZeroPoint = ".weight_zero_point";
    zero_add_ = 8;
    if (!source_->has(module_ + std::string(kZeroPoint))) return {};
    HOCKET_TRY(zero_bytes_,
               find_also(std::string(kZeroPoint), StoredType::i32, {nibble_words(n_), groups()}));
    zero_nibbles_.row_stride = groups(), zero_nibbles_.column_stride = 1;
    zero_add_ = 0;
  } else {
    scale_row_stride_ = 1, scale_group_stride_ = n_;
    HOCKET_TRY_VOID(find_scales(".scales", {{groups(), n_}}));
    HOCKET_TRY(zero_bytes_, find_also(".qzeros", StoredType::i32, {groups(), nibble_words(n_)}));
    zero_nibbles_.row_stride = 1, zero_nibbles_.column_stride = nibble_words(n_);
    if (quant.layout == QuantLayout::awq) zero_nibbles_.order = Nibbles::Order::awq;
    zero_add_ = quant.layout == QuantLayout::gptq && quant.gptq_zeros_less_1 ? 1 : 0;
  }
  zeros_ = Zeros::nibbles;
  zero_nibbles_.words = zero_bytes_.data;
  small_.push_back(zero_bytes_);
  return {};
}

Result<void> MatrixReader::find_mx(const QuantConfig& quant) {
  const WeightFormat format = format_.format;
  scale_row_stride_ = groups();
  const std::vector<int64_t> shape = {n_, scale_row_stride_};
  if (format == WeightFormat::mxfp8) {
    HOCKET_TRY(numbers_, find_also(".weight", StoredType::f8_e4m3, {n_, k_}));
  } else {
    // ModelOpt names the numbers of nvfp4 like a plain matrix.
    const bool packed = source_->has(module_ + ".weight_packed");
    HOCKET_TRY(numbers_,
               find_also(packed ? ".weight_packed" : ".weight", StoredType::u8, {n_, k_ / 2}));
    const int64_t row_step = numbers_.row_step == 0 ? k_ / 2 : numbers_.row_step;
    nibbles_ = Nibbles{numbers_.data, Nibbles::Along::columns, Nibbles::Order::sequential,
                       row_step / 4, 1};
  }
  const std::string scale =
      quant.layout == QuantLayout::mxfp8 && source_->has(module_ + ".weight_scale_inv")
          ? ".weight_scale_inv"
          : ".weight_scale";
  HOCKET_TRY(scales_, find_shaped(*source_, module_ + scale, {shape}));
  if (format == WeightFormat::nvfp4) {
    if (scales_.type != StoredType::f8_e4m3)
      return wrong_type(module_ + scale, scales_.type, stored_type_name(StoredType::f8_e4m3));
  } else if (scales_.type != StoredType::u8 && scales_.type != StoredType::f8_e8m0) {
    return wrong_type(module_ + scale, scales_.type, "uint8 or float8_e8m0");
  }
  if (scales_.row_step != 0) scale_row_stride_ = scales_.row_step;
  small_.push_back(scales_);
  return format == WeightFormat::nvfp4 ? find_column_scale() : Result<void>();
}

// compressed-tensors stores a divisor, ModelOpt a factor.
Result<void> MatrixReader::find_column_scale() {
  is_divisor_ = source_->has(module_ + ".weight_global_scale");
  const std::string name = module_ + (is_divisor_ ? ".weight_global_scale" : ".weight_scale_2");
  HOCKET_TRY(column_scale_, find_plain(*source_, name, {{1}, {}}));
  small_.push_back(*column_scale_);
  return {};
}

}  // namespace hocket
