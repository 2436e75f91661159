// Reads calls as DeepSeek writes them. V3 and R1:
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//   ```json
//   {"a": 1}
//   ```<｜tool▁call▁end｜> ... <｜tool▁calls▁end｜>
//
// V3.1: ...<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>... Both forms are read
// whichever format is chosen, because the text after the separator shows which it is.
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

constexpr std::string_view kBeginAll = "<｜tool▁calls▁begin｜>", kEndAll = "<｜tool▁calls▁end｜>",
                           kBegin = "<｜tool▁call▁begin｜>", kEnd = "<｜tool▁call▁end｜>",
                           kSeparator = "<｜tool▁sep｜>";

class DeepseekReader final : public CallReader {
 public:
  explicit DeepseekReader(CallContext context)
      : context_(context), prose_(context.writer, {kBeginAll, kBegin}), separator_({kSeparator}) {}

  void step(char c) override {
    if (at_ != At::prose && writer().num_kept() >= AnswerParser::kHeldMax)
      return give_up(c, "it is too long");
    switch (at_) {
      case At::prose:
        return take_prose(c);
      case At::section:
        return take_section(c);
      case At::head:
        return take_head(c);
      case At::name:
        return take_name(c);
      case At::fence:
        if (c == '{') return begin_arguments(c);
        if (!is_blank(c) && !std::string_view("`json").contains(c))
          return give_up(c, "no arguments follow its name");
        return writer().keep(c);
      case At::arguments:
        return take_arguments(c);
      case At::tail:
        return take_tail(c);
    }
  }

  void finish() override {
    prose_.finish();
    if (at_ == At::section && later_) return;
    if (at_ == At::prose || at_ == At::tail) return;
    writer().broken("the answer ends within it");
  }

 private:
  enum class At : uint8_t { prose, section, head, name, fence, arguments, tail };

  EventWriter& writer() { return *context_.writer; }

  void go(At at) {
    at_ = at;
    held_.clear();
  }

  void give_up(char c, std::string_view why) {
    writer().broken(why);
    separator_ = MarkFinder({kSeparator});
    go(At::prose);
    take_prose(c);
  }

  void take_prose(char c) {
    const std::string_view mark = prose_.step(c);
    if (mark.empty()) return;
    writer().open(mark);
    later_ = false;
    go(mark == kBegin ? At::head : At::section);
  }

  // Takes a byte before the first call, between two calls, or after the last.
  void take_section(char c) {
    if (held_.empty() && is_blank(c)) return writer().keep(c);
    held_ += c;
    if (held_ == kEndAll) {
      writer().open("");
      return go(At::prose);
    }
    const bool begins = held_ == kBegin;
    if (begins || kBegin.starts_with(held_) || kEndAll.starts_with(held_)) {
      writer().keep(c);
      if (begins) go(At::head);
      return;
    }
    if (!later_) return give_up(c, "no call follows the mark");
    writer().abandon();
    go(At::prose);
    take_prose(c);
  }

  // Takes the name of the function, or the word "function".
  void take_head(char c) {
    const int mark = separator_.step(c, held_);
    writer().keep(c);
    if (held_.size() > kCallNameBytesMax) return give_up_kept("a name in it does not end");
    if (mark == MarkFinder::kNone) return;
    name_ = trimmed(held_);
    go(At::name);
  }

  // Takes the name if the head was the word "function"; else the arguments begin.
  void take_name(char c) {
    if (held_.empty() && is_blank(c)) return writer().keep(c);
    const bool ends = c == '\n' || c == '`' || c == '{';
    if (!ends) {
      held_ += c;
      writer().keep(c);
      if (held_.size() > kCallNameBytesMax) give_up_kept("a name in it does not end");
      return;
    }
    if (!held_.empty()) name_ = trimmed(held_);
    go(At::fence);
    step(c);
  }

  void begin_arguments(char c) {
    if (name_.empty()) return give_up(c, "its name is empty");
    if (!is_known(context_.tools, name_))
      writer().warn("a call names a function that is none of the tools");
    writer().begin(name_);
    copier_ = JsonCopier();
    go(At::arguments);
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
    go(At::tail);
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
    if (kEnd.starts_with(rest) && rest != kEnd) return;
    const std::string again = rest == kEnd ? "" : std::exchange(held_, {});
    writer().open("");
    later_ = true;
    go(At::section);
    for (const char r : again) step(r);
  }

  void give_up_kept(std::string_view why) {
    writer().broken(why);
    separator_ = MarkFinder({kSeparator});
    go(At::prose);
  }

  CallContext context_;
  At at_ = At::prose;
  ProseScan prose_;
  MarkFinder separator_;
  std::string held_;      // an incomplete mark or name
  size_t num_loose_ = 0;  // in the tail: blanks and backticks at the beginning of held_
  std::string name_;
  bool later_ = false;  // true: a call of this section is whole
  JsonCopier copier_;
};

}  // namespace

std::unique_ptr<CallReader> make_deepseek_reader(CallContext context) {
  return std::make_unique<DeepseekReader>(context);
}

}  // namespace hocket
