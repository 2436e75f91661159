// Reads calls as GLM writes them:
//
//   <tool_call>f
//   <arg_key>a</arg_key>
//   <arg_value>value</arg_value>
//   </tool_call>
//
// GLM 4.5 writes the line ends, GLM 4.7 does not; both are read whichever format is chosen.
// An end mark inside a value is part of its text (value_end.h).
#include <utility>

#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/mark_finder.h"
#include "text/answers/typed_arguments.h"
#include "text/answers/value_end.h"

namespace hocket {
namespace {

constexpr std::string_view kKey = "<arg_key>", kEndKey = "</arg_key>", kValue = "<arg_value>",
                           kEndValue = "</arg_value>";

class ArgKeyBody final : public CallBody {
 public:
  explicit ArgKeyBody(CallContext context)
      : arguments_(context, ValueKinds::any()),
        key_end_({kEndKey}),
        value_end_({kEndValue}),
        end_({kKey, kEndCallMark}) {}

  Step step(char c) override {
    switch (at_) {
      case State::name:
        return take_name(c);
      case State::between:
        return take_mark(c, {kKey, kEndCallMark});
      case State::gap:
        return take_mark(c, {kValue, kValue});
      case State::key:
        if (key_end_.step(c, held_) == MarkFinder::kNone)
          return held_.size() > kMaxCallNameBytes ? fail("a name in it does not end") : Step::more;
        key_ = trimmed(held_);
        if (key_.empty()) return fail("an argument has no name");
        go(State::gap);
        return Step::more;
      case State::value:
        return take_value(c);
      case State::ending:
        return take_end(c);
    }
    return Step::more;
  }
  // More arguments might have followed, so the call is not whole.
  bool finish() override { return false; }

 private:
  enum class State : uint8_t { name, between, key, gap, value, ending };

  void go(State at) {
    at_ = at;
    held_.clear();
  }

  Step take_name(char c) {
    if (c != '\n' && c != '<') {
      held_ += c;
      return held_.size() > kMaxCallNameBytes ? fail("a name in it does not end") : Step::more;
    }
    if (!arguments_.begin(trimmed(held_))) return fail("its name is none");
    go(State::between);
    return step(c);
  }

  Step take_mark(char c, std::pair<std::string_view, std::string_view> either) {
    if (held_.empty() && is_blank(c)) return Step::more;
    held_ += c;
    if (held_ == kEndCallMark) return arguments_.end(), Step::done;
    if (held_ == kKey) return go(State::key), Step::more;
    if (held_ == kValue) {
      arguments_.key(key_);
      return go(State::value), Step::more;
    }
    if (either.first.starts_with(held_) || either.second.starts_with(held_)) return Step::more;
    return fail("something that is no argument follows its name, or no value a key");
  }

  Step take_value(char c) {
    std::string free;
    const int mark = value_end_.step(c, free);
    add(free);
    if (mark == MarkFinder::kNone) return Step::more;
    end_.begin(kEndValue);
    at_ = State::ending;
    return Step::more;
  }

  Step take_end(char c) {
    const ValueEnd::Step taken = end_.step(c);
    if (taken == ValueEnd::Step::more) return Step::more;
    if (taken == ValueEnd::Step::text) {
      at_ = State::value;
      add(end_.mark());
      for (const char again : end_.behind()) step(again);
      return Step::more;
    }
    if (arguments_.is_text())
      arguments_.end_text();
    else
      arguments_.value(held_);
    if (end_.follower() == kKey) return go(State::key), Step::more;
    arguments_.end();
    return Step::done;
  }

  void add(std::string_view text) {
    if (!arguments_.is_text())
      held_ += text;
    else if (!text.empty())
      arguments_.text(text);
  }

  TypedArguments arguments_;
  State at_ = State::name;
  MarkFinder key_end_, value_end_;
  ValueEnd end_;
  std::string held_;  // text of an incomplete name or mark, or of a value that must be whole
  std::string key_;
};

}  // namespace

std::unique_ptr<CallBody> make_arg_key_body(CallContext context) {
  return std::make_unique<ArgKeyBody>(context);
}

}  // namespace hocket
