// Reads calls as Llama 4 and small Llama 3.2 models write them: [f(a=1, b="x"), g()], at the
// beginning of the answer, or between <|python_start|> and <|python_end|>. An argument is passed on
// when its value is whole. Without a mark it is a call only if a tool has its name.
#include <utility>

#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"
#include "text/answers/call_reader.h"
#include "text/answers/json_call.h"
#include "text/answers/json_pieces.h"
#include "text/answers/prose_scan.h"
#include "text/answers/python_literal.h"

namespace hocket {
namespace {

constexpr std::string_view kPythonStart = "<|python_start|>", kPythonEnd = "<|python_end|>";

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

// Follows a Python expression up to the comma or bracket that ends it.
class ExpressionEnd {
 public:
  // Returns true if the expression ended before this byte.
  bool step(char c) {
    if (quote_ != 0) return in_quotes(c), false;
    if (c == '\'' || c == '"') {
      const bool third = c == closed_ && run_ == 2;
      quote_ = c;
      triple_ = third;
      run_ = third ? 0 : 1;
      begun_ = !third;
      return false;
    }
    closed_ = 0;
    if (depth_ == 0 && (c == ',' || c == ')')) return true;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
    return false;
  }

 private:
  void in_quotes(char c) {
    if (std::exchange(escaped_, false)) {
      run_ = 0;
      begun_ = false;
      return;
    }
    if (c == '\\') {
      escaped_ = true;
      return;
    }
    if (c != quote_) {
      run_ = 0;
      begun_ = false;
      return;
    }
    if (triple_) {
      if (++run_ < 3) return;
      triple_ = false;
      closed_ = 0;
    } else {
      // Two quotes with nothing between: a third opens a long string.
      closed_ = begun_ ? quote_ : '\0';
      run_ = 2;
    }
    quote_ = 0;
  }

  char quote_ = 0;  // the quote around the current string; 0: outside of strings
  bool triple_ = false, escaped_ = false;
  bool begun_ = false;  // true: of the current string only the opening quote has arrived
  char closed_ = 0;     // the quote of an empty string that has just ended; else 0
  int run_ = 0;         // quotes in a row
  int depth_ = 0;
};

class PythonicReader final : public CallReader {
 public:
  explicit PythonicReader(CallContext context)
      : context_(context), prose_(context.writer, {kPythonStart, kPythonEnd}) {}

  void step(char c) override {
    if (at_ > State::prose && writer().num_kept() >= AnswerParser::kMaxHeld)
      return give_up(c, "it is too long");
    switch (at_) {
      case State::begin:
        if (is_blank(c)) return writer().prose(c);
        at_ = State::prose;
        if (c != '[') return take_prose(c);
        marked_ = false;
        writer().open("");
        return take_opened(c);
      case State::prose:
        return take_prose(c);
      case State::opened:
        return take_opened(c);
      case State::name:
        return take_name(c);
      case State::key:
        return take_key(c);
      case State::value:
        return take_value(c);
      case State::after:
        return take_after(c);
    }
  }

  void finish() override {
    prose_.finish();
    const bool between = at_ == State::after || (at_ == State::name && later_ && name_.empty());
    if (at_ > State::prose && !between) writer().broken("the answer ends within it");
  }

 private:
  enum class State : uint8_t { begin, prose, opened, name, key, value, after };

  EventWriter& writer() { return *context_.writer; }

  void give_up(char c, std::string_view why) {
    writer().broken(why);
    at_ = State::prose;
    take_prose(c);
  }

  void take_prose(char c) {
    const std::string_view mark = prose_.step(c);
    if (mark.empty()) return;
    if (mark == kPythonEnd) {
      if (writer().num_whole() == 0) writer().prose(kPythonEnd);
      return;
    }
    marked_ = true;
    writer().open(kPythonStart);
    at_ = State::opened;
  }

  void take_opened(char c) {
    later_ = false;
    if (is_blank(c)) return writer().keep(c);
    if (c != '[') return give_up(c, "no list of calls follows the mark");
    writer().keep(c);
    name_.clear();
    at_ = State::name;
  }

  void take_name(char c) {
    if (is_blank(c) && name_.empty()) return writer().keep(c);
    if (is_name_byte(c)) {
      name_ += c;
      if (name_.size() > kMaxCallNameBytes) return give_up(c, "its name does not end");
      return writer().keep(c);
    }
    if (c != '(' || name_.empty()) return give_up(c, "no name with arguments begins it");
    if (!is_known(context_.tools, name_)) {
      if (!marked_) return give_up(c, "no tool has its name");
      writer().warn("a call names a function that is none of the tools");
    }
    writer().keep(c);
    writer().begin(name_);
    num_arguments_ = 0;
    key_.clear();
    at_ = State::key;
  }

  void take_key(char c) {
    if (c == ')' && trimmed(key_).empty()) return end_call();
    if (c == '=') {
      key_ = std::string(trimmed(key_));
      if (key_.empty()) return give_up(c, "an argument has no name");
      writer().keep(c);
      value_.clear();
      expression_end_ = ExpressionEnd();
      at_ = State::value;
      return;
    }
    if (!is_blank(c) && !is_name_byte(c)) return give_up(c, "an argument has no name");
    key_ += c;
    if (key_.size() > kMaxCallNameBytes) return give_up(c, "a name in it does not end");
    writer().keep(c);
  }

  void take_value(char c) {
    if (!expression_end_.step(c)) {
      value_ += c;
      return writer().keep(c);
    }
    const auto json = python_to_json(value_);
    if (!json) return give_up(c, "an argument is no literal");
    writer().arguments((num_arguments_ == 0 ? "{" : ", ") + quoted_json(key_) + ": " + *json);
    ++num_arguments_;
    if (c == ')') return end_call();
    writer().keep(c);
    key_.clear();
    at_ = State::key;
  }

  void end_call() {
    writer().arguments(num_arguments_ == 0 ? "{}" : "}");
    writer().end();
    later_ = true;
    at_ = State::after;
  }

  // Takes a comma and the next call, or the end of the list.
  void take_after(char c) {
    if (is_blank(c)) return writer().keep(c);
    if (c == ',') {
      writer().keep(c);
      name_.clear();
      at_ = State::name;
      return;
    }
    if (c != ']') writer().abandon();
    writer().open("");
    at_ = State::prose;
    if (c != ']') take_prose(c);
  }

  CallContext context_;
  State at_ = State::begin;
  ProseScan prose_;
  bool marked_ = false;  // true: behind <|python_start|>
  bool later_ = false;   // true: a call of this list is whole
  std::string name_, key_, value_;
  ExpressionEnd expression_end_;
  int num_arguments_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> make_pythonic_reader(CallContext context) {
  return std::make_unique<PythonicReader>(context);
}

}  // namespace hocket
