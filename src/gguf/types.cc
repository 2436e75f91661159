#include "gguf/types.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
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
// Types that llama.cpp reads no more.
constexpr OtherType kRemovedTypes[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};
// Types of ik_llama.cpp; a number behind R: as many rows lie between one another.
constexpr OtherType kTypesOfIk[] = {
    {133, "Q6_0"},       {134, "IQ1_BN"},    {135, "IQ2_BN"},     {136, "Q8_K64"},
    {137, "IQ2_K"},      {138, "IQ3_K"},     {139, "IQ4_K"},      {140, "IQ5_K"},
    {141, "IQ6_K"},      {144, "IQ4_KS"},    {145, "IQ2_KS"},     {146, "IQ4_KSS"},
    {151, "Q8_KV"},      {152, "IQ5_KS"},    {153, "IQ2_KT"},     {154, "IQ3_KT"},
    {155, "IQ4_KT"},     {156, "IQ3_KS"},    {157, "IQ2_KL"},     {158, "IQ1_KT"},
    {202, "Q4_0_R8"},    {206, "Q5_0_R4"},   {208, "Q8_0_R8"},    {210, "Q2_K_R4"},
    {211, "Q3_K_R4"},    {212, "Q4_K_R4"},   {213, "Q5_K_R4"},    {214, "Q6_K_R4"},
    {216, "IQ2_XXS_R4"}, {217, "IQ2_XS_R4"}, {218, "IQ3_XXS_R4"}, {219, "IQ1_S_R4"},
    {220, "IQ4_NL_R4"},  {221, "IQ3_S_R4"},  {222, "IQ2_S_R4"},   {223, "IQ4_XS_R8"},
    {229, "IQ1_M_R4"},   {230, "BF16_R16"},  {233, "Q6_0_R4"},    {335, "IQ2_BN_R4"},
    {337, "IQ2_K_R4"},   {338, "IQ3_K_R4"},  {339, "IQ4_K_R4"},   {340, "IQ5_K_R4"},
    {344, "IQ4_KS_R4"},  {352, "IQ5_KS_R4"}, {353, "MXFP4_R8"},   {398, "Q8_KV_R8"},
};

struct Origin {
  std::span<const OtherType> types;
  std::string_view words;  // behind the name
};
constexpr Origin kOrigins[] = {
    {kOtherTypes, ""}, {kRemovedTypes, " of older llama.cpp"}, {kTypesOfIk, " of ik_llama.cpp"}};

}  // namespace

const GgufType* gguf_type(uint32_t number) {
  const auto* const found = std::ranges::find(
      kTypes, number, [](const GgufType& type) { return static_cast<uint32_t>(type.id); });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string gguf_type_name(uint32_t number) {
  if (const GgufType* const type = gguf_type(number)) return std::string(type->name);
  for (const auto& [types, words] : kOrigins)
    if (const auto found = std::ranges::find(types, number, &OtherType::number);
        found != types.end())
      return fmt::format("{}{}", found->name, words);
  return fmt::format("type {}", number);
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
