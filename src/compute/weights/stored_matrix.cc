#include "compute/weights/stored_matrix.h"

#include <algorithm>

#include "compute/weights/quant_config.h"
#include "compute/weights/stored_rows.h"

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

// Returns the format of a quantized module under `quant`.
Result<MatrixFormat> quantized_format(const QuantConfig& quant, const std::string& module, int k) {
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

namespace {

// Finds the tensors of one matrix by the names that the layout of the files gives them.
class MatrixFinder {
 public:
  MatrixFinder(const WeightSource& source, const QuantConfig& quant, const MatrixName& matrix)
      : source_(source),
        quant_(quant),
        name_(matrix.name),
        module_(module_of(matrix.name)),
        n_(matrix.n),
        k_(matrix.k) {}

  Result<StoredMatrix> find();

 private:
  Result<bool> find_numbers();
  std::string_view fp8_scale() const;
  Result<void> find_fp8_or_int8();
  Result<void> find_int4();
  Result<void> find_int4_zeros();
  Result<void> find_mx();
  Result<void> find_column_scale();
  Result<StoredTensor> find_also(const std::string& suffix, StoredType type,
                                 const std::vector<int64_t>& shape);
  Result<void> find_scales(const std::string& suffix,
                           const std::vector<std::vector<int64_t>>& shapes);
  int groups() const { return found_.num_groups(k_); }

  const WeightSource& source_;
  const QuantConfig& quant_;
  const std::string name_, module_;
  const int n_, k_;
  StoredMatrix found_;
};

Result<StoredMatrix> MatrixFinder::find() {
  HOCKET_TRY(found_.is_scaled, find_numbers());
  if (found_.is_scaled) return std::move(found_);
  HOCKET_TRY(found_.numbers, find_plain(source_, name_, {{n_, k_}}));
  if (found_.numbers.type != StoredType::rows) return std::move(found_);
  found_.format = found_.numbers.rows->format();
  found_.is_scaled = found_.format.is_scaled();
  return std::move(found_);
}

// Returns false if the files hold the matrix unquantized.
Result<bool> MatrixFinder::find_numbers() {
  std::string_view mark;  // the tensor that only a quantized module has
  switch (quant_.layout) {
    case QuantLayout::none:
    case QuantLayout::gguf:
      return false;
    case QuantLayout::fp8_block:
      mark = fp8_scale();
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
      mark = source_.has(module_ + ".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
      break;
    case QuantLayout::nvfp4:
      mark = ".weight_scale";
      break;
  }
  const std::string marking = module_ + std::string(mark);
  if (!source_.has(marking)) {
    const bool lost = is_quantized(quant_, module_) && !source_.has(name_);
    HOCKET_TRY(const StoredTensor found, source_.find(lost ? marking : name_));
    if (found.type == StoredType::f8_e4m3 || found.type == StoredType::i8)
      return fail(error(ErrorCode::missing_tensor, "{} is stored as {}, but {} is missing", name_,
                        stored_type_name(found.type), marking)
                      .with_fix("download the model again, all files of it; if its experts are "
                                "stacked in one tensor, take a copy that holds them one by one"));
    return false;
  }
  HOCKET_TRY(found_.format, quantized_format(quant_, module_, k_));
  const bool four_bits = found_.format.format == WeightFormat::int4;
  HOCKET_TRY_VOID(is_mx(found_.format.format) ? find_mx()
                  : four_bits                 ? find_int4()
                                              : find_fp8_or_int8());
  return true;
}

Result<StoredTensor> MatrixFinder::find_also(const std::string& suffix, StoredType type,
                                             const std::vector<int64_t>& shape) {
  const std::string name = module_ + suffix;
  HOCKET_TRY(StoredTensor found, find_shaped(source_, name, {shape}));
  if (found.type != type) return wrong_type(name, found.type, stored_type_name(type));
  return found;
}

Result<void> MatrixFinder::find_scales(const std::string& suffix,
                                       const std::vector<std::vector<int64_t>>& shapes) {
  HOCKET_TRY(found_.scales.tensor, find_plain(source_, module_ + suffix, shapes));
  found_.small.push_back(found_.scales.tensor);
  return {};
}

// Returns the name of the scales of fp8_block; some tools have another one for a scale a matrix.
std::string_view MatrixFinder::fp8_scale() const {
  const bool other = quant_.group == 0 && source_.has(module_ + ".weight_scale");
  return other ? ".weight_scale" : ".weight_scale_inv";
}

Result<void> MatrixFinder::find_fp8_or_int8() {
  const bool fp8 = found_.format.format == WeightFormat::fp8;
  HOCKET_TRY(found_.numbers,
             find_also(".weight", fp8 ? StoredType::f8_e4m3 : StoredType::i8, {n_, k_}));
  if (quant_.layout == QuantLayout::fp8_block && quant_.group == 0) {
    found_.scales.rows = n_;
    return find_scales(std::string(fp8_scale()), {{}, {1}, {1, 1}});
  }
  if (quant_.layout == QuantLayout::fp8_block) {
    found_.scales.rows = kFp8Block;
    found_.scales.row_stride = round_up(k_, kFp8Block) / kFp8Block, found_.scales.group_stride = 1;
    return find_scales(".weight_scale_inv",
                       {{round_up(n_, kFp8Block) / kFp8Block, found_.scales.row_stride}});
  }
  found_.scales.row_stride = 1;
  HOCKET_TRY_VOID(find_scales(".weight_scale", {{n_, 1}, {n_}}));
  found_.zeros.add = kInt8Zero;
  if (fp8 || !source_.has(module_ + ".weight_zero_point")) return {};
  HOCKET_TRY(found_.zeros.bytes, find_also(".weight_zero_point", StoredType::i8, {n_, 1}));
  found_.zeros.kind = StoredMatrix::Zeros::Kind::bytes;
  found_.small.push_back(found_.zeros.bytes);
  return {};
}

Result<void> MatrixFinder::find_int4() {
  Nibbles& nibbles = found_.nibbles.emplace();
  std::string order = ".g_idx";
  switch (quant_.layout) {
    case QuantLayout::awq: {
      HOCKET_TRY(found_.numbers, find_also(".qweight", StoredType::i32, {k_, nibble_words(n_)}));
      nibbles = {found_.numbers.data, Nibbles::Along::rows, Nibbles::Order::awq, 1,
                 nibble_words(n_)};
      break;
    }
    case QuantLayout::gptq: {
      HOCKET_TRY(found_.numbers, find_also(".qweight", StoredType::i32, {nibble_words(k_), n_}));
      nibbles = {found_.numbers.data, Nibbles::Along::columns, Nibbles::Order::sequential, 1, n_};
      break;
    }
    default: {
      HOCKET_CHECK(quant_.layout == QuantLayout::packed);
      HOCKET_TRY(found_.numbers,
                 find_also(".weight_packed", StoredType::i32, {n_, nibble_words(k_)}));
      nibbles = {found_.numbers.data, Nibbles::Along::columns, Nibbles::Order::sequential,
                 nibble_words(k_), 1};
      order = ".weight_g_idx";
      if (const std::string shape = module_ + ".weight_shape"; source_.has(shape)) {
        HOCKET_TRY(found_.shape, find_shaped(source_, shape, {{2}}));
        if (found_.shape->type != StoredType::i64 && found_.shape->type != StoredType::i32)
          return wrong_type(shape, found_.shape->type, "int64");
        found_.small.push_back(*found_.shape);
      }
    }
  }
  if (source_.has(module_ + order)) {
    HOCKET_TRY(found_.order, find_also(order, StoredType::i32, {k_}));
    found_.small.push_back(*found_.order);
  }
  return find_int4_zeros();
}

Result<void> MatrixFinder::find_int4_zeros() {
  found_.zeros.nibbles.along = Nibbles::Along::rows;
  if (quant_.layout == QuantLayout::packed) {
    found_.scales.row_stride = groups(), found_.scales.group_stride = 1;
    std::vector<std::vector<int64_t>> shapes = {{n_, groups()}};
    if (groups() == 1) shapes.push_back({n_});
    HOCKET_TRY_VOID(find_scales(".weight_scale", shapes));
    constexpr std::string_view kZeroPoint = ".weight_zero_point";
    found_.zeros.add = 8;
    if (!source_.has(module_ + std::string(kZeroPoint))) return {};
    HOCKET_TRY(found_.zeros.bytes,
               find_also(std::string(kZeroPoint), StoredType::i32, {nibble_words(n_), groups()}));
    found_.zeros.nibbles.row_stride = groups(), found_.zeros.nibbles.column_stride = 1;
    found_.zeros.add = 0;
  } else {
    found_.scales.row_stride = 1, found_.scales.group_stride = n_;
    HOCKET_TRY_VOID(find_scales(".scales", {{groups(), n_}}));
    HOCKET_TRY(found_.zeros.bytes,
               find_also(".qzeros", StoredType::i32, {groups(), nibble_words(n_)}));
    found_.zeros.nibbles.row_stride = 1, found_.zeros.nibbles.column_stride = nibble_words(n_);
    if (quant_.layout == QuantLayout::awq) found_.zeros.nibbles.order = Nibbles::Order::awq;
    found_.zeros.add = quant_.layout == QuantLayout::gptq && quant_.gptq_zeros_less_1 ? 1 : 0;
  }
  found_.zeros.kind = StoredMatrix::Zeros::Kind::nibbles;
  found_.zeros.nibbles.words = found_.zeros.bytes.data;
  found_.small.push_back(found_.zeros.bytes);
  return {};
}

Result<void> MatrixFinder::find_mx() {
  const WeightFormat format = found_.format.format;
  found_.scales.row_stride = groups();
  const std::vector<int64_t> shape = {n_, found_.scales.row_stride};
  if (format == WeightFormat::mxfp8) {
    HOCKET_TRY(found_.numbers, find_also(".weight", StoredType::f8_e4m3, {n_, k_}));
  } else {
    // ModelOpt names the numbers of nvfp4 like a plain matrix.
    const bool packed = source_.has(module_ + ".weight_packed");
    HOCKET_TRY(found_.numbers,
               find_also(packed ? ".weight_packed" : ".weight", StoredType::u8, {n_, k_ / 2}));
    const int64_t row_step = found_.numbers.row_step == 0 ? k_ / 2 : found_.numbers.row_step;
    found_.nibbles = Nibbles{found_.numbers.data, Nibbles::Along::columns,
                             Nibbles::Order::sequential, row_step / 4, 1};
  }
  const std::string scale =
      quant_.layout == QuantLayout::mxfp8 && source_.has(module_ + ".weight_scale_inv")
          ? ".weight_scale_inv"
          : ".weight_scale";
  HOCKET_TRY(found_.scales.tensor, find_shaped(source_, module_ + scale, {shape}));
  if (format == WeightFormat::nvfp4) {
    if (found_.scales.tensor.type != StoredType::f8_e4m3)
      return wrong_type(module_ + scale, found_.scales.tensor.type,
                        stored_type_name(StoredType::f8_e4m3));
  } else if (found_.scales.tensor.type != StoredType::u8 &&
             found_.scales.tensor.type != StoredType::f8_e8m0) {
    return wrong_type(module_ + scale, found_.scales.tensor.type, "uint8 or float8_e8m0");
  }
  if (found_.scales.tensor.row_step != 0) found_.scales.row_stride = found_.scales.tensor.row_step;
  found_.small.push_back(found_.scales.tensor);
  return format == WeightFormat::nvfp4 ? find_column_scale() : Result<void>();
}

// compressed-tensors stores a divisor, ModelOpt a factor.
Result<void> MatrixFinder::find_column_scale() {
  found_.is_divisor = source_.has(module_ + ".weight_global_scale");
  const std::string name =
      module_ + (found_.is_divisor ? ".weight_global_scale" : ".weight_scale_2");
  HOCKET_TRY(found_.column_scale, find_plain(source_, name, {{1}, {}}));
  found_.small.push_back(*found_.column_scale);
  return {};
}

}  // namespace

Result<StoredMatrix> find_matrix(const WeightSource& source, const QuantConfig& quant,
                                 const MatrixName& matrix) {
  return MatrixFinder(source, quant, matrix).find();
}

}  // namespace hocket
