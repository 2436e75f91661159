// Reads calls as Gemma 4 writes them between its marks:
//
//   call:f{a:<|"|>text<|"|>,b:3,c:[{d:true}]}
//
// Calls that the model writes like Python, f(a=1, b="text"), and texts without their first mark or
// without both are read, too. A text without marks ends where the next key or the call's end
// follows.
#include <utility>

#include "text/answers/bare_key_value.h"
#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/mark_finder.h"
#include "text/answers/typed_arguments.h"

namespace hocket {
namespace {

constexpr std::string_view kCall = "call:";

bool is_bare_key(std::string_view text) {
  if (text.empty() || text.size() > kMaxCallNameBytes) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && !std::string_view("_-.$").contains(c) && static_cast<unsigned char>(c) < 0x80)
      return false;
  }
  return true;
}

class BareKeyBody final : public CallBody {
 public:
  explicit BareKeyBody(CallContext context)
      : arguments_(context, ValueKinds::any()), finder_({kTextMark, kEndBareKeyCall}) {}

  Step step(char c) override {
    switch (at_) {
      case State::name:
        return take_name(c);
      case State::key:
        return take_key(c);
      case State::begin:
        return take_first(c);
      case State::text:
        return take_text(c);
      case State::nested:
        held_ += c;
        return nested_.step(c) ? end_nested() : Step::more;
      case State::word:
        return take_word(c);
      case State::after:
        return take_after(c);
    }
    return Step::more;
  }
  // More arguments might have followed, so the call is not whole.
  bool finish() override { return false; }

 private:
  enum class State : uint8_t { name, key, begin, text, nested, word, after };

  void go(State at) {
    at_ = at;
    held_.clear();
  }

  Step end_call() {
    arguments_.end();
    return Step::done;
  }

  Step take_name(char c) {
    if (c != '{' && c != '(') {
      held_ += c;
      return held_.size() > kCall.size() + kMaxCallNameBytes ? fail("its name does not end")
                                                             : Step::more;
    }
    std::string_view name = trimmed(held_);
    if (name.starts_with(kCall)) name.remove_prefix(kCall.size());
    if (!arguments_.begin(name)) return fail("its name is none");
    close_ = c == '{' ? '}' : ')';
    go(State::key);
    return Step::more;
  }

  Step take_key(char c) {
    if (c == close_ && trimmed(held_).empty()) return end_call();
    if (c == ':' || c == '=') {
      const auto key = bare_key(held_);
      if (key) return begin_value(*key);
    }
    if (c == close_ && bare_key(held_)) return fail("an argument has no value");
    held_ += c;
    return held_.size() > kMaxCallNameBytes ? fail("a name in it does not end") : Step::more;
  }

  Step begin_value(std::string_view key) {
    if (key.empty()) return fail("an argument has no name");
    arguments_.key(key);
    go(State::begin);
    return Step::more;
  }

  // Takes blanks and perhaps a mark before a value.
  Step take_first(char c) {
    if (held_.empty() && is_blank(c)) return Step::more;
    if (held_.empty() && std::string_view("{[\"'").contains(c)) {
      nested_ = NestedEnd();
      at_ = State::nested;
      return step(c);
    }
    held_ += c;
    if (held_ == kTextMark) return go(State::text), Step::more;
    if (kTextMark.starts_with(held_)) return Step::more;
    const std::string again = std::exchange(held_, {});
    at_ = State::word;
    last_comma_ = std::string::npos;
    Step last = Step::more;
    for (const char one : again) last = step(one);
    return last;
  }

  Step take_text(char c) {
    std::string free;
    const int mark = finder_.step(c, free);
    if (mark == kEndOfCall) free += kEndBareKeyCall;  // no end within a text
    if (!free.empty()) arguments_.text(free);
    if (mark != kMark) return Step::more;
    arguments_.end_text();
    go(State::after);
    return Step::more;
  }

  Step end_nested() {
    if (held_.front() == '{' || held_.front() == '[') {
      const auto json = bare_keys_to_json(held_);
      if (!json) return fail("an argument is no value");
      arguments_.json(*json);
    } else {
      arguments_.json(typed_json(held_, ValueKinds::any()));
    }
    go(State::after);
    return Step::more;
  }

  // Takes a value without marks: a number, a word, or text.
  Step take_word(char c) {
    std::string free;
    const int mark = finder_.step(c, free);
    for (const char one : free)
      if (const Step taken = take_in_word(one); taken != Step::more) return taken;
    if (mark == kMark) {
      arguments_.text(trimmed(held_));
      arguments_.end_text();
      go(State::after);
    } else if (mark == kEndOfCall) {
      arguments_.value(trimmed(held_));
      return end_call();
    }
    return Step::more;
  }

  Step take_in_word(char c) {
    if (c == close_) {
      std::string_view word = trimmed(held_);
      if (word.ends_with(',')) word.remove_suffix(1);
      if (word.empty()) return fail("an argument has no value");
      arguments_.value(trimmed(word));
      return end_call();
    }
    if ((c == ':' || c == '=') && last_comma_ != std::string::npos) {
      const std::string_view all = held_;
      const auto key = bare_key(all.substr(last_comma_ + 1));
      if (key && is_bare_key(*key)) {
        const std::string name(*key);
        const std::string_view word = trimmed(all.substr(0, last_comma_));
        if (word.empty()) return fail("an argument has no value");
        arguments_.value(word);
        return begin_value(name);
      }
    }
    if (c == ',') last_comma_ = held_.size();
    held_ += c;
    return Step::more;
  }

  // Takes the comma or the end behind a value with marks of its own.
  Step take_after(char c) {
    if (held_.empty() && is_blank(c)) return Step::more;
    if (held_.empty() && c == ',') return go(State::key), Step::more;
    if (held_.empty() && c == close_) return end_call();
    held_ += c;
    if (held_ == kEndBareKeyCall) return end_call();
    if (kEndBareKeyCall.starts_with(held_)) return Step::more;
    return fail("no comma follows an argument");
  }

  static constexpr int kMark = 0, kEndOfCall = 1;  // in finder_

  TypedArguments arguments_;
  State at_ = State::name;
  MarkFinder finder_;
  NestedEnd nested_;
  char close_ = '}';
  std::string held_;                       // an incomplete name, mark or value
  size_t last_comma_ = std::string::npos;  // in a word
};

}  // namespace

std::unique_ptr<CallBody> make_bare_key_body(CallContext context) {
  return std::make_unique<BareKeyBody>(context);
}

}  // namespace hocket
