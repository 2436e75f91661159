#include "text/tokens/tokenizer.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"
#include "text/tokens/files.h"
#include "text/tokens/rust.h"

namespace hocket {

namespace {

constexpr TokenId kNoToken{-1};
// Limit of bos_token and the like, which every chat template sees.
constexpr size_t kMaxNamedTokenBytes = 256;
// Up to this size texts are encoded without counting tokens first (check_length()).
constexpr int64_t kShortTextBytes = 64 << 10;

std::string utf8(char32_t c) {
  return {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
          static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
}

Result<std::vector<TokenId>> encode_with(const HkTokenizer* t, std::string_view text,
                                         const HkEncode& how) {
  rust::Buffer ids;
  const int status = hk_encode(t, text.data(), text.size(), &how, ids.out());
  if (status == -1) return fail(ErrorCode::invalid_request, "text: {}", rust::last_error());
  if (status != 0) return fail(ErrorCode::internal, "tokenizer: {}", rust::last_error());
  return ids.values<TokenId>();
}

std::unexpected<Error> too_long(int64_t num_bytes, int64_t bytes, std::string_view made,
                                int64_t most) {
  return fail(error(ErrorCode::context_length_exceeded,
                    "the text has {} bytes, {} of which are {}, and {} tokens have room", num_bytes,
                    bytes, made, most)
                  .with_fix("shorten the text"));
}

}  // namespace

std::string RenderedPrompt::text() const {
  if (mark == 0) return marked;
  const std::string needle = utf8(mark);
  std::string plain;
  plain.reserve(marked.size());
  size_t from = 0;
  for (size_t at; (at = marked.find(needle, from)) != std::string::npos; from = at + 4) {
    plain.append(marked, from, at - from);
  }
  return plain.append(marked, from);
}

void Tokenizer::Free::operator()(HkTokenizer* t) const {
  hk_tokenizer_free(t);
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& model_dir) {
  if (!has_model_file(model_dir, "tokenizer.json")) {
    return fail(error(ErrorCode::no_tokenizer, "{} has no tokenizer.json", model_dir.string())
                    .with_fix("put the model's tokenizer.json there; until then only token ids "
                              "can be sent"));
  }
  HOCKET_TRY(const std::string json,
             read_model_file(model_dir, "tokenizer.json", ErrorCode::bad_tokenizer));
  std::string config;
  if (has_model_file(model_dir, "tokenizer_config.json")) {
    HOCKET_TRY(config,
               read_model_file(model_dir, "tokenizer_config.json", ErrorCode::bad_tokenizer));
  }
  auto tokenizer = from_json(json, config);
  if (!tokenizer) tokenizer.error().message = model_dir.string() + ": " + tokenizer.error().message;
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                       std::string_view config_json) {
  Tokenizer t;
  HkTokenizer* handle = nullptr;
  if (hk_tokenizer_new(tokenizer_json.data(), tokenizer_json.size(), &handle) != 0) {
    return fail(ErrorCode::bad_tokenizer, "tokenizer.json: {}", rust::last_error());
  }
  t.handle_.reset(handle);
  HkVocabulary table{};
  if (hk_tokenizer_vocabulary(handle, &table) != 0) {
    return fail(ErrorCode::bad_tokenizer, "tokenizer.json: {}", rust::last_error());
  }
  rust::Buffer bytes, ends, flags, slow;
  *bytes.out() = table.bytes;
  *ends.out() = table.ends;
  *flags.out() = table.flags;
  t.bytes_ = bytes.text();
  t.ends_ = ends.values<uint32_t>();
  t.flags_ = flags.values<uint8_t>();
  t.byte_exact_ = table.byte_exact;
  if (hk_tokenizer_slow_pattern(handle, slow.out()) == 0) t.slow_pattern_ = slow.text();
  for (int32_t i = 0; i < t.vocab_size(); ++i) {
    if (t.is_known(TokenId{i})) t.spelled_.push_back(TokenId{i});
    if (t.is_special(TokenId{i}) && !t.token_bytes(TokenId{i}).empty())
      t.special_.push_back(TokenId{i});
  }
  std::ranges::stable_sort(t.spelled_, {}, [&](TokenId id) { return t.token_bytes(id); });
  std::ranges::stable_sort(t.special_, std::greater<>(),
                           [&](TokenId id) { return t.token_bytes(id).size(); });
  if (!config_json.empty()) HOCKET_TRY_VOID(t.read_config(config_json));
  return t;
}

Result<void> Tokenizer::read_config(std::string_view json) {
  const auto config = parse_bounded_json<nlohmann::json>(json);
  if (!config.is_object()) {
    return fail(ErrorCode::bad_tokenizer, "tokenizer_config.json is not a JSON object");
  }
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto token = config.find(name);
    if (token == config.end()) continue;
    const auto text =
        token->is_object() && token->contains("content") ? (*token)["content"] : *token;
    if (!text.is_string()) continue;
    if (const size_t bytes = text.get_ref<const std::string&>().size();
        bytes > kMaxNamedTokenBytes) {
      return fail(ErrorCode::bad_tokenizer,
                  "tokenizer_config.json: {} has {} bytes, the limit is {}", name, bytes,
                  kMaxNamedTokenBytes);
    }
    named_.emplace_back(name, text.get<std::string>());
    named_ids_.push_back(find(named_.back().second).value_or(kNoToken));
  }
  const auto add_bos = config.find("add_bos_token");
  add_bos_ = add_bos != config.end() && add_bos->is_boolean() && add_bos->get<bool>();
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  auto ids = encode_with(handle(), text,
                         {.add_special = options.add_special_tokens,
                          .special_as_text = !options.parse_special_tokens,
                          .mark = 0});
  // Some models ask for bos only in tokenizer_config.json.
  if (const auto bos = bos_id(); ids && options.add_special_tokens && add_bos_ && bos) {
    if (ids->empty() || ids->front() != *bos) ids->insert(ids->begin(), *bos);
  }
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode(const RenderedPrompt& prompt) const {
  return encode_with(
      handle(), prompt.marked,
      {.add_special = false, .special_as_text = false, .mark = static_cast<uint32_t>(prompt.mark)});
}

Result<void> Tokenizer::check_size(int64_t num_bytes, int64_t most) {
  const int64_t max_bytes = kMaxBytesPerToken * most + kShortTextBytes;
  if (num_bytes <= max_bytes) return {};
  return too_long(num_bytes, max_bytes, fmt::format("more than {} for a token", kMaxBytesPerToken),
                  most);
}

// A piece makes about as many tokens as it does within the whole text; each border costs a few.
Result<void> Tokenizer::check_length(std::string_view text, int64_t most) const {
  HOCKET_TRY_VOID(check_size(std::ssize(text), most));
  const int64_t piece_bytes = 4 * most + kShortTextBytes;
  if (std::ssize(text) <= piece_bytes) return {};
  int64_t tokens = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.size(), begin + static_cast<size_t>(piece_bytes));
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    HOCKET_TRY(const std::vector<TokenId> ids,
               encode(text.substr(begin, end - begin), {.add_special_tokens = false}));
    tokens += std::ssize(ids);
    if (tokens > 2 * most)
      return too_long(std::ssize(text), static_cast<int64_t>(end), fmt::format("{} tokens", tokens),
                      most);
  }
  return {};
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens special) const {
  rust::Buffer text;
  const auto* raw = reinterpret_cast<const uint32_t*>(ids.data());
  const bool skip = special == SpecialTokens::skip;
  if (hk_decode(handle(), raw, ids.size(), skip, text.out()) != 0) {
    return fail(ErrorCode::internal, "decoding {} tokens: {}", ids.size(), rust::last_error());
  }
  return std::string(text.text());
}

uint8_t Tokenizer::flags(TokenId id) const {
  const auto i = static_cast<uint32_t>(value(id));
  return i < flags_.size() ? flags_[i] : 0;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto i = static_cast<uint32_t>(value(id));
  if (i >= ends_.size()) return {};
  const uint32_t start = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(bytes_).substr(start, ends_[i] - start);
}

std::optional<TokenId> Tokenizer::find(std::string_view spelling) const {
  const auto bytes = [this](TokenId id) { return token_bytes(id); };
  const auto [first, last] = std::ranges::equal_range(spelled_, spelling, {}, bytes);
  std::optional<TokenId> found;
  for (auto id = first; id != last; ++id) {
    if (is_special(*id)) return *id;
    found = *id;
  }
  return found;
}

std::optional<TokenId> Tokenizer::special_at(std::string_view text) const {
  for (const TokenId id : special_)
    if (text.starts_with(token_bytes(id))) return id;
  return std::nullopt;
}

std::optional<TokenId> Tokenizer::id_of(std::string_view name) const {
  for (size_t i = 0; i < named_.size(); ++i) {
    if (named_[i].first == name && named_ids_[i] != kNoToken) return named_ids_[i];
  }
  return std::nullopt;
}

}  // namespace hocket
