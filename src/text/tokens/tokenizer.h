// Converts text to token ids and back, as tokenizer.json says (Hugging Face tokenizers, in rust/).
// Owner: the loader; it outlives every Detokenizer. Thread: any; const calls share it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

struct HkTokenizer;

namespace hocket {

// A chat prompt in which control tokens that the request spelled in its own text are broken by
// one private character, `mark`. Encoding removes the marks and takes those spellings as text.
struct RenderedPrompt {
  std::string marked;
  char32_t mark = 0;  // 0: nothing is marked

  std::string text() const;  // the text as the template wrote it, without marks
};

struct EncodeOptions {
  // Adds bos and the like, as the tokenizer's post-processor says.
  bool add_special_tokens = true;
  bool parse_special_tokens = true;  // "<|im_end|>" in the text is that token, not its letters
};

enum class SpecialTokens : uint8_t { keep, skip };

class Tokenizer {
 public:
  // Reads tokenizer.json and, if present, tokenizer_config.json. Errors: no_tokenizer if
  // tokenizer.json is missing; bad_tokenizer.
  static Result<Tokenizer> load(const std::filesystem::path& model_dir);
  // Loads from the contents of these files; an empty config counts as missing.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view config_json);

  // Errors: invalid_request if the text is not UTF-8, if a pattern of tokenizer.json fails on it or
  // is too slow, or if its normalizers make the text too long.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;
  // Adds no bos, since the prompt holds its own.
  Result<std::vector<TokenId>> encode(const RenderedPrompt& prompt) const;
  // Refuses a text that is far too long before encode() spends time and memory on it: one that
  // makes more than twice `max_tokens` tokens, or has more than kMaxBytesPerToken bytes for each of
  // `max_tokens` tokens. Errors: context_length_exceeded.
  Result<void> check_length(std::string_view text, int64_t max_tokens) const;
  // Checks only the number of bytes, of a text that does not exist yet. Errors: the same.
  static Result<void> check_size(int64_t num_bytes, int64_t max_tokens);
  static constexpr int64_t kMaxBytesPerToken = 32;  // on average; no ordinary text has as many
  // Bytes that are not UTF-8 become U+FFFD; ids outside the vocabulary give no text.
  Result<std::string> decode(std::span<const TokenId> ids, SpecialTokens special) const;

  // Returns a pattern of tokenizer.json that takes quadratic time on some texts, so that long ones
  // may be refused; empty: none was found.
  const std::string& slow_pattern() const { return slow_pattern_; }

  // One past the largest id. The model's vocabulary is often wider.
  int vocab_size() const { return static_cast<int>(flags_.size()); }
  bool is_known(TokenId id) const { return flags(id) & kKnown; }
  bool is_special(TokenId id) const { return flags(id) & kSpecial; }
  // Returns the bytes that this token adds to the output, perhaps part of a character; empty if
  // unknown.
  std::string_view token_bytes(TokenId id) const;
  // Returns true if decoding only joins token_bytes, as for every byte-level vocabulary.
  bool byte_exact() const { return byte_exact_; }
  // Returns the token with this spelling; if several have it, a special one.
  std::optional<TokenId> find(std::string_view spelling) const;
  // Returns the longest control token with which `text` begins.
  std::optional<TokenId> special_at(std::string_view text) const;

  std::optional<TokenId> bos_id() const { return id_of("bos_token"); }
  std::optional<TokenId> eos_id() const { return id_of("eos_token"); }
  // Returns name and text of each token in tokenizer_config.json: {"bos_token", "<s>"}, ...
  const std::vector<std::pair<std::string, std::string>>& named_tokens() const { return named_; }

  const HkTokenizer* handle() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(HkTokenizer* t) const;
  };
  static constexpr uint8_t kKnown = 1, kSpecial = 2;

  Tokenizer() = default;
  Result<void> read_config(std::string_view json);
  uint8_t flags(TokenId id) const;
  std::optional<TokenId> id_of(std::string_view name) const;

  std::unique_ptr<HkTokenizer, Free> handle_;
  std::string bytes_;           // bytes of all tokens, one after the other
  std::vector<uint32_t> ends_;  // token i is bytes_[ends_[i-1], ends_[i])
  std::vector<uint8_t> flags_;
  std::vector<TokenId> special_;  // longer spellings first
  std::vector<TokenId> spelled_;  // known tokens, sorted by spelling, then by id
  std::string slow_pattern_;
  bool byte_exact_ = false;
  bool add_bos_ = false;
  std::vector<std::pair<std::string, std::string>> named_;
  std::vector<TokenId> named_ids_;  // ids of named_; -1 if the vocabulary lacks the text
};

}  // namespace hocket
