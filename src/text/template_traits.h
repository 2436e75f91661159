// Finds out how a chat template treats tools and calls, by rendering small conversations: templates
// of different families differ, and nothing in a template tells how.   Thread: any.
#pragma once

#include "text/chat_template.h"

namespace hocket {

struct TemplateTraits {
  bool shows_tools = false;        // the prompt tells the model of them
  bool arguments_as_text = false;  // of earlier calls: JSON text where others want the object
  bool tells_effort = false;       // the prompt changes with reasoning_effort
  bool short_ids = false;          // ids of calls have nine letters and digits, or it refuses
};

TemplateTraits traits_of(const ChatTemplate& chat_template);

// Sizes of the arguments of all calls in a conversation that are given as text: of the text, and of
// the trees that they become where a template wants objects.
struct ArgumentTexts {
  int64_t num_bytes = 0;
  int64_t tree_bytes = 0;  // JsonShape's
};
ArgumentTexts argument_texts(const nlohmann::ordered_json& messages);
// Bytes of such texts in one conversation, at most.
inline constexpr int64_t kArgumentsBytesMax = 8 << 20;

// The earlier calls of a conversation as the template wants them: arguments as an object or as
// text, ids that it takes (equal ones stay equal).
void fit_calls(ChatInput& chat, const TemplateTraits& traits);

}  // namespace hocket
