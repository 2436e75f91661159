#include "gguf/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "gguf/merges.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

// Kinds of tokens.
constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

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

constexpr std::string_view kLlama3[] = {kLlama3Split};
constexpr std::string_view kQwen2[] = {kQwen2Split};
constexpr std::string_view kQwen35[] = {kQwen35Split};
constexpr std::string_view kO200k[] = {kO200kSplit};
constexpr std::string_view kTekken[] = {kTekkenSplit};
constexpr std::string_view kKimi[] = {kKimiSplit};
constexpr std::string_view kDeepseekV3[] = {
    R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// The alphabet of the tokens, and the origin of the merges.
enum class Spelling : uint8_t {
  bytes,          // a letter for each byte
  sentencepiece,  // UTF-8 with U+2581 for spaces, and tokens of bytes; merges by scores
  gemma,          // the same; the file lists the merges
};

struct PreTokenizer {
  std::string_view name;
  std::span<const std::string_view> splits;  // one after the other
  bool composes = false;                     // NFC before all
  bool ignore_merges = false;                // a piece that is a token is taken whole
  bool adds_bos = false;                     // unless the file says otherwise
  Spelling spelling = Spelling::bytes;
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"llama-bpe", kLlama3, false, true, true},
    {"llama3", kLlama3, false, true, true},
    {"llama-v3", kLlama3, false, true, true},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2, true},
    {"deepseek-r1-qwen", kQwen2, true},
    {"qwen35", kQwen35, true},
    {"deepseek-v3", kDeepseekV3},
    {"gpt-4o", kO200k},
    {"llama4", kO200k},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, false, true, true},
    {"kimi-k2", kKimi, false, true},
};
// Kinds of tokenizers that cut texts nowhere, by tokenizer.ggml.model.
constexpr PreTokenizer kWhole[] = {
    {.name = "llama", .adds_bos = true, .spelling = Spelling::sentencepiece},
    {.name = "gemma4", .adds_bos = true, .spelling = Spelling::gemma},
};
constexpr std::string_view kSpace = "\u2581";

std::unexpected<Error> bad(const GgufFile& file, const std::string& what) {
  return fail(error(ErrorCode::bad_tokenizer, "{}: {}", file.path().string(), what)
                  .with_fix("--tokenizer-path FOLDER, a folder with the model's tokenizer.json"));
}

