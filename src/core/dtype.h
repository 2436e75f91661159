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
enum class WeightFormat : uint8_t { bf16, f32, fp8, int8, int4, mxfp4, mxfp8, nvfp4, q4_k };

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
    case WeightFormat::q4_k:
      return "q4_k";
  }
  return "?";
}
// Returns true for the formats whose numbers have a byte as scale of 16 or 32 neighbouring k.
constexpr bool is_mx(WeightFormat f) {
  return f == WeightFormat::mxfp4 || f == WeightFormat::mxfp8 || f == WeightFormat::nvfp4;
}
// Returns true for the formats whose products are sums of integers.
constexpr bool is_integer(WeightFormat f) {
  return f == WeightFormat::int8 || f == WeightFormat::int4 || f == WeightFormat::q4_k;
}
// Returns the type of the rows that are multiplied by such weights.
constexpr DType activation_dtype(WeightFormat f) {
  return f == WeightFormat::f32 ? DType::f32 : DType::bf16;
}

}  // namespace hocket
