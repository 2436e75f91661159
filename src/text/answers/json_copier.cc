#include "text/answers/json_copier.h"

#include <fmt/core.h>

#include <charconv>

#include "text/answers/blank.h"

namespace hocket {
namespace {

constexpr std::string_view kEscapedReplacement = "\\ufffd";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

JsonCopier::Step JsonCopier::step(char c, std::string& out) {
  switch (at_) {
    case State::string:
      return take_string(c, out);
    case State::escape:
      return take_escape(c, out);
    case State::unicode:
      return take_unicode(c, out);
    case State::number:
      return take_number(c, out);
    case State::word:
      if (c != word_.front()) return Step::wrong;
      out += c;
      word_.remove_prefix(1);
      return word_.empty() ? end_value() : Step::more;
    case State::end:
      return Step::wrong;
    default:
      break;
  }
  if (is_blank(c)) {
    if (!open_.empty()) out += c;
    return Step::more;
  }
  switch (at_) {
    case State::first_item:
      if (c == ']') return take_after(c, out);
      return begin_value(c, out);
    case State::first_key:
      if (c == '}') return take_after(c, out);
      [[fallthrough]];
    case State::key:
      if (c != '"') return Step::wrong;
      in_key_ = true;
      at_ = State::string;
      out += c;
      return Step::more;
    case State::colon:
      if (c != ':') return Step::wrong;
      at_ = State::value;
      out += c;
      return Step::more;
    case State::after:
      return take_after(c, out);
    default:
      return begin_value(c, out);
  }
}

JsonCopier::Step JsonCopier::begin_value(char c, std::string& out) {
  out += c;
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == kMaxDepth) return Step::wrong;
      open_.push_back(c);
      at_ = c == '{' ? State::first_key : State::first_item;
      return Step::more;
    case '"':
      in_key_ = false;
      at_ = State::string;
      return Step::more;
    case 't':
      word_ = "rue";
      break;
    case 'f':
      word_ = "alse";
      break;
    case 'n':
      word_ = "ull";
      break;
    default:
      if (c != '-' && !is_digit(c)) return Step::wrong;
      digits_ = c == '-' ? Digits::sign : c == '0' ? Digits::zero : Digits::whole;
      at_ = State::number;
      return Step::more;
  }
  at_ = State::word;
  return Step::more;
}

JsonCopier::Step JsonCopier::end_value() {
  at_ = open_.empty() ? State::end : State::after;
  return open_.empty() ? Step::done : Step::more;
}

// Takes a comma or an end, inside an object or a list.
JsonCopier::Step JsonCopier::take_after(char c, std::string& out) {
  const bool in_object = open_.back() == '{';
  if (c == ',') {
    at_ = in_object ? State::key : State::value;
  } else if (c == (in_object ? '}' : ']')) {
    open_.pop_back();
    out += c;
    return end_value();
  } else {
    return Step::wrong;
  }
  out += c;
  return Step::more;
}

JsonCopier::Step JsonCopier::take_string(char c, std::string& out) {
  if (c == '\\') {
    at_ = State::escape;
    return Step::more;
  }
  settle_high(out);
  if (static_cast<unsigned char>(c) < 0x20) {
    repaired_ = true;
    out += c == '\n'   ? "\\n"
           : c == '\t' ? "\\t"
           : c == '\r' ? "\\r"
                       : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    return Step::more;
  }
  out += c;
  if (c != '"') return Step::more;
  if (!in_key_) return end_value();
  at_ = State::colon;
  return Step::more;
}

JsonCopier::Step JsonCopier::take_escape(char c, std::string& out) {
  if (c == 'u') {
    escape_ = "\\u";
    at_ = State::unicode;
    return Step::more;
  }
  at_ = State::string;
  settle_high(out);
  if (std::string_view("\"\\/bfnrt").contains(c)) {
    out += '\\';
    out += c;
    return Step::more;
  }
  repaired_ = true;
  if (c == '\'') {
    out += c;
    return Step::more;
  }
  out += "\\\\";
  return take_string(c, out);
}

JsonCopier::Step JsonCopier::take_unicode(char c, std::string& out) {
  escape_ += c;
  if (escape_.size() < 6) return Step::more;
  unsigned unit = 0;
  const auto [end, code] =
      std::from_chars(escape_.data() + 2, escape_.data() + escape_.size(), unit, 16);
  if (code != std::errc() || end != escape_.data() + escape_.size()) return Step::wrong;
  at_ = State::string;
  const bool is_high = unit >= 0xD800 && unit < 0xDC00, is_low = unit >= 0xDC00 && unit < 0xE000;
  if (is_low && !high_.empty()) {
    out += high_ + escape_;
    high_.clear();
    return Step::more;
  }
  settle_high(out);
  if (is_high) {
    high_ = escape_;
  } else if (is_low) {
    repaired_ = true;
    out += kEscapedReplacement;
  } else {
    out += escape_;
  }
  return Step::more;
}

// Replaces half of a surrogate pair that was left alone.
void JsonCopier::settle_high(std::string& out) {
  if (high_.empty()) return;
  repaired_ = true;
  out += kEscapedReplacement;
  high_.clear();
}

bool JsonCopier::number_may_end() const {
  return digits_ == Digits::zero || digits_ == Digits::whole || digits_ == Digits::fraction ||
         digits_ == Digits::exponent;
}

JsonCopier::Step JsonCopier::take_number(char c, std::string& out) {
  const auto go = [&](Digits next) {
    digits_ = next;
    out += c;
    return Step::more;
  };
  const bool digit = is_digit(c);
  switch (digits_) {
    case Digits::sign:
      if (digit) return go(c == '0' ? Digits::zero : Digits::whole);
      return Step::wrong;
    case Digits::whole:
      if (digit) return go(Digits::whole);
      [[fallthrough]];
    case Digits::zero:
      if (c == '.') return go(Digits::point);
      if (c == 'e' || c == 'E') return go(Digits::e);
      break;
    case Digits::point:
    case Digits::fraction:
      if (digit) return go(Digits::fraction);
      if (digits_ == Digits::fraction && (c == 'e' || c == 'E')) return go(Digits::e);
      break;
    case Digits::e:
      if (c == '+' || c == '-') return go(Digits::e_sign);
      [[fallthrough]];
    case Digits::e_sign:
    case Digits::exponent:
      if (digit) return go(Digits::exponent);
      break;
  }
  if (!number_may_end()) return Step::wrong;
  if (open_.empty()) {
    at_ = State::end;
    return Step::over;
  }
  at_ = State::after;
  return step(c, out);
}

bool JsonCopier::whole() const {
  return at_ == State::end || (at_ == State::number && open_.empty() && number_may_end());
}

}  // namespace hocket
