// What a chat template makes of tools and calls, found out by rendering small conversations: the
// families differ, and nothing in a template says so.
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

// Of all calls in a conversation. Most templates are given these texts as trees, which nobody
// counts.
inline constexpr size_t kArgumentsBytesMax = 8 << 20;
// Bytes of the arguments that are texts, of the calls in one message. Pre: it is an object.
size_t bytes_of_arguments(const nlohmann::ordered_json& message);

// The earlier calls of a conversation as the template wants them: arguments as an object or as
// text, ids that it takes (equal ones stay equal).
void fit_calls(ChatInput& chat, const TemplateTraits& traits);

}  // namespace hocket
