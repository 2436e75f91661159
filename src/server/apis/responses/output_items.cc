#include "server/apis/responses/output_items.h"

#include <fmt/format.h>

namespace hocket {
namespace {

using Kind = AnswerEvent::Kind;

class ItemList final : public PartSink {
 public:
  explicit ItemList(const Answer& answer) : answer_(answer) {}
  Json items = Json::array();

  void begin(const AnswerEvent&, int) override {}
  void piece(const AnswerEvent&, int, std::string_view) override {}
  void end(const AnswerEvent& first, int index, std::string_view text, PartEnd how) override {
    items.push_back(whole_item(answer_, first, index, text, how));
  }

 private:
  const Answer& answer_;
};

}  // namespace

std::string item_id(const Answer& answer, const AnswerEvent& first, int index) {
  const char* kind = first.kind == Kind::call ? "fc" : first.kind == Kind::reasoning ? "rs" : "msg";
  return fmt::format("{}_{}_{}", kind,
                     std::string_view(answer.prepared.id).substr(answer.prepared.id.find('_') + 1),
                     index);
}

Json content_part(const AnswerEvent& first, std::string_view text) {
  if (first.kind == Kind::call) return nullptr;
  if (first.kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json empty_item(const Answer& answer, const AnswerEvent& first, int index) {
  Json item = {{"id", item_id(answer, first, index)}};
  switch (first.kind) {
    case Kind::call:
      item.update({{"type", "function_call"},
                   {"status", "in_progress"},
                   {"arguments", ""},
                   {"call_id", first.id},
                   {"name", first.name}});
      break;
    case Kind::reasoning:
      item.update({{"type", "reasoning"},
                   {"status", "in_progress"},
                   {"summary", Json::array()},
                   {"content", Json::array()}});
      break;
    default:
      item.update({{"type", "message"},
                   {"status", "in_progress"},
                   {"role", "assistant"},
                   {"content", Json::array()}});
  }
  return item;
}

Json whole_item(const Answer& answer, const AnswerEvent& first, int index, std::string_view text,
                PartEnd how) {
  Json item = empty_item(answer, first, index);
  item["status"] = how == PartEnd::whole ? "completed" : "incomplete";
  if (first.kind == Kind::call)
    item["arguments"] = text;
  else
    item["content"].push_back(content_part(first, text));
  return item;
}

Json output_items(const Answer& answer) {
  ItemList list(answer);
  emit_all_parts(answer.choices.front(), list);
  return std::move(list.items);
}

}  // namespace hocket
