// An answer with one choice, for tests of the APIs' formats: the test adds events as a parser
// would, and reads what a format makes of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/generation/answer.h"
#include "server/http/sse.h"

namespace hocket {

class ScriptedAnswer {
 public:
  using Kind = AnswerEvent::Kind;
  explicit ScriptedAnswer(std::string id) {
    info_.served_model_name = "tiny";
    answer.prepared.id = std::move(id);
    answer.prepared.model.info = &info_;
    answer.prepared.prompts = {{TokenId{1}, TokenId{2}}};
    answer.choices.emplace_back();
  }
  ScriptedAnswer(const ScriptedAnswer&) = delete;
  ScriptedAnswer& operator=(const ScriptedAnswer&) = delete;

  // `name` is the name of a call, whose id becomes "call_NAME".
  void add(Kind kind, std::string text, const std::string& name = "") {
    AnswerEvent event;
    event.kind = kind;
    event.text = std::move(text);
    event.name = name;
    event.id = name.empty() ? "" : "call_" + name;
    add_event(choice().events, std::move(event));
  }
  void end() {
    choice().finish = FinishReason::stop;
    choice().ended = true;
  }
  Json whole(const ApiFormat& format) const { return Json::parse(format.whole(answer, {})); }
  // Returns the events of a stream that has sent nothing yet.
  std::vector<Json> streamed(const ApiFormat& format) {
    std::vector<WrittenChoice> written(1);
    std::vector<Json> events;
    for (const std::string& data : SseReader().feed(format.next_block(answer, choice(), written)))
      events.push_back(Json::parse(data));
    return events;
  }

  Answer answer;

 private:
  ChoiceAnswer& choice() { return answer.choices.front(); }

  EngineInfo info_;
};

}  // namespace hocket
