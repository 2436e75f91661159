#include "compute/weights/matrix_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "compute/weights/quant_config.h"
#include "compute/weights/random_weights.h"

namespace hocket {
namespace {

float plain_at(const StoredTensor& tensor, int64_t i) {
  float value;
  convert_stored(tensor.type, tensor.data + i * stored_type_size(tensor.type), 1, &value);
  return value;
}

int64_t integer_at(const StoredTensor& tensor, int64_t i) {
  if (tensor.type == StoredType::i64) {
    int64_t value;
    std::memcpy(&value, tensor.data + i * 8, 8);
    return value;
  }
  int32_t value;
  std::memcpy(&value, tensor.data + i * 4, 4);
  return value;
}

}  // namespace

void read_vector(const StoredTensor& tensor, int n, float* out) {
  if (tensor.type == StoredType::rows) {
    const int64_t columns = tensor.rows->columns();
    return tensor.rows->read(0, {out, n / columns, columns});
  }
  if (tensor.row_step <= 1) return convert_stored(tensor.type, tensor.data, n, out);
  for (int i = 0; i < n; ++i) out[i] = plain_at(tensor, i * tensor.row_step);
}

Result<MatrixReader> MatrixReader::open(const WeightSource& source, const QuantConfig& quant,
                                        const std::string& name, int n, int k) {
  MatrixReader reader;
  reader.source_ = &source;
  reader.name_ = name;
  reader.n_ = n, reader.k_ = k;
  HOCKET_TRY(reader.stored_, find_matrix(source, quant, {name, n, k}));
  reader.kind_ = reader.stored_.is_scaled ? Kind::scaled : Kind::plain;
  return reader;
}

Result<MatrixReader> MatrixReader::random(uint64_t seed, const QuantConfig& quant,
                                          const std::string& name, int n, int k) {
  MatrixReader reader;
  reader.kind_ = Kind::random;
  reader.seed_ = seed;
  reader.name_ = name;
  reader.n_ = n, reader.k_ = k;
  const std::string module = module_of(name);
  if (is_quantized(quant, module)) {
    HOCKET_TRY(reader.stored_.format, quantized_format(quant, module, k));
  }
  return reader;
}

std::string_view MatrixReader::type_name() const {
  return in_rows() ? stored_.numbers.rows->type_name() : stored_type_name(stored_.numbers.type);
}

int64_t MatrixReader::row_bytes() const {
  if (kind_ == Kind::random) return int64_t{k_} * 4;
  if (in_rows()) {
    int64_t all = 0;
    for (const auto bytes : stored_.numbers.rows->bytes_of(0, n_)) all += std::ssize(bytes);
    return std::max<int64_t>(all / n_, 1);
  }
  const int64_t dense =
      stored_.nibbles ? nibble_words(k_) * 4 : int64_t{k_} * stored_type_size(stored_.numbers.type);
  const bool gaps = stored_.numbers.row_step != 0 && stored_.numbers.column_step == 0;
  return gaps ? stored_.numbers.row_step * stored_type_size(stored_.numbers.type) : dense;
}

float MatrixReader::column_scale() const {
  const float stored = plain_at(*stored_.column_scale, 0);
  return stored_.is_divisor ? 1 / stored : stored;
}

Result<void> MatrixReader::check_contents() const {
  const std::string module = module_of(name_);
  if (stored_.shape && (integer_at(*stored_.shape, 0) != n_ || integer_at(*stored_.shape, 1) != k_))
    return fail(
        error(ErrorCode::wrong_shape,
              "{}.weight_shape is [{}, {}], but config.json asks for [{}, {}]", module,
              integer_at(*stored_.shape, 0), integer_at(*stored_.shape, 1), n_, k_)
            .with_fix("config.json and the weights are of different models: download both again"));
  for (int i = 0; stored_.order && i < k_; ++i)
    if (integer_at(*stored_.order, i) != i / stored_.format.group)
      return fail(error(ErrorCode::unsupported_model,
                        "{} is quantized with its columns out of order (act-order): column {} is "
                        "of group {}, not {}",
                        module, i, integer_at(*stored_.order, i), i / stored_.format.group)
                      .with_fix("use a copy quantized with desc_act false"));
  if (stored_.column_scale) {
    const float scale = column_scale();
    if (!std::isfinite(scale) || scale <= 0)
      return fail(error(ErrorCode::unsupported_model,
                        "{} has {} as the scale of all its numbers; it must be above 0 and finite",
                        module, plain_at(*stored_.column_scale, 0))
                      .with_fix("the files are damaged: download them again"));
  }
  return {};
}

// Turns stored columns into rows, some rows at a time.
template <class T>
void MatrixReader::read_columns(int row_begin, View<T> out) const {
  constexpr int64_t kRowsAtOnce = 64;
  std::array<T, kRowsAtOnce> column;
  const int size = stored_type_size(stored_.numbers.type);
  if (stored_.numbers.row_step > 1) {
    for (int64_t row = 0; row < out.rows; ++row)
      for (int col = 0; col < k_; ++col) {
        const int64_t at =
            col * stored_.numbers.column_step + (row_begin + row) * stored_.numbers.row_step;
        convert_stored(stored_.numbers.type, stored_.numbers.data + at * size, 1,
                       out.row(row) + col);
      }
    return;
  }
  for (int64_t begin = 0; begin < out.rows; begin += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, out.rows - begin);
    for (int col = 0; col < k_; ++col) {
      const int64_t at = col * stored_.numbers.column_step + row_begin + begin;
      convert_stored(stored_.numbers.type, stored_.numbers.data + at * size, rows, column.data());
      for (int64_t row = 0; row < rows; ++row) out.row(begin + row)[col] = column[row];
    }
  }
}

