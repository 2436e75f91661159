// Reads the messages of gpt-oss (harmony.h). Analysis is reasoning; a message to a function is a
// call, in whatever channel; the text of all others is prose. A call's recipient may also be
// before its channel.
#include <string>
#include <utility>

#include "text/answers/answer_parser.h"
#include "text/answers/blank.h"
#include "text/answers/harmony.h"
#include "text/answers/json_call.h"
#include "text/answers/json_copier.h"
#include "text/answers/mark_finder.h"

namespace hocket {
namespace {

constexpr std::string_view kRecipient = "to=";

// Returns the word behind `before` in a head; empty if there is none.
std::string_view word_behind(std::string_view before, std::string_view head) {
  const size_t at = head.find(before);
  if (at == head.npos) return {};
  head.remove_prefix(at + before.size());
  return head.substr(0, head.find_first_of(" \t\n\r<"));
}

// Returns the recipient in a head: a word behind "to=" that no other letter touches.
std::string_view recipient_in(std::string_view head) {
  for (size_t at = head.find(kRecipient); at != head.npos; at = head.find(kRecipient, at + 1))
    if (at == 0 || is_blank(head[at - 1]) || head[at - 1] == '>')
      return word_behind(kRecipient, head.substr(at));
  return {};
}

bool ends_message(std::string_view mark) {
  return mark == harmony::kEnd || mark == harmony::kCall || mark == harmony::kReturn;
}

class HarmonyReader final : public CallReader {
 public:
  HarmonyReader(HarmonyOptions options, CallContext context)
      : options_(options),
        context_(context),
        finder_({harmony::kMarks.begin(), harmony::kMarks.end()}) {
    if (options.open) at_ = options.reasoning ? State::reasoning : State::verbatim;
  }

  void step(char c) override {
    const int mark = finder_.step(c, free_);
    for (const char f : std::exchange(free_, {})) take(f);
    if (mark != MarkFinder::kNone) take_mark(finder_.mark(mark));
  }

  void finish() override {
    finder_.flush(free_);
    for (const char f : std::exchange(free_, {})) take(f);
    if (at_ == State::head) give_up_head("the answer ends within the head of a message");
    if (at_ == State::between && !(options_.reasoning && trimmed(held_).empty())) emit_prose(held_);
    if (at_ == State::call) writer().broken("the answer ends within it");
  }

  bool in_reasoning() const override { return at_ == State::reasoning; }

 private:
  enum class State : uint8_t {
    between,    // before a message: at the beginning, or behind an end mark
    head,       // in the head of a message
    reasoning,  // this and those below: the text of a message
    prose,
    verbatim,  // prose whose end mark is part of it
    call,
  };

  EventWriter& writer() { return *context_.writer; }

  void emit_prose(std::string_view text) {
    if (text.empty()) return;
    if (std::exchange(parts_prose_, false)) writer().prose('\n');
    has_prose_ = true;
    writer().prose(text);
  }

  void take(char c) {
    switch (at_) {
      case State::between:
        return take_between(c);
      case State::head:
        held_ += c;
        if (held_.size() > harmony::kMaxHeadBytes)
          give_up_head("the head of a message does not end");
        return;
      case State::reasoning:
        if (std::exchange(parts_reasoning_, false)) writer().reasoning("\n");
        has_reasoning_ = true;
        return writer().reasoning(std::string_view(&c, 1));
      case State::prose:
      case State::verbatim:
        return emit_prose(std::string_view(&c, 1));
      case State::call:
        return take_call(c);
    }
  }

  // The prompt has begun the first head, so a recipient may come at once.
  void take_between(char c) {
    held_ += c;
    const std::string_view begun = trimmed(held_);
    if (held_.size() > harmony::kMaxHeadBytes || !kRecipient.starts_with(begun)) {
      at_ = options_.reasoning ? State::prose : State::verbatim;
      emit_prose(std::exchange(held_, {}));
    } else if (begun == kRecipient) {
      at_ = State::head;
    }
  }

