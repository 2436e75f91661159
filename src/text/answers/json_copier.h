// Checks one JSON value byte by byte and copies it as JSON that every parser reads. Two mistakes
// that models make are repaired: control characters and unknown escapes inside strings (a raw line
// end becomes \n, \d becomes \\d), and halves of surrogate pairs (they become \ufffd).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class JsonCopier {
 public:
  static constexpr size_t kMaxDepth = 64;

  enum class Step : uint8_t {
    more,   // the byte was taken
    done,   // the byte was the value's last
    over,   // the value (a number) had ended before this byte, which was not taken
    wrong,  // not JSON; the copier cannot be used any more
  };
  // Takes the next byte; skips leading blanks. Text that is certain is appended to `out`.
  Step step(char c, std::string& out);
  // Call when the text has ended. Returns true if the value is whole; a number is known to be whole
  // only then.
  bool whole() const;
  // Returns true if something was repaired.
  bool repaired() const { return repaired_; }

 private:
  enum class State : uint8_t {
    value,       // before a value
    first_item,  // after [
    first_key,   // after {
    key,         // after a comma in an object
    colon,
    after,  // after a value inside an object or a list
    word,   // true, false, null
    number,
    string,
    escape,   // after a backslash
    unicode,  // after \u
    end,
  };
  enum class Digits : uint8_t { sign, zero, whole, point, fraction, e, e_sign, exponent };

  Step begin_value(char c, std::string& out);
  Step end_value();
  Step take_after(char c, std::string& out);
  Step take_string(char c, std::string& out);
  Step take_escape(char c, std::string& out);
  Step take_unicode(char c, std::string& out);
  Step take_number(char c, std::string& out);
  void settle_high(std::string& out);
  bool number_may_end() const;

  State at_ = State::value;
  Digits digits_ = Digits::sign;
  bool in_key_ = false;
  bool repaired_ = false;
  std::vector<char> open_;  // '{' and '[' that are open
  std::string_view word_;   // the rest of true, false or null
  std::string escape_;      // \uXXX so far
  std::string high_;        // \uD83D, which waits for its other half
};

}  // namespace hocket
