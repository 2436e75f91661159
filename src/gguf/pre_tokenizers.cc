#include "gguf/pre_tokenizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace hocket {
namespace {

constexpr std::string_view kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kSplit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenSplit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kKimiSplit =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)"
    R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?)"
    R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})", kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kEastAsian = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
// Letters with case, but not those of all alphabets: the pattern of DeepSeek-LLM is a list of
// ranges.
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+";

constexpr std::string_view kLlama3[] = {kLlama3Split};
constexpr std::string_view kQwen2[] = {kQwen2Split};
constexpr std::string_view kQwen35[] = {kQwen35Split};
constexpr std::string_view kO200k[] = {kO200kSplit};
constexpr std::string_view kTekken[] = {kTekkenSplit};
constexpr std::string_view kKimi[] = {kKimiSplit};
constexpr std::string_view kGpt2[] = {kGpt2Split};
constexpr std::string_view kSmolLm[] = {kDigit, kGpt2Split};
constexpr std::string_view kMiniCpm5[] = {kThreeDigits, kMiniCpm5Split};
constexpr std::string_view kDeepseekLlm[] = {
    kLineEnd,
    kDeepseekLetters,
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    R"(\s+$)",
    kEastAsian,
    kDigit};
constexpr std::string_view kDeepseekCoder[] = {kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastAsian,
                                               kDigit};
constexpr std::string_view kDeepseekV3[] = {
    kThreeDigits, "[一-龥\u3040-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr GgufPreTokenizer kPreTokenizers[] = {
    {"llama-bpe", kLlama3, false, true, true},
    {"llama3", kLlama3, false, true, true},
    {"llama-v3", kLlama3, false, true, true},
    {"falcon3", kLlama3, false, true, true},
    {"midm-2.0", kLlama3, false, true, true},
    {"pixtral", kLlama3, false, true, true},
    {"smaug-bpe", kLlama3},
    {"glm4", kLlama3, false, true},
    {"glm5", kLlama3, false, true},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2, true},
    {"deepseek-r1-qwen", kQwen2, true},
    {"f2llmv2", kQwen2, true},
    {"kormo", kQwen2},
    {"megrez", kQwen2},
    {"solar-open", kQwen2},
    {"qwen35", kQwen35, true},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-v3", kDeepseekV3},
    {"joyai-llm", kDeepseekV3},
    {"gigachat", kGpt2},
    {"smollm", kSmolLm},
    {"minicpm5", kMiniCpm5, false, true},
    {"gpt-4o", kO200k},
    {"kanana2", kO200k},
    {"llama4", kO200k},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, false, true, true},
    {"kimi-k2", kKimi, false, true},
};
// Vocabularies whose older files name no pre-tokenizer: a control token that is theirs alone.
struct KnownVocabulary {
  size_t id;
  std::string_view text, name;
};
constexpr KnownVocabulary kKnownByToken[] = {{128000, "<|begin_of_text|>", "llama-bpe"},
                                             {151643, "<|endoftext|>", "qwen2"}};
// Kinds of tokenizers that cut texts nowhere, by tokenizer.ggml.model.
constexpr GgufPreTokenizer kWhole[] = {
    {.name = "llama", .adds_bos = true, .spelling = GgufSpelling::sentencepiece},
    {.name = "gemma4", .adds_bos = true, .spelling = GgufSpelling::gemma},
};

}  // namespace

std::unexpected<Error> bad_tokenizer(const GgufFile& file, const std::string& what) {
  return fail(error(ErrorCode::bad_tokenizer, "{}: {}", file.path().string(), what)
                  .with_fix("--tokenizer-path FOLDER, a folder with the model's tokenizer.json"));
}

std::string_view gguf_pre_tokenizer_name(const GgufFile& file) {
  constexpr std::string_view kNone = "default";
  const auto said = file.metadata().text("tokenizer.ggml.pre");
  if (said && *said != kNone) return *said;
  const auto tokens = file.metadata().texts("tokenizer.ggml.tokens");
  for (const auto& [id, text, name] : kKnownByToken)
    if (tokens && id < tokens->size() && (*tokens)[id] == text) return name;
  return kNone;
}

Result<const GgufPreTokenizer*> find_gguf_pre_tokenizer(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const std::string_view model = metadata.text("tokenizer.ggml.model").value_or("none");
  if (const auto* const whole = std::ranges::find(kWhole, model, &GgufPreTokenizer::name);
      whole != std::end(kWhole))
    return whole;
  if (model != "gpt2")
    return bad_tokenizer(file,
                         fmt::format("the tokenizer is of the kind {}; supported are \"gpt2\", "
                                     "\"llama\" and \"gemma4\"",
                                     quoted_ascii(model)));
  const std::string_view name = gguf_pre_tokenizer_name(file);
  const auto* const found = std::ranges::find(kPreTokenizers, name, &GgufPreTokenizer::name);
  if (found != std::end(kPreTokenizers)) return found;
  std::string names;
  for (const GgufPreTokenizer& each : kPreTokenizers)
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  return bad_tokenizer(file, fmt::format("the pre-tokenizer {} is not known; known are {}",
                                         quoted_ascii(name), names));
}

}  // namespace hocket
