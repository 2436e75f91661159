// Reads families that put each call between <tool_call> and </tool_call>: Hermes and Qwen,
// Qwen3-Coder, MiMo, GLM; Gemma between <|tool_call> and <tool_call|>. They differ in the text
// between. MiniMax puts all calls between two marks.
#include <utility>

#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/json_call.h"
#include "text/answers/prose_scan.h"

namespace hocket {
namespace {

class TaggedReader final : public CallReader {
 public:
  TaggedReader(ToolFormat format, CallContext context)
      : format_(format),
        marks_(xml_marks(format)),
        end_call_(format == ToolFormat::gemma4 ? kEndBareKeyCall : marks_.end_call),
        context_(context),
        prose_(context.writer, opening_marks(format)) {}

  void step(char c) override {
    switch (at_) {
      case State::prose:
        return take_prose(c);
      case State::opened:
        if (!is_blank(c)) {
          body_ = make_body(c);
          at_ = State::body;
          return take_body(c);
        }
        writer().keep(c);
        return;
      case State::body:
        return take_body(c);
      case State::after:
        return take_after(c);
    }
  }

  void finish() override {
    prose_.finish();
    if (at_ == State::opened) writer().broken("the answer ends within it");
    if (at_ == State::body && !body_->finish()) writer().broken(body_->why());
  }

 private:
  enum class State : uint8_t { prose, opened, body, after };

  EventWriter& writer() { return *context_.writer; }

  void take_prose(char c) {
    const std::string_view mark = prose_.step(c);
    if (mark.empty()) return;
    writer().open(mark);
    at_ = State::opened;
    if (mark == marks_.function) begin_named();
  }

  void begin_named() {
    body_ = make_xml_body(format_, context_, XmlBegin::name);
    at_ = State::body;
  }

  std::unique_ptr<CallBody> make_body(char c) {
    if (c == '{' || format_ == ToolFormat::hermes)
      return std::make_unique<JsonCallBody>(context_, CallNames::any);
    if (format_ == ToolFormat::glm45 || format_ == ToolFormat::glm47)
      return make_arg_key_body(context_);
    if (format_ == ToolFormat::gemma4) return make_bare_key_body(context_);
    return make_xml_body(format_, context_, XmlBegin::tag);
  }

  void take_body(char c) {
    using Step = CallBody::Step;
    const Step step_taken =
        writer().num_kept() < AnswerParser::kMaxHeld ? body_->step(c) : Step::wrong;
    switch (step_taken) {
      case Step::more:
        writer().keep(c);
        return;
      case Step::done:
        go_after();
        return;
      case Step::over:
        go_after();
        return take_after(c);
      case Step::wrong:
        writer().broken(writer().num_kept() < AnswerParser::kMaxHeld ? body_->why()
                                                                     : "it is too long");
        at_ = State::prose;
        return take_prose(c);
    }
  }

  void go_after() {
    at_ = State::after;
    held_.clear();
    num_loose_ = 0;
  }

  // Takes superfluous braces, then the end mark; all of these may be missing. Between the marks of
  // MiniMax another call may follow.
  void take_after(char c) {
    held_ += c;
    if (num_loose_ + 1 == held_.size() && (is_blank(c) || c == '}')) {
      ++num_loose_;
      return;
    }
    const std::string_view mark = std::string_view(held_).substr(num_loose_);
    if (end_call_.starts_with(mark)) {
      if (mark == end_call_) at_ = State::prose;
      return;
    }
    if (format_ == ToolFormat::minimax_m2 && marks_.function.starts_with(mark)) {
      if (mark != marks_.function) return;
      writer().open(held_);
      return begin_named();
    }
    at_ = State::prose;
    for (const char again : std::exchange(held_, {})) take_prose(again);
  }

  ToolFormat format_;
  const XmlMarks& marks_;
  std::string_view end_call_;
  CallContext context_;
  State at_ = State::prose;
  ProseScan prose_;
  std::unique_ptr<CallBody> body_;
  std::string held_;      // text after a call
  size_t num_loose_ = 0;  // blanks and braces at the beginning of held_
};

}  // namespace

std::unique_ptr<CallReader> make_tagged_reader(ToolFormat format, CallContext context) {
  return std::make_unique<TaggedReader>(format, context);
}

}  // namespace hocket
