#include "gguf/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

namespace hocket {
namespace {

using Json = nlohmann::json;

// Kinds of tokens.
constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4;

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

constexpr std::string_view kLlama3[] = {kLlama3Split};
constexpr std::string_view kQwen2[] = {kQwen2Split};
constexpr std::string_view kQwen35[] = {kQwen35Split};
constexpr std::string_view kO200k[] = {kO200kSplit};
constexpr std::string_view kTekken[] = {kTekkenSplit};
constexpr std::string_view kDeepseekV3[] = {
    R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

struct PreTokenizer {
  std::string_view name;
  std::span<const std::string_view> splits;  // one after the other
  bool composes = false;                     // NFC before all
  bool ignore_merges = false;                // a piece that is a token is taken whole
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"llama-bpe", kLlama3, false, true},
    {"llama3", kLlama3, false, true},
    {"llama-v3", kLlama3, false, true},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2, true},
    {"qwen35", kQwen35, true},
    {"deepseek-v3", kDeepseekV3},
    {"gpt-4o", kO200k},
    {"llama4", kO200k},
    {"minimax-m2", kO200k},
    {"tekken", kTekken, false, true},
};

std::unexpected<Error> bad(const GgufFile& file, const std::string& what) {
  return fail(error(ErrorCode::bad_tokenizer, "{}: {}", file.path().string(), what)
                  .with_fix("--tokenizer-path FOLDER, a folder with the model's tokenizer.json"));
}

Result<const PreTokenizer*> find_pre_tokenizer(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const std::string_view model = metadata.text("tokenizer.ggml.model").value_or("none");
  if (model != "gpt2")
    return bad(file, fmt::format("the tokenizer is of the kind {}; supported is \"gpt2\"",
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

Json pre_tokenizer_json(const PreTokenizer& pre) {
  Json steps = Json::array();
  for (const std::string_view split : pre.splits) {
    Json step = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
    step["pattern"]["Regex"] = split;
    steps.push_back(std::move(step));
  }
  steps.push_back(byte_level());
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Puts bos before every text.
Json post_processor_json(std::string_view bos, int64_t id) {
  Json special, sequence;
  special["SpecialToken"] = {{"id", bos}, {"type_id", 0}};
  sequence["Sequence"] = {{"id", "A"}, {"type_id", 0}};
  Json tokens = Json::object();
  tokens[std::string(bos)] = {
      {"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({std::string(bos)})}};
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special, sequence})},
          {"pair", Json::array({special, sequence, sequence})},
          {"special_tokens", std::move(tokens)}};
}

// Published vocabularies have up to 262,144 tokens of some hundred bytes; more would let a file
// that lies take gigabytes and minutes at the start.
constexpr size_t kMaxTokens = 1 << 20, kMaxMerges = 1 << 21, kMaxTokenBytes = 1 << 14;

struct Vocabulary {
  std::vector<std::string_view> tokens, merges;
  std::vector<double> kinds;
};

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  auto tokens = metadata.texts("tokenizer.ggml.tokens");
  auto kinds = metadata.numbers("tokenizer.ggml.token_type");
  auto merges = metadata.texts("tokenizer.ggml.merges");
  if (!tokens || tokens->empty()) return bad(file, "the metadata hold no list of tokens");
  if (!merges) return bad(file, "the metadata hold no list of merges");
  if (tokens->size() > kMaxTokens || merges->size() > kMaxMerges ||
      std::ranges::any_of(*tokens, [](auto token) { return token.size() > kMaxTokenBytes; }))
    return bad(file,
               fmt::format("the vocabulary is larger than {} tokens of {} bytes and {} merges",
                           kMaxTokens, kMaxTokenBytes, kMaxMerges));
  if (!kinds) kinds.emplace(tokens->size(), kNormal);
  if (kinds->size() != tokens->size())
    return bad(file, fmt::format("there are {} tokens, but the kinds of {}", tokens->size(),
                                 kinds->size()));
  return Vocabulary{*std::move(tokens), *std::move(merges), *std::move(kinds)};
}

// Returns the text of the token that tokenizer.ggml.NAME_token_id names.
std::optional<std::string_view> token_named(const GgufFile& file, std::string_view name,
                                            std::span<const std::string_view> tokens) {
  const auto id = file.metadata().integer(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (!id || *id < 0 || *id >= std::ssize(tokens)) return std::nullopt;
  return tokens[static_cast<size_t>(*id)];
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
  Json vocab = Json::object(), added = Json::array();
  for (size_t id = 0; id < all.tokens.size(); ++id) {
    const int kind = static_cast<int>(all.kinds[id]);
    if (kind == kControl || kind == kUserDefined)
      added.push_back({{"id", id},
                       {"content", all.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind == kControl}});
    if (kind == kNormal || kind == kUnknown) vocab[std::string(all.tokens[id])] = id;
  }
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = std::move(added);
  root["normalizer"] = nullptr;
  if (pre->composes) root["normalizer"] = Json::object({{"type", "NFC"}});
  root["pre_tokenizer"] = pre_tokenizer_json(*pre);
  root["post_processor"] = nullptr;
  const auto bos = token_named(file, "bos", all.tokens);
  if (bos && file.metadata().flag("tokenizer.ggml.add_bos_token").value_or(false))
    root["post_processor"] =
        post_processor_json(*bos, *file.metadata().integer("tokenizer.ggml.bos_token_id"));
  root["decoder"] = byte_level();
  root["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", pre->ignore_merges}};
  root["model"]["vocab"] = std::move(vocab);
  root["model"]["merges"] = all.merges;
  return printed(file, root);
}

Result<std::string> gguf_tokenizer_config_json(const GgufFile& file) {
  HOCKET_TRY(const Vocabulary all, read_vocabulary(file));
  Json root = Json::object();
  for (const auto& [name, key] : {std::pair("bos", "bos_token"),
                                  {"eos", "eos_token"},
                                  {"unknown", "unk_token"},
                                  {"padding", "pad_token"}})
    if (const auto token = token_named(file, name, all.tokens)) root[key] = *token;
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  const auto usual = file.metadata().text(kTemplate);
  const auto with_tools = file.metadata().text("tokenizer.chat_template.tool_use");
  if (usual && !with_tools) root["chat_template"] = *usual;
  if (usual && with_tools)
    root["chat_template"] = Json::array({Json{{"name", "default"}, {"template", *usual}},
                                         Json{{"name", "tool_use"}, {"template", *with_tools}}});
  return printed(file, root);
}

}  // namespace hocket
