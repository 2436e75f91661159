#include "compute/tensor/bf16.h"

namespace hocket {

float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude > 0x7f800000u) {
    code = 0x7e00;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above become infinite
    code = 0x7c00;
  } else if (magnitude < 0x38800000u) {
    // Subnormal: multiples of 2^-24, which are the last bits of 0.5 + x.
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    code = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | code);
}

}  // namespace hocket
