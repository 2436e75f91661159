// Bodies of weight_folder_testing.h, linked only into this room's tests.
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;

// Packs eight 4-bit numbers into a word, the first in the lowest bits.
template <class NumberAt>
uint32_t word_of(NumberAt number_at) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint32_t>(number_at(i)) << 4 * i;
  return word;
}

uint16_t half_of(float x) {
  int exponent;
  const float mantissa = std::frexp(x, &exponent);  // positive, normal, at most 11 bits
  return static_cast<uint16_t>((exponent + 14) << 10 | (static_cast<int>(mantissa * 2048) & 1023));
}

std::vector<float> scales_by_row(const TestMatrix& m, int rows_apart, int groups) {
  std::vector<float> scales;
  for (int row = 0; row < m.n; row += rows_apart)
    for (int g = 0; g < groups; ++g) scales.push_back(m.scale(row, g));
  return scales;
}

template <class T>
std::vector<T> bytes_of(const TestMatrix& m, int less) {
  std::vector<T> numbers;
  for (int row = 0; row < m.n; ++row)
    for (int col = 0; col < m.k; ++col)
      numbers.push_back(static_cast<T>(m.number(row, col) - less));
  return numbers;
}

// Adds [groups, n / 8] words of zeros and [groups, n] scales, as AWQ and GPTQ have them.
void add_group_tables(TestFolder& folder, const TestMatrix& m, const std::vector<int>& order,
                      int less) {
  const int words = (m.n + 7) / 8;
  std::vector<uint32_t> zeros;
  std::vector<uint16_t> scales;
  for (int g = 0; g < m.groups(); ++g) {
    for (int w = 0; w < words; ++w)
      zeros.push_back(word_of([&](int i) {
        const int row = 8 * w + order[i];
        return row < m.n ? m.zero(row, g) - less : 0;
      }));
    for (int row = 0; row < m.n; ++row) scales.push_back(half_of(m.scale(row, g)));
  }
  folder.add(m.module + ".qzeros", "I32", {m.groups(), words}, zeros);
  folder.add(m.module + ".scales", "F16", {m.groups(), m.n}, scales);
}

void add_awq(TestFolder& folder, const TestMatrix& m) {
  const std::vector<int> order = {0, 2, 4, 6, 1, 3, 5, 7};
  const int words = (m.n + 7) / 8;
  std::vector<uint32_t> numbers;
  for (int col = 0; col < m.k; ++col)
    for (int w = 0; w < words; ++w)
      numbers.push_back(word_of([&](int i) {
        const int row = 8 * w + order[i];
        return row < m.n ? m.number(row, col) : 0;
      }));
  folder.add(m.module + ".qweight", "I32", {m.k, words}, numbers);
  add_group_tables(folder, m, order, 0);
}

void add_gptq(TestFolder& folder, const TestMatrix& m) {
  std::vector<uint32_t> numbers;
  for (int w = 0; w < (m.k + 7) / 8; ++w)
    for (int row = 0; row < m.n; ++row)
      numbers.push_back(
          word_of([&](int i) { return 8 * w + i < m.k ? m.number(row, 8 * w + i) : 0; }));
  std::vector<int32_t> order;
  for (int col = 0; col < m.k; ++col) order.push_back(col / m.group());
  folder.add(m.module + ".qweight", "I32", {(m.k + 7) / 8, m.n}, numbers);
  folder.add(m.module + ".g_idx", "I32", {m.k}, order);
  add_group_tables(folder, m, {0, 1, 2, 3, 4, 5, 6, 7}, m.quant.gptq_zeros_less_1 ? 1 : 0);
}

void add_packed(TestFolder& folder, const TestMatrix& m) {
  std::vector<uint32_t> numbers;
  for (int row = 0; row < m.n; ++row)
    for (int w = 0; w < (m.k + 7) / 8; ++w)
      numbers.push_back(
          word_of([&](int i) { return 8 * w + i < m.k ? m.number(row, 8 * w + i) : 0; }));
  folder.add(m.module + ".weight_packed", "I32", {m.n, (m.k + 7) / 8}, numbers);
  folder.add(m.module + ".weight_scale", "F32", {m.n, m.groups()}, scales_by_row(m, 1, m.groups()));
  folder.add(m.module + ".weight_shape", "I64", {2}, std::vector<int64_t>{m.n, m.k});
  if (m.symmetric) return;
  std::vector<uint32_t> zeros;
  for (int w = 0; w < (m.n + 7) / 8; ++w)
    for (int g = 0; g < m.groups(); ++g)
      zeros.push_back(word_of([&](int i) { return 8 * w + i < m.n ? m.zero(8 * w + i, g) : 0; }));
  folder.add(m.module + ".weight_zero_point", "I32", {(m.n + 7) / 8, m.groups()}, zeros);
}

