// Turns the token ids of one answer into text, piece by piece, for streaming. Whole characters are
// sent as soon as they are complete, U+FFFD as soon as bytes cannot become a character (one for
// each maximal invalid part). The pieces join to exactly Tokenizer::decode. A skipped special token
// does not break a character apart. Owner: one running answer. Thread: one at a time. A step
// allocates nothing once warm.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokens/tokenizer.h"

struct HkDetok;

namespace hocket {

// Turns bytes into whole UTF-8 characters.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // an incomplete character becomes one U+FFFD

 private:
  void push(uint8_t byte, std::string& out);
  bool begins_surrogate(uint8_t byte) const;

  std::array<char, 4> pending_{};
  uint8_t len_ = 0, want_ = 0;        // bytes held, and bytes of the whole character
  uint8_t low_ = 0x80, high_ = 0xBF;  // range of the next byte
};

class Detokenizer {
 public:
  // `shown_specials`: special tokens that become text even if others are skipped; must outlive this
  // object.
  Detokenizer(const Tokenizer& tokenizer, SpecialTokens special,
              std::span<const TokenId> shown_specials = {});

  // Returns the text that became certain with this token; valid until the next call.
  std::string_view step(TokenId id);
  // Returns the text that was still held; afterwards the detokenizer is in its first state.
  std::string_view flush();

 private:
  struct Free {
    void operator()(HkDetok* d) const;
  };
  void restart_library();
  bool is_shown(TokenId id) const;

  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  std::span<const TokenId> shown_specials_;
  Utf8Stream utf8_;
  std::unique_ptr<HkDetok, Free> library_;  // null if tokens are plain bytes
  std::string out_;
};

}  // namespace hocket
