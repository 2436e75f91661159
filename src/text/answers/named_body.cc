// Reads calls as newer Mistral models write them behind [TOOL_CALLS]: f[ARGS]{"a": 1}, perhaps with
// [CALL_ID]... before [ARGS], perhaps without [ARGS].
#include <utility>

#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/json_call.h"
#include "text/answers/json_copier.h"

namespace hocket {
namespace {

constexpr std::string_view kArgs = "[ARGS]", kCallId = "[CALL_ID]";

class NamedBody final : public CallBody {
 public:
  explicit NamedBody(CallContext context) : writer_(context.writer), tools_(context.tools) {}

  Step step(char c) override {
    switch (at_) {
      case State::name:
        if (c != '[' && c != '{' && c != '\n') {
          name_ += c;
          return name_.size() > kMaxCallNameBytes ? fail("its name does not end") : Step::more;
        }
        name_ = std::string(trimmed(name_));
        if (name_.empty()) return fail("its name is empty");
        at_ = State::mark;
        return step(c);
      case State::mark:
        return take_mark(c);
      case State::id:
        if (c == '[') {
          at_ = State::mark;
          return take_mark(c);
        }
        return ++num_id_ > kMaxCallNameBytes ? fail("its id does not end") : Step::more;
      case State::arguments:
        return take_arguments(c);
    }
    return Step::more;
  }
  bool finish() override { return false; }

 private:
  enum class State : uint8_t { name, mark, id, arguments };

  Step take_mark(char c) {
    if (held_.empty() && is_blank(c)) return Step::more;
    if (held_.empty() && c == '{') {
      if (!is_known(tools_, name_))
        writer_->warn("a call names a function that is none of the tools");
      writer_->begin(name_);
      at_ = State::arguments;
      return take_arguments(c);
    }
    held_ += c;
    if (held_ == kArgs || held_ == kCallId) {
      at_ = held_ == kArgs ? State::mark : State::id;
      held_.clear();
      return Step::more;
    }
    if (kArgs.starts_with(held_) || kCallId.starts_with(held_)) return Step::more;
    return fail("no arguments follow its name");
  }

  Step take_arguments(char c) {
    std::string out;
    const auto step = copier_.step(c, out);
    if (step == JsonCopier::Step::wrong) return fail("its JSON is broken");
    writer_->arguments(out);
    if (step == JsonCopier::Step::more) return Step::more;
    writer_->end();
    return Step::done;
  }

  EventWriter* writer_;
  std::span<const Tool> tools_;
  State at_ = State::name;
  std::string name_, held_;
  size_t num_id_ = 0;
  JsonCopier copier_;
};

}  // namespace

std::unique_ptr<CallBody> make_named_body(CallContext context) {
  return std::make_unique<NamedBody>(context);
}

}  // namespace hocket