  void take_mark(std::string_view mark) {
    switch (at_) {
      case State::between:
      case State::head:
        held_ += mark;
        if (mark == harmony::kMessage) return begin_message();
        if (ends_message(mark)) return end_without_message();
        at_ = State::head;
        if (held_.size() > harmony::kMaxHeadBytes)
          give_up_head("the head of a message does not end");
        return;
      case State::call:
        if (writer().begun() || !ends_message(mark)) return take_text(mark);
        end_empty_call();
        return go_between();
      case State::reasoning:
      case State::prose:
      case State::verbatim:
        if (ends_message(mark)) {
          if (at_ == State::verbatim) emit_prose(mark);
          return go_between();
        }
        if (mark == harmony::kMessage || mark == harmony::kConstrain) return take_text(mark);
        go_between();
        held_ = mark;
        at_ = State::head;
    }
  }

  // Takes a mark that is text where it is.
  void take_text(std::string_view mark) {
    for (const char c : mark) take(c);
  }

  void go_between() {
    at_ = State::between;
    held_.clear();
  }

  // An end mark where a message should begin means nothing; within a head it ends the message.
  void end_without_message() {
    if (at_ == State::head)
      give_up_head("a message ends within its head");
    else if (!options_.reasoning)
      emit_prose(held_);
    go_between();
  }

  void give_up_head(std::string_view why) {
    writer().warn(std::string(why));
    at_ = options_.reasoning ? State::prose : State::verbatim;
    emit_prose(std::exchange(held_, {}));
  }

  void begin_message() {
    const std::string head = std::exchange(held_, {});
    const std::string_view recipient = recipient_in(head);
    if (!recipient.empty() && options_.calls && begin_call(recipient, head)) return;
    if (!options_.reasoning || !recipient.empty()) {
      at_ = State::verbatim;
      return emit_prose(head);
    }
    const bool thinks = word_behind(harmony::kChannel, head) == "analysis";
    at_ = thinks ? State::reasoning : State::prose;
    parts_reasoning_ = has_reasoning_;
    parts_prose_ = has_prose_;
  }

  // Returns true if the recipient is a function.
  bool begin_call(std::string_view recipient, const std::string& head) {
    const bool marked = recipient.starts_with(harmony::kFunctions);
    if (!marked && !is_known(context_.tools, recipient)) {
      writer().warn("a message was taken as text: its recipient is no function");
      return false;
    }
    if (marked) recipient.remove_prefix(harmony::kFunctions.size());
    if (recipient.empty() || recipient.size() > kMaxCallNameBytes) {
      writer().warn("a call was taken as text: its name is none");
      return false;
    }
    name_ = recipient;
    copier_ = JsonCopier();
    writer().open(head);
    at_ = State::call;
    return true;
  }

  void begin_arguments() {
    if (!is_known(context_.tools, name_))
      writer().warn("a call names a function that is none of the tools");
    writer().begin(name_);
  }

  void take_call(char c) {
    if (writer().num_kept() >= AnswerParser::kMaxHeld) {
      give_up_call("it is too long");
      return take(c);
    }
    if (!writer().begun()) {
      if (is_blank(c)) return writer().keep(c);
      if (c != '{') {
        give_up_call("no arguments follow its name");
        return take(c);
      }
      begin_arguments();
    }
    std::string out;
    const auto step = copier_.step(c, out);
    if (step == JsonCopier::Step::wrong) {
      give_up_call("its JSON is broken");
      return take(c);
    }
    writer().keep(c);
    writer().arguments(out);
    if (step == JsonCopier::Step::more) return;
    writer().end();
    at_ = State::prose;
  }

  // A message without text calls the function without arguments.
  void end_empty_call() {
    begin_arguments();
    writer().arguments("{}");
    writer().end();
    at_ = State::prose;
  }

  void give_up_call(std::string_view why) {
    writer().broken(why);
    has_prose_ = true;
    at_ = State::verbatim;
  }

  HarmonyOptions options_;
  CallContext context_;
  State at_ = State::between;
  MarkFinder finder_;
  std::string free_;
  std::string held_;  // the head so far, or blanks before it
  std::string name_;
  JsonCopier copier_;
  // A line's end parts the texts of two messages of one kind.
  bool has_reasoning_ = false, has_prose_ = false;
  bool parts_reasoning_ = false, parts_prose_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_harmony_reader(HarmonyOptions options, CallContext context) {
  return std::make_unique<HarmonyReader>(options, context);
}

}  // namespace hocket
