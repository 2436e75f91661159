// Reads calls as Qwen3-Coder, MiMo and MiniMax write them:
//
//   <function=f>                            <invoke name="f">
//   <parameter=a>                           <parameter name="a">value</parameter>
//   value                                   </invoke>
//   </parameter>
//   </function>
//
// Qwen3-Coder puts line ends around a value, the others do not, and MiMo writes &lt; for <. If the
// model forgot an end mark, the next mark at the beginning of a line ends the value; an end mark
// inside the value is text (value_end.h).
#include <utility>

#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/mark_finder.h"
#include "text/answers/typed_arguments.h"
#include "text/answers/value_end.h"

namespace hocket {
namespace {

constexpr std::string_view kEndParameter = "</parameter>";
constexpr XmlMarks kFunctionMarks = {.function = "<function=",
                                     .parameter = "<parameter=",
                                     .end_function = "</function>",
                                     .end_call = kEndCallMark,
                                     .parameter_line = "\n<parameter=",
                                     .end_function_line = "\n</function>"};
constexpr XmlMarks kInvokeMarks = {.function = "<invoke name=",
                                   .parameter = "<parameter name=",
                                   .end_function = "</invoke>",
                                   .end_call = "</minimax:tool_call>",
                                   .parameter_line = "\n<parameter name=",
                                   .end_function_line = "\n</invoke>"};

std::vector<std::string_view> ends_of_value(ToolFormat format) {
  const XmlMarks& marks = xml_marks(format);
  std::vector<std::string_view> ends = {kEndParameter, marks.parameter_line,
                                        marks.end_function_line};
  if (format == ToolFormat::qwen3_coder) ends.push_back("\n</parameter>");
  return ends;
}

// Returns the name without the quotes that MiniMax puts around it.
std::string_view without_quotes(std::string_view name) {
  for (const char quote : {'"', '\''})
    if (name.size() >= 2 && name.front() == quote && name.back() == quote)
      return name.substr(1, name.size() - 2);
  return name;
}

std::string without_entities(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&lt;", '<'},    {"&gt;", '>'},    {"&quot;", '"'}, {"&#39;", '\''},
      {"&#x27;", '\''}, {"&apos;", '\''}, {"&amp;", '&'}};
  std::string out;
  while (!text.empty()) {
    size_t taken = 0;
    for (const auto& [entity, c] : kEntities) {
      if (!text.starts_with(entity)) continue;
      out += c;
      taken = entity.size();
      break;
    }
    if (taken == 0) out += text[0];
    text.remove_prefix(taken == 0 ? 1 : taken);
  }
  return out;
}

class XmlBody final : public CallBody {
 public:
  XmlBody(ToolFormat format, CallContext context, XmlBegin begin)
      : format_(format),
        marks_(xml_marks(format)),
        arguments_(context, ValueKinds::only_string()),
        at_(begin == XmlBegin::tag ? State::tag : State::name),
        finder_(ends_of_value(format)),
        end_({marks_.parameter, marks_.end_function, marks_.end_call}) {}

  Step step(char c) override {
    switch (at_) {
      case State::tag:
        if (held_.empty() && is_blank(c)) return Step::more;
        held_ += c;
        if (!marks_.function.starts_with(held_)) return fail("no function follows the mark");
        if (held_ == marks_.function) go(State::name);
        return Step::more;
      case State::name:
      case State::key:
        return take_name(c);
      case State::between:
        return take_between(c);
      case State::value:
        return take_value(c);
      case State::ending:
        return take_end(c);
    }
    return Step::more;
  }
  // More values might have followed, so the call is not whole.
  bool finish() override { return false; }

 private:
  enum class State : uint8_t { tag, name, between, key, value, ending };

  void go(State at) {
    at_ = at;
    held_.clear();
  }

  Step take_name(char c) {
    if (c != '>') {
      held_ += c;
      const bool too_long = held_.size() > kMaxCallNameBytes || c == '<';
      return too_long ? fail("a name in it does not end") : Step::more;
    }
    std::string_view name = trimmed(held_);
    if (format_ == ToolFormat::minimax_m2) name = without_quotes(name);
    if (at_ == State::name) {
      if (!arguments_.begin(name)) return fail("its name is none");
      go(State::between);
      return Step::more;
    }
    if (name.empty()) return fail("a parameter has no name");
    arguments_.key(name);
    first_of_value_ = true;
    go(State::value);
    return Step::more;
  }

  Step take_between(char c) {
    if (held_.empty() && is_blank(c)) return Step::more;
    held_ += c;
    if (held_ == marks_.parameter) return go(State::key), Step::more;
    if (held_ == marks_.end_function || held_ == marks_.end_call)
      return arguments_.end(), Step::done;
    for (const std::string_view mark : {marks_.parameter, marks_.end_function, marks_.end_call})
      if (mark.starts_with(held_)) return Step::more;
    return fail("something that is no parameter follows its name");
  }

  Step take_value(char c) {
    if (std::exchange(first_of_value_, false) && c == '\n' && format_ == ToolFormat::qwen3_coder)
      return Step::more;
    std::string free;
    const int mark = finder_.step(c, free);
    add(free);
    if (mark == MarkFinder::kNone) return Step::more;
    const std::string_view found = finder_.mark(mark);
    if (!found.ends_with(kEndParameter)) return end_value(trimmed(found));
    end_.begin(found);
    at_ = State::ending;
    return Step::more;
  }

  Step take_end(char c) {
    const ValueEnd::Step taken = end_.step(c);
    if (taken == ValueEnd::Step::more) return Step::more;
    if (taken == ValueEnd::Step::ends) return end_value(end_.follower());
    at_ = State::value;
    add(end_.mark());
    Step last = Step::more;
    for (const char again : end_.behind()) last = step(again);
    return last;
  }

  // A value of MiMo is needed whole, because it may end with a part of an entity.
  bool streams() const { return arguments_.is_text() && format_ != ToolFormat::mimo; }

  void add(std::string_view text) {
    if (!streams())
      held_ += text;
    else if (!text.empty())
      arguments_.text(text);
  }

  Step end_value(std::string_view follower) {
    if (streams())
      arguments_.end_text();
    else
      arguments_.value(format_ == ToolFormat::mimo ? without_entities(held_) : held_);
    if (follower == marks_.parameter) return go(State::key), Step::more;
    arguments_.end();
    return Step::done;
  }

  ToolFormat format_;
  const XmlMarks& marks_;
  TypedArguments arguments_;
  State at_;
  MarkFinder finder_;
  ValueEnd end_;
  std::string held_;  // text of an incomplete name or mark, or of a value that must be whole
  bool first_of_value_ = false;
};

}  // namespace

const XmlMarks& xml_marks(ToolFormat format) {
  return format == ToolFormat::minimax_m2 ? kInvokeMarks : kFunctionMarks;
}

std::unique_ptr<CallBody> make_xml_body(ToolFormat format, CallContext context, XmlBegin begin) {
  return std::make_unique<XmlBody>(format, context, begin);
}

}  // namespace hocket
