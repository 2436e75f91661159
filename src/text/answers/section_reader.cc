// Reads families that put calls into a section. DeepSeek V3 and R1:
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//   ```json
//   {"a": 1}
//   ```<｜tool▁call▁end｜> ... <｜tool▁calls▁end｜>
//
// V3.1: ...<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>... Both forms are read
// whichever format is chosen, because the text after the separator shows which it is.
//
// Kimi K2: <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>
// {"a": 1}<|tool_call_end|> ... <|tool_calls_section_end|>, where 0 counts the conversation's
// calls.
#include <utility>

#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"
#include "text/answers/call_reader.h"
#include "text/answers/json_call.h"
#include "text/answers/json_copier.h"
#include "text/answers/mark_finder.h"
#include "text/answers/prose_scan.h"

namespace hocket {
namespace {

struct SectionMarks {
  std::string_view begin_all, begin, separator, end, end_all;
};

constexpr SectionMarks kDeepseekMarks = {.begin_all = "<｜tool▁calls▁begin｜>",
                                         .begin = "<｜tool▁call▁begin｜>",
                                         .separator = "<｜tool▁sep｜>",
                                         .end = "<｜tool▁call▁end｜>",
                                         .end_all = "<｜tool▁calls▁end｜>"};
constexpr SectionMarks kKimiMarks = {.begin_all = "<|tool_calls_section_begin|>",
                                     .begin = "<|tool_call_begin|>",
                                     .separator = "<|tool_call_argument_begin|>",
                                     .end = "<|tool_call_end|>",
                                     .end_all = "<|tool_calls_section_end|>"};

// Returns the name in "functions.f:0"; the prefix and the number may be missing.
std::string_view name_in_id(std::string_view id) {
  constexpr std::string_view kPrefix = "functions.";
  if (id.starts_with(kPrefix)) id.remove_prefix(kPrefix.size());
  const size_t last = id.find_last_not_of("0123456789");
  return last != id.npos && id[last] == ':' ? id.substr(0, last) : id;
}

class SectionReader final : public CallReader {
 public:
  SectionReader(ToolFormat format, CallContext context)
      : ids_(format == ToolFormat::kimi_k2),
        marks_(ids_ ? kKimiMarks : kDeepseekMarks),
        context_(context),
        prose_(context.writer, {marks_.begin_all, marks_.begin}),
        separator_({marks_.separator}) {}

  void step(char c) override {
    if (at_ != State::prose && writer().num_kept() >= AnswerParser::kMaxHeld)
      return give_up(c, "it is too long");
    switch (at_) {
      case State::prose:
        return take_prose(c);
      case State::section:
        return take_section(c);
      case State::head:
        return take_head(c);
      case State::name:
        return take_name(c);
      case State::fence:
        if (c == '{') return begin_arguments(c);
        if (!is_blank(c) && (ids_ || !std::string_view("`json").contains(c)))
          return give_up(c, "no arguments follow its name");
        return writer().keep(c);
      case State::arguments:
        return take_arguments(c);
      case State::tail:
        return take_tail(c);
    }
  }

  void finish() override {
    prose_.finish();
    if (at_ == State::section && later_) return;
    if (at_ == State::prose || at_ == State::tail) return;
    writer().broken("the answer ends within it");
  }

 private:
  enum class State : uint8_t { prose, section, head, name, fence, arguments, tail };

  EventWriter& writer() { return *context_.writer; }

  void go(State at) {
    at_ = at;
    held_.clear();
  }

  void give_up(char c, std::string_view why) {
    writer().broken(why);
    separator_ = MarkFinder({marks_.separator});
    go(State::prose);
    take_prose(c);
  }

  void take_prose(char c) {
    const std::string_view mark = prose_.step(c);
    if (mark.empty()) return;
    writer().open(mark);
    later_ = false;
    go(mark == marks_.begin ? State::head : State::section);
  }

  // Takes a byte before the first call, between two calls, or after the last.
  void take_section(char c) {
    if (held_.empty() && is_blank(c)) return writer().keep(c);
    held_ += c;
    if (held_ == marks_.end_all) {
      writer().open("");
      return go(State::prose);
    }
    const bool begins = held_ == marks_.begin;
    if (begins || marks_.begin.starts_with(held_) || marks_.end_all.starts_with(held_)) {
      writer().keep(c);
      if (begins) go(State::head);
      return;
    }
    if (!later_) return give_up(c, "no call follows the mark");
    writer().abandon();
    go(State::prose);
    take_prose(c);
  }

  // Takes the name of the function, the id with the name in it, or the word "function".
  void take_head(char c) {
    const int mark = separator_.step(c, held_);
    writer().keep(c);
    if (held_.size() > kMaxCallNameBytes) return give_up_kept("a name in it does not end");
    if (mark == MarkFinder::kNone) return;
    name_ = ids_ ? name_in_id(trimmed(held_)) : trimmed(held_);
    go(ids_ ? State::fence : State::name);
  }

  // Takes the name if the head was the word "function"; else the arguments begin.
  void take_name(char c) {
    if (held_.empty() && is_blank(c)) return writer().keep(c);
    const bool ends = c == '\n' || c == '`' || c == '{';
    if (!ends) {
      held_ += c;
      writer().keep(c);
      if (held_.size() > kMaxCallNameBytes) give_up_kept("a name in it does not end");
      return;
    }
    if (!held_.empty()) name_ = trimmed(held_);
    go(State::fence);
    step(c);
  }

  void begin_arguments(char c) {
    if (name_.empty()) return give_up(c, "its name is empty");
    if (!is_known(context_.tools, name_))
      writer().warn("a call names a function that is none of the tools");
    writer().begin(name_);
    copier_ = JsonCopier();
    go(State::arguments);
    take_arguments(c);
  }

  void take_arguments(char c) {
    std::string out;
    const auto step = copier_.step(c, out);
    if (step == JsonCopier::Step::wrong) return give_up(c, "its JSON is broken");
    writer().keep(c);
    writer().arguments(out);
    if (step != JsonCopier::Step::done) return;
    writer().end();
    go(State::tail);
    num_loose_ = 0;
  }

  // Takes the end of the fence and the end mark, both of which may be missing.
  void take_tail(char c) {
    held_ += c;
    if (num_loose_ + 1 == held_.size() && (is_blank(c) || c == '`')) {
      ++num_loose_;
      return;
    }
    const std::string_view rest = std::string_view(held_).substr(num_loose_);
    if (marks_.end.starts_with(rest) && rest != marks_.end) return;
    const std::string again = rest == marks_.end ? "" : std::exchange(held_, {});
    writer().open("");
    later_ = true;
    go(State::section);
    for (const char r : again) step(r);
  }

  void give_up_kept(std::string_view why) {
    writer().broken(why);
    separator_ = MarkFinder({marks_.separator});
    go(State::prose);
  }

  bool ids_;  // true: names are in ids, and arguments behind the separator at once
  SectionMarks marks_;
  CallContext context_;
  State at_ = State::prose;
  ProseScan prose_;
  MarkFinder separator_;
  std::string held_;      // an incomplete mark or name
  size_t num_loose_ = 0;  // in the tail: blanks and backticks at the beginning of held_
  std::string name_;
  bool later_ = false;  // true: a call of this section is whole
  JsonCopier copier_;
};

}  // namespace

std::unique_ptr<CallReader> make_section_reader(ToolFormat format, CallContext context) {
  return std::make_unique<SectionReader>(format, context);
}

}  // namespace hocket
