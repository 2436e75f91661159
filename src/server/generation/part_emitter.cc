#include "server/generation/part_emitter.h"

namespace hocket {
namespace {

using Kind = AnswerEvent::Kind;

class Emitter {
 public:
  Emitter(const ChoiceAnswer& choice, StreamCursor& sent, PartSink& sink)
      : choice_(choice), sent_(sent), sink_(sink) {}

  void run() {
    while (sent_.events < choice_.events.size())
      if (!emit(choice_.events[sent_.events])) return;
    if (choice_.ended) close(first().kind == Kind::call ? PartEnd::cut : PartEnd::whole);
  }

 private:
  // Reports one event. Returns false if the event may still grow.
  bool emit(const AnswerEvent& event) {
    switch (event.kind) {
      case Kind::text:
      case Kind::reasoning:
        if (!is_open() || first().kind != event.kind) {
          close(PartEnd::whole);
          open();
        }
        return emit_text(event);
      case Kind::call:
        close(PartEnd::whole);
        open();
        break;
      case Kind::arguments:
        return emit_text(event);
      case Kind::call_end:
        close(PartEnd::whole);
        break;
      case Kind::call_broken:
        close(PartEnd::broken);
        break;
    }
    ++sent_.events;
    return true;
  }

  bool emit_text(const AnswerEvent& event) {
    const std::string_view added = std::string_view(event.text).substr(sent_.event_text);
    sent_.event_text = event.text.size();
    if (!added.empty()) sink_.piece(first(), sent_.parts - 1, added);
    if (sent_.events + 1 == choice_.events.size() && !choice_.ended) return false;
    ++sent_.events;
    sent_.event_text = 0;
    return true;
  }

  bool is_open() const { return sent_.open_part > 0; }
  const AnswerEvent& first() const {
    static const AnswerEvent kNone;
    return is_open() ? choice_.events[sent_.open_part - 1] : kNone;
  }
  void open() {
    sent_.open_part = sent_.events + 1;
    sink_.begin(first(), sent_.parts++);
  }
  void close(PartEnd how) {
    if (!is_open()) return;
    sink_.end(first(), sent_.parts - 1, text_of_part(), how);
    sent_.open_part = 0;
  }
  std::string_view text_of_part() const {
    if (first().kind != Kind::call) return first().text;
    const size_t next = sent_.open_part;
    const bool has_arguments =
        next < choice_.events.size() && choice_.events[next].kind == Kind::arguments;
    return has_arguments ? std::string_view(choice_.events[next].text) : std::string_view();
  }

  const ChoiceAnswer& choice_;
  StreamCursor& sent_;
  PartSink& sink_;
};

}  // namespace

void emit_new_parts(const ChoiceAnswer& choice, StreamCursor& sent, PartSink& sink) {
  Emitter(choice, sent, sink).run();
}

void emit_all_parts(const ChoiceAnswer& choice, PartSink& sink) {
  StreamCursor from_first;
  emit_new_parts(choice, from_first, sink);
}

}  // namespace hocket
