#include "gguf/types.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace hocket {
namespace {

using Id = GgufTypeId;

constexpr GgufType kTypes[] = {
    {Id::f32, "F32", 1, 4},
    {Id::f16, "F16", 1, 2},
    {Id::bf16, "BF16", 1, 2},
    {Id::q8_0, "Q8_0", 32, 34},
    {Id::q4_0, "Q4_0", 32, 18},
    {Id::q4_1, "Q4_1", 32, 20},
    {Id::q5_0, "Q5_0", 32, 22},
    {Id::q5_1, "Q5_1", 32, 24},
    {Id::q2_k, "Q2_K", 256, 84},
    {Id::q3_k, "Q3_K", 256, 110},
    {Id::q4_k, "Q4_K", 256, 144},
    {Id::q5_k, "Q5_K", 256, 176},
    {Id::q6_k, "Q6_K", 256, 210},
    {Id::iq4_nl, "IQ4_NL", 32, 18},
    {Id::iq4_xs, "IQ4_XS", 256, 136},
    {Id::mxfp4, "MXFP4", 32, 17},
    {Id::iq1_s, "IQ1_S", 256, 50},
    {Id::iq1_m, "IQ1_M", 256, 56},
    {Id::iq2_xxs, "IQ2_XXS", 256, 66},
    {Id::iq2_xs, "IQ2_XS", 256, 74},
    {Id::iq2_s, "IQ2_S", 256, 82},
    {Id::iq3_xxs, "IQ3_XXS", 256, 98},
    {Id::iq3_s, "IQ3_S", 256, 110},
    {Id::tq1_0, "TQ1_0", 256, 54},
    {Id::tq2_0, "TQ2_0", 256, 66},
};

struct OtherType {
  uint32_t number;
  std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {24, "I8"},  {25, "I16"},   {26, "I32"},  {27, "I64"},
    {28, "F64"}, {40, "NVFP4"}, {41, "Q1_0"}, {42, "Q2_0"},
};

}  // namespace

const GgufType* gguf_type(uint32_t number) {
  const auto* const found = std::ranges::find(
      kTypes, number, [](const GgufType& type) { return static_cast<uint32_t>(type.id); });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string gguf_type_name(uint32_t number) {
  if (const GgufType* const type = gguf_type(number)) return std::string(type->name);
  const auto* const found = std::ranges::find(kOtherTypes, number, &OtherType::number);
  return found == std::end(kOtherTypes) ? fmt::format("type {}", number) : std::string(found->name);
}

std::string quoted_ascii(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string text = "\"";
  for (const char c : name.substr(0, kShown)) text += c >= ' ' && c < 127 && c != '"' ? c : '?';
  return text + (name.size() > kShown ? "...\"" : "\"");
}

std::string gguf_supported_types() {
  std::vector<std::string_view> names;
  for (const GgufType& type : kTypes) names.push_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace hocket
