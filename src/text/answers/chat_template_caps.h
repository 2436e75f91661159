// Finds the capabilities of a chat template (in llama.cpp: caps): how it treats tools and calls, by
// rendering small conversations. Templates of different families differ, and no field of a template
// says how. tool_format.h chooses the parser of an answer's calls.   Thread: any.
#pragma once

#include "text/tokens/chat_template.h"

namespace hocket {

struct ChatTemplateCaps {
  bool shows_tools = false;         // the prompt has the descriptions of the tools
  bool arguments_as_text = false;   // arguments of earlier calls must be JSON text, not an object
  bool uses_effort = false;         // the prompt changes with reasoning_effort
  bool short_ids = false;           // ids of calls must have nine letters and digits, or it refuses
  bool ids_name_functions = false;  // it shows the id of a call and not the name
  bool reads_thinking = false;      // reasoning of earlier messages must be in the field `thinking`
};

ChatTemplateCaps caps_of(const ChatTemplate& chat_template);

// Sizes of those arguments in a conversation that are given as text: of the text, and of the trees
// that they become if the template wants objects.
struct ArgumentTexts {
  int64_t num_bytes = 0;
  int64_t tree_bytes = 0;  // as JsonShape::tree_bytes
};
ArgumentTexts argument_texts(const nlohmann::ordered_json& messages);
// Limit of num_bytes in one conversation.
inline constexpr int64_t kMaxArgumentsBytes = 8 << 20;

// Rewrites the earlier messages of a conversation as the template wants them. Arguments become an
// object or text. Ids become ones that it accepts (equal ids stay equal), or name the function and
// the number of the call, as functions.f:0. Reasoning is moved to the field that the template
// reads.
void fit_messages(ChatInput& chat, const ChatTemplateCaps& caps);

}  // namespace hocket
