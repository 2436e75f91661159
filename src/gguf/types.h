// The types of tensors in GGUF files, as far as they can be read. A row is cut into blocks of
// `block` numbers, each stored in `bytes` bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

enum class GgufTypeId : uint8_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
};

struct GgufType {
  GgufTypeId id;
  std::string_view name;
  int block = 1, bytes = 4;
};

// Returns the type with that number in files; null if it cannot be read.
const GgufType* gguf_type(uint32_t number);
// Returns the name of any type that files may hold, with the program that alone reads it ("IQ3_K of
// ik_llama.cpp"), or "type 99".
std::string gguf_type_name(uint32_t number);
// Formats a name of a file for a message: quoted and shortened, with bytes other than printable
// ASCII replaced.
std::string quoted_ascii(std::string_view name);
// Returns "F32, F16, ...".
std::string gguf_supported_types();

}  // namespace hocket