void add_mx(TestFolder& folder, const TestMatrix& m) {
  std::vector<uint8_t> bytes, scales;
  const bool fp8 = m.quant.layout == QuantLayout::mxfp8;
  for (int row = 0; row < m.n; ++row) {
    for (int col = 0; col < m.k; col += fp8 ? 1 : 2)
      bytes.push_back(static_cast<uint8_t>(fp8 ? m.number(row, col)
                                               : m.number(row, col) | m.number(row, col + 1) << 4));
    for (int g = 0; g < m.groups(); ++g) scales.push_back(m.scale_byte(row, g));
  }
  const bool nvfp4 = m.quant.layout == QuantLayout::nvfp4, plain_name = fp8 || m.modelopt;
  folder.add(m.module + (plain_name ? ".weight" : ".weight_packed"), fp8 ? "F8_E4M3" : "U8",
             {m.n, fp8 ? m.k : m.k / 2}, bytes);
  folder.add(m.module + ".weight_scale", nvfp4 ? "F8_E4M3" : "U8", {m.n, m.groups()}, scales);
  if (!nvfp4) return;
  if (m.modelopt) {
    folder.add(m.module + ".weight_scale_2", "F32", {}, std::vector<float>{1 / m.divisor()});
    folder.add(m.module + ".input_scale", "F32", {}, std::vector<float>{0.01f});
  } else {
    folder.add(m.module + ".weight_global_scale", "F32", {1}, std::vector<float>{m.divisor()});
  }
}

}  // namespace

void add_quantized(TestFolder& folder, const TestMatrix& m) {
  switch (m.quant.layout) {
    case QuantLayout::none:
    case QuantLayout::gguf:
      FAIL();
    case QuantLayout::fp8_block:
      folder.add(m.module + ".weight", "F8_E4M3", {m.n, m.k}, bytes_of<uint8_t>(m, 0));
      if (m.is_fp8_tensor()) {
        folder.add(m.module + (m.modelopt ? ".weight_scale" : ".weight_scale_inv"), "F32", {},
                   std::vector<float>{m.scale(0, 0)});
        break;
      }
      folder.add(m.module + ".weight_scale_inv", "F32", {(m.n + 127) / 128, m.groups()},
                 scales_by_row(m, 128, m.groups()));
      break;
    case QuantLayout::fp8_channel:
      folder.add(m.module + ".weight", "F8_E4M3", {m.n, m.k}, bytes_of<uint8_t>(m, 0));
      folder.add(m.module + ".weight_scale", "F32", {m.n, 1}, scales_by_row(m, 1, 1));
      break;
    case QuantLayout::int8_channel:
      folder.add(m.module + ".weight", "I8", {m.n, m.k}, bytes_of<int8_t>(m, 128));
      folder.add(m.module + ".weight_scale", "F32", {m.n, 1}, scales_by_row(m, 1, 1));
      break;
    case QuantLayout::awq:
      add_awq(folder, m);
      break;
    case QuantLayout::gptq:
      add_gptq(folder, m);
      break;
    case QuantLayout::packed:
      add_packed(folder, m);
      break;
    case QuantLayout::mxfp4:
    case QuantLayout::mxfp8:
    case QuantLayout::nvfp4:
      add_mx(folder, m);
      break;
  }
}

int Unpacked::number(int row, int col) const {
  const auto* bytes = static_cast<const uint8_t*>(w.data);
  const int64_t panel = row / 16, column = row % 16;
  if (w.format == WeightFormat::mxfp4 || w.format == WeightFormat::nvfp4) {
    const int64_t tile = panel * ((w.k + 31) / 32) + col / 32;
    const uint8_t pair = bytes[tile * 256 + col % 32 / 8 * 64 + column * 4 + col % 8 / 2];
    return col % 2 == 0 ? pair & 15 : pair >> 4;
  }
  if (w.format == WeightFormat::fp8 || w.format == WeightFormat::mxfp8) {
    const int64_t blocks = (w.k + 31) / 32, tile = panel * blocks + col / 32;
    return bytes[tile * 512 + col % 32 / 2 * 32 + column * 2 + col % 2];
  }
  const int64_t blocks = (w.k + 63) / 64, tile = panel * blocks + col / 64;
  const int quad = col % 64 / 4, inside = col % 4;
  if (w.format == WeightFormat::int8) return bytes[tile * 1024 + quad * 64 + column * 4 + inside];
  const uint8_t pair = bytes[tile * 512 + quad % 8 * 64 + column * 4 + inside];
  return quad < 8 ? pair & 15 : pair >> 4;
}

float Unpacked::value(int row, int col) const {
  const int x = number(row, col);
  const float s = scale(row, col);
  if (w.format == WeightFormat::fp8 || w.format == WeightFormat::mxfp8)
    return fp8_to_float(static_cast<uint8_t>(x)) * s;
  if (w.format == WeightFormat::mxfp4) return e2m1_to_float(x) * s;
  if (w.format == WeightFormat::nvfp4) return e2m1_to_float(x) * s * w.column_scales[row];
  return static_cast<float>(x - zero(row, col)) * s;
}

}  // namespace hocket
