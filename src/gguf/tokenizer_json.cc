#include "gguf/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "gguf/merges.h"
#include "gguf/pre_tokenizers.h"
#include "gguf/token_kinds.h"

namespace hocket {
namespace {

using Json = nlohmann::json;
using Kind = GgufTokenKind;

constexpr std::string_view kSpace = "\u2581", kTypesKey = "tokenizer.ggml.token_type";

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
bool adds_space(const GgufFile& file, const GgufPreTokenizer& pre) {
  return pre.spelling == GgufSpelling::sentencepiece &&
         file.metadata().flag("tokenizer.ggml.add_space_prefix").value_or(true);
}

Json normalizer_json(const GgufFile& file, const GgufPreTokenizer& pre) {
  if (pre.spelling == GgufSpelling::bytes)
    return pre.composes ? Json::object({{"type", "NFC"}}) : Json(nullptr);
  Json steps = Json::array();
  if (adds_space(file, pre)) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(replaced(" ", kSpace));
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json decoder_json(const GgufFile& file, const GgufPreTokenizer& pre) {
  if (pre.spelling == GgufSpelling::bytes) return byte_level();
  Json steps = Json::array({replaced(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (adds_space(file, pre))
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

Json pre_tokenizer_json(const GgufPreTokenizer& pre) {
  if (pre.spelling != GgufSpelling::bytes) return nullptr;
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

bool always_begins_with_bos(const GgufPreTokenizer& pre) {
  return pre.spelling == GgufSpelling::gemma;
}

// Puts bos before every text and eos behind it, as the file asks; null: neither.
Json post_processor_json(const GgufFile& file, const GgufPreTokenizer& pre,
                         std::span<const std::string_view> tokens) {
  Json special = Json::object(), single = Json::array(), sequence;
  sequence["Sequence"] = {{"id", "A"}, {"type_id", 0}};
  const auto add = [&](std::string_view name, bool by_itself) {
    const auto id = id_named(file, name, tokens);
    const auto asked = file.metadata().flag(fmt::format("tokenizer.ggml.add_{}_token", name));
    const bool always = name == "bos" && always_begins_with_bos(pre);
    if (!id || !(always || asked.value_or(by_itself))) return;
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
  std::vector<Kind> kinds;
};

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  auto tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto kinds = metadata.numbers(kTypesKey);
  auto merges = metadata.texts("tokenizer.ggml.merges");
  if (!tokens || tokens->empty()) return bad_tokenizer(file, "the metadata hold no list of tokens");
  if (tokens->size() > kMaxTokens || (merges && merges->size() > kMaxMerges) ||
      std::ranges::any_of(*tokens, [](auto token) { return token.size() > kMaxTokenBytes; }))
    return bad_tokenizer(
        file, fmt::format("the vocabulary is larger than {} tokens of {} bytes and {} merges",
                          kMaxTokens, kMaxTokenBytes, kMaxMerges));
  if (kinds && kinds->size() != tokens->size())
    return bad_tokenizer(file, fmt::format("there are {} tokens, but the kinds of {}",
                                           tokens->size(), kinds->size()));
  std::vector<Kind> all_kinds = gguf_token_kinds(*tokens, kinds ? *kinds : std::vector<double>{});
  return Vocabulary{*std::move(tokens), std::move(merges), std::move(all_kinds)};
}

// The number of tokens that are control tokens here, but not in the file.
size_t num_overruled(const GgufFile& file) {
  const auto all = read_vocabulary(file);
  if (!all) return 0;
  const auto numbers = file.metadata().numbers(kTypesKey);
  size_t count = 0;
  for (size_t id = 0; id < all->kinds.size(); ++id)
    if (all->kinds[id] == Kind::control &&
        (!numbers || (*numbers)[id] != static_cast<double>(Kind::control)))
      ++count;
  return count;
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
std::vector<std::string_view> merged_tokens(const GgufPreTokenizer& pre, const Vocabulary& all) {
  std::vector<std::string_view> tokens = all.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const Kind kind = all.kinds[id];
    const bool merged =
        kind == Kind::normal || (kind == Kind::user_defined && pre.spelling != GgufSpelling::bytes);
    if (!merged) tokens[id] = {};
  }
  return tokens;
}

Result<Json> merges_json(const GgufFile& file, const GgufPreTokenizer& pre, const Vocabulary& all) {
  if (all.merges && pre.spelling != GgufSpelling::sentencepiece) return Json(*all.merges);
  const std::vector<std::string_view> tokens = merged_tokens(pre, all);
  std::optional<std::vector<TokenMerge>> merges;
  if (pre.spelling == GgufSpelling::sentencepiece) {
    const auto scores = file.metadata().numbers("tokenizer.ggml.scores");
    if (!scores || scores->size() != tokens.size() ||
        !std::ranges::all_of(*scores, [](double x) { return std::isfinite(x); }))
      return bad_tokenizer(file, "the metadata hold no list of a score for each token");
    merges = merges_by_score(tokens, *scores, kMaxMerges);
  } else if (pre.name == "kimi-k2") {
    merges = merges_by_order(tokens);
  } else {
    return bad_tokenizer(file, "the metadata hold no list of merges");
  }
  if (!merges)
    return bad_tokenizer(
        file, fmt::format("the tokens are too long to find out how they are merged, or have "
                          "more than {} merges",
                          kMaxMerges));
  Json out = Json::array();
  for (const auto& [left, right] : *merges) out.push_back(Json::array({left, right}));
  return out;
}

Result<Json> model_json(const GgufFile& file, const GgufPreTokenizer& pre, const Vocabulary& all) {
  const bool has_bytes = pre.spelling != GgufSpelling::bytes;
  Json vocab = Json::object();
  for (size_t id = 0; id < all.tokens.size(); ++id) {
    const Kind kind = all.kinds[id];
    if (kind == Kind::normal || kind == Kind::unknown ||
        (has_bytes && (kind == Kind::control || kind == Kind::user_defined || kind == Kind::byte)))
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
  return bad_tokenizer(file, "the tokenizer holds text that is not UTF-8");
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  if (const auto own = file.metadata().text("tokenizer.huggingface.json")) return std::string(*own);
  HOCKET_TRY(const GgufPreTokenizer* const pre, find_gguf_pre_tokenizer(file));
  HOCKET_TRY(const Vocabulary all, read_vocabulary(file));
  Json added = Json::array();
  for (size_t id = 0; id < all.tokens.size(); ++id)
    if (const Kind kind = all.kinds[id]; kind == Kind::control || kind == Kind::user_defined)
      added.push_back({{"id", id},
                       {"content", all.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind == Kind::control}});
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

std::vector<GgufAssumption> gguf_tokenizer_assumptions(const GgufFile& file) {
  constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token", kPre = "tokenizer.ggml.pre";
  std::vector<GgufAssumption> all;
  const auto pre = find_gguf_pre_tokenizer(file);
  if (!pre || file.metadata().has("tokenizer.huggingface.json")) return all;
  if (always_begins_with_bos(**pre) && file.metadata().flag(kAddBos) == false)
    all.push_back({.key = std::string(kAddBos),
                   .from = "false",
                   .to = "true",
                   .why = "texts of Gemma 4 begin with bos, which older files deny"});
  const std::string said(file.metadata().text(kPre).value_or("missing in the file"));
  if ((*pre)->spelling == GgufSpelling::bytes && said != (*pre)->name)
    all.push_back({.key = std::string(kPre),
                   .from = said,
                   .to = std::string((*pre)->name),
                   .why = "the vocabulary is one of a family that has it"});
  if (const size_t overruled = num_overruled(file); overruled > 0)
    all.push_back({.key = std::string(kTypesKey),
                   .from = fmt::format("other kinds of {} tokens", overruled),
                   .to = "control",
                   .why = "their texts end answers, or are marks of Gemma 4"});
  constexpr std::string_view kSuppressed = "tokenizer.ggml.suppress_tokens";
  if (const auto ids = file.metadata().numbers(kSuppressed); ids && !ids->empty())
    all.push_back({.key = std::string(kSuppressed),
                   .from = fmt::format("{} tokens", ids->size()),
                   .to = "ignored",
                   .why = "answers may hold every token, as with the model's folder"});
  return all;
}

}  // namespace hocket
