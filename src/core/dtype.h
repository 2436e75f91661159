// Number formats of weights, activations and KV.
#pragma once

#include <cstdint>
#include <string_view>

namespace hocket {

enum class DType : uint8_t { bf16, f32, f16 };

constexpr int size_of(DType t) {
  return t == DType::f32 ? 4 : 2;
}
constexpr std::string_view dtype_name(DType t) {
  return t == DType::bf16 ? "bfloat16" : t == DType::f32 ? "float32" : "float16";
}

}  // namespace hocket
