// Token ids of one answer to text, piece by piece, for streaming.
// Rule: whole characters as soon as they are complete; U+FFFD as soon as bytes cannot become one
// (one for each maximal invalid part); the pieces join to exactly Tokenizer::decode. A skipped
// special token does not break a character apart.
// Owner: one running answer. Thread: one at a time. A step allocates nothing once warm.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"

struct HkDetok;

namespace hocket {

// Bytes to whole UTF-8 characters.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // what is cut off becomes one U+FFFD

 private:
  void push(uint8_t byte, std::string& out);
  bool begins_surrogate(uint8_t byte) const;

  std::array<char, 4> pending_{};
  uint8_t len_ = 0, want_ = 0;        // bytes held, bytes of the whole character
  uint8_t low_ = 0x80, high_ = 0xBF;  // what the next byte may be
};

class Detokenizer {
 public:
  // `kept`: special tokens that are text though the others are skipped; outlives this.
  Detokenizer(const Tokenizer& tokenizer, SpecialTokens special,
              std::span<const TokenId> kept = {});

  // The text that became certain with this token; valid until the next call.
  std::string_view step(TokenId id);
  // What was still held back; afterwards the detokenizer is as new.
  std::string_view flush();

 private:
  struct Free {
    void operator()(HkDetok* d) const;
  };
  void restart_library();
  bool keeps(TokenId id) const;

  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  std::span<const TokenId> kept_;
  Utf8Stream utf8_;
  std::unique_ptr<HkDetok, Free> library_;  // only where tokens are not plain bytes
  std::string out_;
};

}  // namespace hocket