template <class T>
void MatrixReader::read(int row_begin, View<T> out) const {
  if constexpr (std::is_same_v<T, float>) {
    if (kind_ == Kind::random) return random_rows(seed_, name_, row_begin, out);
  }
  if (in_rows()) {
    if constexpr (std::is_same_v<T, float>) return stored_.numbers.rows->read(row_begin, out);
    HOCKET_CHECK(!in_rows());  // rows are read as fp32
  }
  HOCKET_CHECK(kind_ == Kind::plain);
  if (stored_.numbers.column_step > 0) return read_columns(row_begin, out);
  for (int64_t row = 0; row < out.rows; ++row)
    convert_stored(stored_.numbers.type, stored_.numbers.data + (row_begin + row) * row_bytes(), k_,
                   out.row(row));
}
template void MatrixReader::read<float>(int, View<float>) const;
template void MatrixReader::read<Bf16>(int, View<Bf16>) const;

uint8_t MatrixReader::zero_at(int64_t row, int64_t group) const {
  int zero = stored_.zeros.add;
  if (stored_.zeros.kind == StoredMatrix::Zeros::Kind::nibbles)
    zero += stored_.zeros.nibbles.at(row, group);
  if (stored_.zeros.kind == StoredMatrix::Zeros::Kind::bytes)
    zero += static_cast<int8_t>(stored_.zeros.bytes.data[row]);
  return static_cast<uint8_t>(zero);
}

