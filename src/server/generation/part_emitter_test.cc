#include "server/generation/part_emitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using EventKind = AnswerEvent::Kind;

AnswerEvent event(EventKind kind, std::string text = {}, int call = 0) {
  AnswerEvent e;
  e.kind = kind;
  e.call = call;
  e.text = std::move(text);
  if (kind == EventKind::call) e.name = "f", e.id = "call_1";
  return e;
}

// Records the calls, one word per call: "text{", "ab", "}".
class Notes final : public PartSink {
 public:
  std::string all;

  void begin(const AnswerEvent& first, int index) override {
    EXPECT_EQ(index, num_begun_++);
    all += first.kind == EventKind::text   ? "text{"
           : first.kind == EventKind::call ? "call{"
                                           : "think{";
  }
  void piece(const AnswerEvent&, int index, std::string_view text) override {
    EXPECT_EQ(index, num_begun_ - 1);
    text_ += text;
    all += text;
  }
  void end(const AnswerEvent&, int, std::string_view text, PartEnd how) override {
    EXPECT_EQ(text, text_);
    text_.clear();
    all += how == PartEnd::whole ? "}" : how == PartEnd::broken ? "!" : "...";
  }

 private:
  int num_begun_ = 0;
  std::string text_;
};

std::vector<AnswerEvent> an_answer() {
  return {event(EventKind::reasoning, "hmm"),
          event(EventKind::text, "a"),
          event(EventKind::call),
          event(EventKind::arguments, "{\"x\""),
          event(EventKind::arguments, ":1}"),
          event(EventKind::call_end),
          event(EventKind::call, "", 1),
          event(EventKind::call_end, "", 1),
          event(EventKind::call, "", 2),
          event(EventKind::arguments, "{", 2),
          event(EventKind::call_broken, "", 2),
          event(EventKind::text, "rest")};
}

constexpr const char* kTold = "think{hmm}text{a}call{{\"x\":1}}call{}call{{!text{rest}";

TEST(PartEmitter, TellsEachPartToItsEnd) {
  ChoiceAnswer choice;
  for (AnswerEvent& e : an_answer()) add_event(choice.events, std::move(e));
  choice.ended = true;
  Notes notes;
  emit_all_parts(choice, notes);
  EXPECT_EQ(notes.all, kTold);
}

// The parts are the same, however often they are reported and however long the pieces are.
TEST(PartEmitter, NewsJoinToTheSame) {
  ChoiceAnswer choice;
  StreamCursor sent;
  Notes notes;
  for (const AnswerEvent& e : an_answer()) {
    if (e.text.empty()) add_event(choice.events, e);
    for (const char c : e.text) {
      AnswerEvent piece = e;
      piece.text = c;
      add_event(choice.events, std::move(piece));
      emit_new_parts(choice, sent, notes);
      emit_new_parts(choice, sent, notes);
    }
  }
  choice.ended = true;
  emit_new_parts(choice, sent, notes);
  emit_new_parts(choice, sent, notes);
  EXPECT_EQ(notes.all, kTold);
}

TEST(PartEmitter, ACallThatIsCutSaysSo) {
  ChoiceAnswer choice;
  add_event(choice.events, event(EventKind::call));
  add_event(choice.events, event(EventKind::arguments, "{\"x"));
  StreamCursor sent;
  Notes notes;
  emit_new_parts(choice, sent, notes);
  EXPECT_EQ(notes.all, "call{{\"x");
  choice.ended = true;
  emit_new_parts(choice, sent, notes);
  EXPECT_EQ(notes.all, "call{{\"x...");
}

TEST(PartEmitter, NothingIsNoPart) {
  ChoiceAnswer choice;
  add_event(choice.events, event(EventKind::text, ""));
  choice.ended = true;
  Notes notes;
  emit_all_parts(choice, notes);
  EXPECT_EQ(notes.all, "");
}

}  // namespace
}  // namespace hocket