Result<const PreTokenizer*> find_pre_tokenizer(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const std::string_view model = metadata.text("tokenizer.ggml.model").value_or("none");
  if (const auto* const whole = std::ranges::find(kWhole, model, &PreTokenizer::name);
      whole != std::end(kWhole))
    return whole;
  if (model != "gpt2")
    return bad(file, fmt::format("the tokenizer is of the kind {}; supported are \"gpt2\", "
                                 "\"llama\" and \"gemma4\"",
                                 quoted_ascii(model)));
  const std::string_view name = metadata.text("tokenizer.ggml.pre").value_or("default");
  const auto* const found = std::ranges::find(kPreTokenizers, name, &PreTokenizer::name);
  if (found != std::end(kPreTokenizers)) return found;
  std::string names;
  for (const PreTokenizer& each : kPreTokenizers)
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  return bad(file, fmt::format("the pre-tokenizer {} is not known; known are {}",
                               quoted_ascii(name), names));
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

Json replaced(std::string_view from, std::string_view to) {
  Json step = {{"type", "Replace"}, {"content", to}};
  step["pattern"]["String"] = from;
  return step;
}

// Texts begin with a space, unless the file says otherwise.
bool adds_space(const GgufFile& file, const PreTokenizer& pre) {
  return pre.spelling == Spelling::sentencepiece &&
         file.metadata().flag("tokenizer.ggml.add_space_prefix").value_or(true);
}

Json normalizer_json(const GgufFile& file, const PreTokenizer& pre) {
  if (pre.spelling == Spelling::bytes)
    return pre.composes ? Json::object({{"type", "NFC"}}) : Json(nullptr);
  Json steps = Json::array();
  if (adds_space(file, pre)) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(replaced(" ", kSpace));
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json decoder_json(const GgufFile& file, const PreTokenizer& pre) {
  if (pre.spelling == Spelling::bytes) return byte_level();
  Json steps = Json::array({replaced(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (adds_space(file, pre))
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

Json pre_tokenizer_json(const PreTokenizer& pre) {
  if (pre.spelling != Spelling::bytes) return nullptr;
  Json steps = Json::array();
  for (const std::string_view split : pre.splits) {
    Json step = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
    step["pattern"]["Regex"] = split;
    steps.push_back(std::move(step));
  }
  steps.push_back(byte_level());
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Returns the id that tokenizer.ggml.NAME_token_id has, if it is a token.
std::optional<size_t> id_named(const GgufFile& file, std::string_view name,
                               std::span<const std::string_view> tokens) {
  const auto id = file.metadata().integer(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (!id || *id < 0 || *id >= std::ssize(tokens)) return std::nullopt;
  return static_cast<size_t>(*id);
}

// Puts bos before every text and eos behind it, as the file asks; null: neither.
Json post_processor_json(const GgufFile& file, const PreTokenizer& pre,
                         std::span<const std::string_view> tokens) {
  Json special = Json::object(), single = Json::array(), sequence;
  sequence["Sequence"] = {{"id", "A"}, {"type_id", 0}};
  const auto add = [&](std::string_view name, bool by_itself) {
    const auto id = id_named(file, name, tokens);
    const auto asked = file.metadata().flag(fmt::format("tokenizer.ggml.add_{}_token", name));
    if (!id || !asked.value_or(by_itself)) return;
    const std::string text(tokens[*id]);
    special[text] = {{"id", text}, {"ids", Json::array({*id})}, {"tokens", Json::array({text})}};
    Json token;
    token["SpecialToken"] = {{"id", text}, {"type_id", 0}};
    single.push_back(std::move(token));
  };
  add("bos", pre.adds_bos);
  single.push_back(sequence);
  add("eos", false);
  if (special.empty()) return nullptr;
  Json pair = single;
  pair.insert(std::ranges::find(pair, sequence) + 1, sequence);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

// Published vocabularies have up to 262,144 tokens of some hundred bytes; more would let a file
// that lies take gigabytes and minutes at the start.
constexpr size_t kMaxTokens = 1 << 20, kMaxMerges = 1 << 21, kMaxTokenBytes = 1 << 14;

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::optional<std::vector<std::string_view>> merges;
  std::vector<double> kinds;
};

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  auto tokens = metadata.texts("tokenizer.ggml.tokens");
  auto kinds = metadata.numbers("tokenizer.ggml.token_type");
  auto merges = metadata.texts("tokenizer.ggml.merges");
  if (!tokens || tokens->empty()) return bad(file, "the metadata hold no list of tokens");
  if (tokens->size() > kMaxTokens || (merges && merges->size() > kMaxMerges) ||
      std::ranges::any_of(*tokens, [](auto token) { return token.size() > kMaxTokenBytes; }))
    return bad(file,
               fmt::format("the vocabulary is larger than {} tokens of {} bytes and {} merges",
                           kMaxTokens, kMaxTokenBytes, kMaxMerges));
  if (!kinds) kinds.emplace(tokens->size(), kNormal);
  if (kinds->size() != tokens->size())
    return bad(file, fmt::format("there are {} tokens, but the kinds of {}", tokens->size(),
                                 kinds->size()));
  return Vocabulary{*std::move(tokens), std::move(merges), *std::move(kinds)};
}

// The chat template, or the list of the usual one and its variants, as in tokenizer_config.json.
Json chat_templates(const GgufMetadata& metadata) {
  constexpr size_t kMaxVariants = 16;
  const auto usual = metadata.text("tokenizer.chat_template");
  if (!usual) return Json::object();
  auto names = metadata.texts("tokenizer.chat_templates").value_or(std::vector<std::string_view>{});
  names.resize(std::min(names.size(), kMaxVariants));
  if (std::ranges::find(names, "tool_use") == names.end()) names.emplace_back("tool_use");
  Json all = Json::array({Json{{"name", "default"}, {"template", *usual}}});
  for (const std::string_view name : names)
    if (const auto text = metadata.text(fmt::format("tokenizer.chat_template.{}", name)))
      all.push_back({{"name", name}, {"template", *text}});
  Json out;
  out["chat_template"] = all.size() > 1 ? all : Json(*usual);
  return out;
}

// Returns the tokens of which texts are merged; others are empty.
std::vector<std::string_view> merged_tokens(const PreTokenizer& pre, const Vocabulary& all) {
  std::vector<std::string_view> tokens = all.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const double kind = all.kinds[id];
    const bool merged =
        kind == kNormal || (kind == kUserDefined && pre.spelling != Spelling::bytes);
    if (!merged) tokens[id] = {};
  }
  return tokens;
}

Result<Json> merges_json(const GgufFile& file, const PreTokenizer& pre, const Vocabulary& all) {
  if (all.merges && pre.spelling != Spelling::sentencepiece) return Json(*all.merges);
  const std::vector<std::string_view> tokens = merged_tokens(pre, all);
  std::optional<std::vector<TokenMerge>> merges;
  if (pre.spelling == Spelling::sentencepiece) {
    const auto scores = file.metadata().numbers("tokenizer.ggml.scores");
    if (!scores || scores->size() != tokens.size() ||
        !std::ranges::all_of(*scores, [](double x) { return std::isfinite(x); }))
      return bad(file, "the metadata hold no list of a score for each token");
    merges = merges_by_score(tokens, *scores, kMaxMerges);
  } else if (pre.name == "kimi-k2") {
    merges = merges_by_order(tokens);
  } else {
    return bad(file, "the metadata hold no list of merges");
  }
  if (!merges)
    return bad(file, fmt::format("the tokens are too long to find out how they are merged, or have "
                                 "more than {} merges",
                                 kMaxMerges));
  Json out = Json::array();
  for (const auto& [left, right] : *merges) out.push_back(Json::array({left, right}));
  return out;
}

Result<Json> model_json(const GgufFile& file, const PreTokenizer& pre, const Vocabulary& all) {
  const bool has_bytes = pre.spelling != Spelling::bytes;
  Json vocab = Json::object();
  for (size_t id = 0; id < all.tokens.size(); ++id) {
    const double kind = all.kinds[id];
    if (kind == kNormal || kind == kUnknown ||
        (has_bytes && (kind == kControl || kind == kUserDefined || kind == kByte)))
      vocab[std::string(all.tokens[id])] = id;
  }
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", has_bytes},
                {"byte_fallback", has_bytes},
                {"ignore_merges", pre.ignore_merges}};
  if (const auto id = id_named(file, "unknown", all.tokens); id && has_bytes)
    model["unk_token"] = all.tokens[*id];
  model["vocab"] = std::move(vocab);
  HOCKET_TRY(model["merges"], merges_json(file, pre, all));
  return model;
}

Result<std::string> printed(const GgufFile& file, const Json& json) try {
  return json.dump();
} catch (const Json::exception&) {
  return bad(file, "the tokenizer holds text that is not UTF-8");
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  if (const auto own = file.metadata().text("tokenizer.huggingface.json")) return std::string(*own);
  HOCKET_TRY(const PreTokenizer* const pre, find_pre_tokenizer(file));
  HOCKET_TRY(const Vocabulary all, read_vocabulary(file));
  Json added = Json::array();
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (const double kind = all.kinds[id]; kind == kControl || kind == kUserDefined)
      added.push_back({{"id", id},
                       {"content", all.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind == kControl}});
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = std::move(added);
  root["normalizer"] = normalizer_json(file, *pre);
  root["pre_tokenizer"] = pre_tokenizer_json(*pre);
  root["post_processor"] = post_processor_json(file, *pre, all.tokens);
  root["decoder"] = decoder_json(file, *pre);
  HOCKET_TRY(root["model"], model_json(file, *pre, all));
  return printed(file, root);
}

Result<std::string> gguf_tokenizer_config_json(const GgufFile& file) {
  HOCKET_TRY(const Vocabulary all, read_vocabulary(file));
  Json root = Json::object();
  for (const auto& [name, key] : {std::pair("bos", "bos_token"),
                                  {"eos", "eos_token"},
                                  {"unknown", "unk_token"},
                                  {"padding", "pad_token"}})
    if (const auto id = id_named(file, name, all.tokens)) root[key] = all.tokens[*id];
  root.update(chat_templates(file.metadata()));
  return printed(file, root);
}

}  // namespace hocket
