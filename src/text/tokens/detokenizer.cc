#include "text/tokens/detokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "text/tokens/rust.h"

namespace hocket {

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) push(static_cast<uint8_t>(c), out);
}

// Follows the table of well-formed sequences: Unicode Standard, section 3.9, table 3-7.
void Utf8Stream::push(uint8_t byte, std::string& out) {
  if (want_ > 0 && (byte < low_ || byte > high_)) {
    if (begins_surrogate(byte)) {
      len_ = 2;
      low_ = 1, high_ = 0;
      return;
    }
    flush(out);
  }
  if (want_ == 0) {
    if (byte < 0x80) {
      out += static_cast<char>(byte);
      return;
    }
    if (byte < 0xC2 || byte > 0xF4) {
      out += kReplacement;
      return;
    }
    want_ = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    pending_[0] = static_cast<char>(byte);
    len_ = 1;
    return;
  }
  pending_[len_++] = static_cast<char>(byte);
  low_ = 0x80;
  high_ = 0xBF;
  if (len_ == want_) {
    out.append(pending_.data(), len_);
    len_ = want_ = 0;
  }
}

// ED A0..BF is half of a UTF-16 pair. Python's incremental decoder, the reference, sends its two
// U+FFFD only with the next byte.
bool Utf8Stream::begins_surrogate(uint8_t byte) const {
  return len_ == 1 && pending_[0] == '\xED' && byte >= 0xA0 && byte <= 0xBF;
}

void Utf8Stream::flush(std::string& out) {
  const bool surrogate = want_ > 0 && low_ > high_;
  if (want_ > 0) out += kReplacement;
  if (surrogate) out += kReplacement;
  len_ = want_ = 0;
}

void Detokenizer::Free::operator()(HkDetok* d) const {
  hk_detok_free(d);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, SpecialTokens special,
                         std::span<const TokenId> shown_specials)
    : tokenizer_(&tokenizer), special_(special), shown_specials_(shown_specials) {
  if (!tokenizer.byte_exact()) restart_library();
  out_.reserve(64);
}

void Detokenizer::restart_library() {
  HkDetok* d = nullptr;
  HOCKET_CHECK(hk_detok_new(tokenizer_->handle(), special_ == SpecialTokens::skip, &d) == 0);
  library_.reset(d);
}

bool Detokenizer::is_shown(TokenId id) const {
  return !shown_specials_.empty() &&
         std::ranges::find(shown_specials_, id) != shown_specials_.end();
}

std::string_view Detokenizer::step(TokenId id) {
  out_.clear();
  if (!library_) {
    const bool skipped =
        special_ == SpecialTokens::skip && tokenizer_->is_special(id) && !is_shown(id);
    if (!skipped) utf8_.push(tokenizer_->token_bytes(id), out_);
    return out_;
  }
  if (special_ == SpecialTokens::skip && is_shown(id)) {
    // The library would skip this token. Its held text comes first, and it starts again behind the
    // token.
    std::string text(flush());
    restart_library();
    return out_ = text.append(tokenizer_->token_bytes(id));
  }
  const auto raw = static_cast<uint32_t>(value(id));
  rust::Buffer text;
  if (hk_detok_step(library_.get(), raw, text.out()) == 0) return out_ = text.text();
  // The library keeps failing once its window does not fit, so start it again from this token.
  restart_library();
  rust::Buffer again;
  if (hk_detok_step(library_.get(), raw, again.out()) == 0) out_ = again.text();
  return out_;
}

std::string_view Detokenizer::flush() {
  out_.clear();
  if (!library_) {
    utf8_.flush(out_);
    return out_;
  }
  rust::Buffer rest;
  if (hk_detok_flush(library_.get(), rest.out()) == 0) out_ = rest.text();
  return out_;
}

}  // namespace hocket