bool MatrixReader::read(int row_begin, const ScaledRows& out) const {
  HOCKET_CHECK(kind_ == Kind::scaled && out.format == stored_.format);
  if (in_rows()) return stored_.numbers.rows->read_scaled(row_begin, out);
  if (is_mx(stored_.format.format)) return read_mx(row_begin, out);
  for (int64_t row = 0; row < out.scales.rows; ++row) {
    const int64_t first = (row_begin + row) / stored_.scales.rows * stored_.scales.row_stride;
    if (stored_.scales.group_stride == 1) {
      convert_stored(
          stored_.scales.tensor.type,
          stored_.scales.tensor.data + first * stored_type_size(stored_.scales.tensor.type),
          out.scales.cols, out.scales.row(row));
      continue;
    }
    for (int64_t g = 0; g < out.scales.cols; ++g)
      out.scales.row(row)[g] =
          plain_at(stored_.scales.tensor, first + g * stored_.scales.group_stride);
  }
  for (int64_t row = 0; row < out.zeros.rows; ++row)
    for (int64_t g = 0; g < out.zeros.cols; ++g)
      out.zeros.row(row)[g] = zero_at(row_begin + row, g);
  if (stored_.nibbles) {
    stored_.nibbles->read(row_begin, out.numbers);
    return true;
  }
  bool sound = true;
  const bool fp8 = stored_.format.format == WeightFormat::fp8;
  for (int64_t row = 0; row < out.numbers.rows; ++row) {
    uint8_t* const to = out.numbers.row(row);
    std::memcpy(to, stored_.numbers.data + (row_begin + row) * k_, k_);
    int nans = 0;
    for (int i = 0; i < k_; ++i) {
      if (fp8) {
        nans += (to[i] & 0x7f) == 0x7f;
      } else {
        to[i] ^= kInt8Zero;  // a signed byte plus 128
      }
    }
    sound = sound && nans == 0;
  }
  return sound;
}

bool MatrixReader::read_mx(int row_begin, const ScaledRows& out) const {
  const bool nvfp4 = stored_.format.format == WeightFormat::nvfp4;
  const bool fp8 = stored_.format.format == WeightFormat::mxfp8;
  const int magnitude_bits = fp8 ? 0x7f : 7;
  if (stored_.nibbles) stored_.nibbles->read(row_begin, out.numbers);
  bool sound = true;
  for (int64_t row = 0; row < out.numbers.rows; ++row) {
    uint8_t* const numbers = out.numbers.row(row);
    if (fp8) {
      std::memcpy(numbers, stored_.numbers.data + (row_begin + row) * row_bytes(), k_);
      sound &= std::none_of(numbers, numbers + k_, [](int x) { return (x & 0x7f) == 0x7f; });
    }
    const std::byte* const scales =
        stored_.scales.tensor.data + (row_begin + row) * stored_.scales.row_stride;
    for (int64_t g = 0; g < out.scales.cols; ++g) {
      const auto byte = static_cast<uint8_t>(scales[g]);
      float& scale = out.scales.row(row)[g];
      if (nvfp4) {
        scale = fp8_to_float(byte);
        sound &= (byte & 0x7f) != 0x7f;
        continue;
      }
      const bool fits = fits_bf16(stored_.format.format, byte);
      scale = fits ? e8m0_to_float(byte) : 0;
      sound &= fits || (byte != 0xff && all_zero(numbers + g * stored_.format.group,
                                                 stored_.format.group, magnitude_bits));
    }
    if (nvfp4) out.column_scales[row] = column_scale();
  }
  return sound;
}

// Calls f(tensor) for the bytes of rows [begin, end), and with_whole for what has no such bytes.
template <class F>
void MatrixReader::each_range(int begin, int end, bool with_whole, F f) const {
  if (kind_ == Kind::random) return;
  if (in_rows()) {
    for (const auto bytes : stored_.numbers.rows->bytes_of(begin, end))
      f(StoredTensor{.data = bytes.data(), .bytes = std::ssize(bytes)});
    return;
  }
  if (stored_.is_row_by_row()) {
    const int64_t bytes = row_bytes();
    f(StoredTensor{stored_.numbers.type,
                   {end - begin},
                   stored_.numbers.data + begin * bytes,
                   (end - begin) * bytes});
  }
  if (!with_whole) return;
  if (!stored_.is_row_by_row()) f(stored_.numbers);
  for (const StoredTensor& tensor : stored_.small) f(tensor);
}

void MatrixReader::will_read(int begin, int end) const {
  each_range(begin, end, begin == 0, [&](const StoredTensor& t) { source_->will_read(t); });
}

void MatrixReader::done_with(int begin, int end) const {
  each_range(begin, end, end == n_, [&](const StoredTensor& t) { source_->done_with(t); });
}

}  // namespace hocket
