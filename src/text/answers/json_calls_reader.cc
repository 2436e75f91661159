// Reads families that write calls as JSON objects, alone or in a list, behind a mark or bare:
//
//   Llama 3    <|python_tag|>{"name": "f", "parameters": {...}}; {...}   or without the mark
//   Mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]
//              or [TOOL_CALLS]f[ARGS]{...}
//   json       [{"name": "f", "arguments": {...}}, ...] or one object
//
// Bare JSON is read as a call only at the beginning of the answer, and only if a tool has its name.
#include <utility>

#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/json_call.h"
#include "text/answers/prose_scan.h"

namespace hocket {
namespace {

struct Rules {
  ToolFormat format;
  bool bare = false;       // calls may also come without a mark
  bool separated = false;  // more calls may follow after a semicolon, a comma or blanks
  bool named = false;      // also reads f[ARGS]{...}
};

class JsonCallsReader final : public CallReader {
 public:
  JsonCallsReader(Rules rules, CallContext context)
      : rules_(rules),
        context_(context),
        at_(rules.bare ? State::begin : State::prose),
        prose_(context.writer, opening_marks(rules.format)) {}

  void step(char c) override {
    switch (at_) {
      case State::begin:
        if (is_blank(c)) return writer().prose(c);
        at_ = State::prose;
        if (c != '{' && c != '[') return take_prose(c);
        names_ = CallNames::known;
        writer().open("");
        return take_opened(c);
      case State::prose:
        return take_prose(c);
      case State::opened:
        return take_opened(c);
      case State::item:
        return take_item(c);
      case State::body:
        return take_body(c);
      case State::in_list:
        return take_in_list(c);
      case State::after:
        return take_after(c);
    }
  }

  void finish() override {
    prose_.finish();
    if (at_ == State::opened || (at_ == State::item && !later_))
      writer().broken("the answer ends within it");
    if (at_ == State::body && !body_->finish()) writer().broken(body_->why());
  }

 private:
  enum class State : uint8_t {
    begin,  // at the beginning of the answer
    prose,
    opened,  // after a mark
    item,    // in a list, before a call
    body,
    in_list,  // after a call of a list
    after,    // after a call or a list
  };

  EventWriter& writer() { return *context_.writer; }

  void take_prose(char c) {
    const std::string_view mark = prose_.step(c);
    if (mark.empty()) return;
    names_ = CallNames::any;
    writer().open(mark);
    at_ = State::opened;
  }

  void take_opened(char c) {
    if (is_blank(c)) return writer().keep(c);
    listed_ = c == '[';
    later_ = false;
    if (listed_) {
      at_ = State::item;
      return writer().keep(c);
    }
    if (c == '{' || !rules_.named) return begin_body(c);
    body_ = make_named_body(context_);
    at_ = State::body;
    take_body(c);
  }

  void begin_body(char c) {
    body_ = std::make_unique<JsonCallBody>(context_, names_);
    at_ = State::body;
    take_body(c);
  }

  void take_item(char c) {
    if (is_blank(c)) return writer().keep(c);
    begin_body(c);
  }

  void take_body(char c) {
    using Step = CallBody::Step;
    const bool fits = writer().num_kept() < AnswerParser::kMaxHeld;
    const Step taken = fits ? body_->step(c) : Step::wrong;
    if (taken == Step::more) return writer().keep(c);
    if (taken == Step::wrong) {
      writer().broken(fits ? body_->why() : "it is too long");
      at_ = State::prose;
      return take_prose(c);
    }
    later_ = true;
    at_ = listed_ ? State::in_list : State::after;
    if (taken == Step::over) step(c);
  }

  void take_in_list(char c) {
    if (is_blank(c)) return writer().keep(c);
    if (c == ',') {
      writer().keep(c);
      at_ = State::item;
      return;
    }
    at_ = State::after;
    if (c != ']') return take_after(c);
    writer().open("");
  }

  void take_after(char c) {
    if (is_blank(c)) return writer().keep(c);
    if (rules_.separated && (c == ';' || c == ',')) return writer().keep(c);
    if (rules_.separated && c == '{') return begin_body(c);
    writer().abandon();
    at_ = State::prose;
    take_prose(c);
  }

  Rules rules_;
  CallContext context_;
  State at_;
  ProseScan prose_;
  CallNames names_ = CallNames::any;
  bool listed_ = false;  // true: the call is in a list
  bool later_ = false;   // true: a call behind this mark is whole
  std::unique_ptr<CallBody> body_;
};

}  // namespace

std::unique_ptr<CallReader> make_json_calls_reader(ToolFormat format, CallContext context) {
  const Rules rules = {.format = format,
                       .bare = format != ToolFormat::mistral,
                       .separated = format == ToolFormat::llama3_json,
                       .named = format == ToolFormat::mistral};
  return std::make_unique<JsonCallsReader>(rules, context);
}

}  // namespace hocket
