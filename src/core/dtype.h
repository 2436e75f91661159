// Number formats of weights, activations and KV.
#pragma once

#include <cstdint>
#include <string_view>

namespace hocket {

enum class DType : uint8_t { bf16, f32, f16, int8 };

constexpr int size_of(DType t) {
  return t == DType::f32 ? 4 : t == DType::int8 ? 1 : 2;
}
constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::bf16:
      return "bfloat16";
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::int8:
      return "int8";
  }
  return "?";
}

// The format of a weight matrix in memory (compute/kernels/arithmetic/packed_weight.h).
enum class WeightFormat : uint8_t {
  bf16,
  f32,
  fp8,
  int8,
  int4,
  mxfp4,
  mxfp8,
  nvfp4,
  q8_0,
  q4_k,
  iq4,  // this and those below: four bits that are indices into a table of sixteen integers
  iq3_xxs,
  iq3_s,
  iq2,
  iq1,
  tq,
  q3_k,  // this and the two below: the same with scales for 16 numbers
  iq2_s,
  iq1_m,
  q5_k,
  q6_k
};

constexpr std::string_view weight_format_name(WeightFormat f) {
  switch (f) {
    case WeightFormat::bf16:
      return "bfloat16";
    case WeightFormat::f32:
      return "float32";
    case WeightFormat::fp8:
      return "fp8";
    case WeightFormat::int8:
      return "int8";
    case WeightFormat::int4:
      return "int4";
    case WeightFormat::mxfp4:
      return "mxfp4";
    case WeightFormat::mxfp8:
      return "mxfp8";
    case WeightFormat::nvfp4:
      return "nvfp4";
    case WeightFormat::q8_0:
      return "q8_0";
    case WeightFormat::q4_k:
      return "q4_k";
    case WeightFormat::iq4:
      return "iq4";
    case WeightFormat::iq3_xxs:
      return "iq3_xxs";
    case WeightFormat::iq3_s:
      return "iq3_s";
    case WeightFormat::iq2:
      return "iq2";
    case WeightFormat::iq1:
      return "iq1";
    case WeightFormat::tq:
      return "tq";
    case WeightFormat::q3_k:
      return "q3_k";
    case WeightFormat::iq2_s:
      return "iq2_s";
    case WeightFormat::iq1_m:
      return "iq1_m";
    case WeightFormat::q5_k:
      return "q5_k";
    case WeightFormat::q6_k:
      return "q6_k";
  }
  return "?";
}
// Returns true for the formats whose numbers have a byte as scale of 16 or 32 neighbouring k.
constexpr bool is_mx(WeightFormat f) {
  return f == WeightFormat::mxfp4 || f == WeightFormat::mxfp8 || f == WeightFormat::nvfp4;
}
// Returns true for the formats whose numbers are indices into a table of sixteen.
constexpr bool has_table(WeightFormat f) {
  return f >= WeightFormat::iq4 && f <= WeightFormat::iq1_m;
}
// Returns true for the formats whose groups of 32 have minima.
constexpr bool has_minima(WeightFormat f) {
  return f == WeightFormat::q4_k || f == WeightFormat::q5_k;
}
// Returns true for the formats whose groups of 32 have two scales, for 16 neighbouring k each.
constexpr bool has_scales_of_16(WeightFormat f) {
  return (f >= WeightFormat::q3_k && f <= WeightFormat::iq1_m) || f == WeightFormat::q6_k;
}
// Returns true for the formats whose scales are integers times a scale of 256 neighbouring k.
constexpr bool has_block_scales(WeightFormat f) {
  return has_table(f) || has_minima(f) || has_scales_of_16(f);
}
// Returns true for the formats whose products are sums of integers.
constexpr bool is_integer(WeightFormat f) {
  return f == WeightFormat::int8 || f == WeightFormat::int4 || f == WeightFormat::q8_0 ||
         has_block_scales(f);
}
// Returns the type of the rows that are multiplied by such weights.
constexpr DType activation_dtype(WeightFormat f) {
  return f == WeightFormat::f32 ? DType::f32 : DType::bf16;
}

}  // namespace hocket
