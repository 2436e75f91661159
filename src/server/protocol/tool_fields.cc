#include "server/protocol/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace hocket {
namespace {

using Kind = ToolChoice::Kind;

bool read_tool(Fields& fields, const std::string& at, const Json& json, Tool& tool) {
  if (!json.is_object())
    return fields.fail_field(at, fmt::format("{} must be an object", at)), false;
  const auto type = json.find("type");
  if (type != json.end() && *type != "function")
    return fields.fail_field(at + ".type",
                             fmt::format("{}.type must be \"function\", not {}", at,
                                         to_text(*type).substr(0, 64)),
                             "describe it as a function that you run"),
           false;
  const auto function = json.find("function");
  if (function == json.end() || !function->is_object())
    return fields.fail_field(at + ".function", fmt::format("{}.function must be an object", at)),
           false;
  Fields inner(*function, at + ".function");
  if (!inner.read("name", tool.name) || tool.name.empty() || tool.name.size() > kToolNameBytesMax ||
      tool.name.find_first_of(" \t\r\n<>{}\"'`") != std::string::npos)
    inner.fail_field("name", fmt::format("{}.function.name must have 1 to {} bytes, no blanks, "
                                         "quotes, angles or braces",
                                         at, kToolNameBytesMax));
  inner.read("description", tool.description);
  if (const Json* parameters = inner.object("parameters")) tool.parameters = to_text(*parameters);
  inner.read("strict", tool.strict);
  // What else it holds is the template's to print.
  if (inner.ok()) return true;
  fields.fail(inner.finish().error());
  return false;
}

bool is_tool(const std::vector<Tool>& tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const Tool& tool) { return tool.name == name; });
}

// {"type": "function", "function": {"name": ...}}
void read_named(Fields& fields, const Json& choice, ToolChoice& out) {
  const auto function = choice.find("function");
  const auto* name = function != choice.end() && function->is_object() && function->contains("name")
                         ? &(*function)["name"]
                         : nullptr;
  if (name == nullptr || !name->is_string())
    return fields.fail_field("tool_choice", "tool_choice.function.name must be a string");
  out = {.kind = Kind::named, .name = name->get<std::string>()};
}

bool read_word(const Json& word, ToolChoice& out) {
  if (word == "none") return out.kind = Kind::none, true;
  if (word == "auto") return out.kind = Kind::automatic, true;
  if (word == "required") return out.kind = Kind::required, true;
  return false;
}

// {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}: the others are left
// out.
void read_allowed(Fields& fields, const Json& choice, ToolChoice& out, Json& tools) {
  const auto allowed = choice.find("allowed_tools");
  if (allowed == choice.end() || !allowed->is_object() || !allowed->contains("mode") ||
      !allowed->contains("tools") || !(*allowed)["tools"].is_array() ||
      !read_word((*allowed)["mode"], out))
    return fields.fail_field("tool_choice",
                             "tool_choice.allowed_tools needs a mode and a list of tools");
  Json kept = Json::array();
  for (const Json& tool : tools)
    for (const Json& one : (*allowed)["tools"])
      if (one.is_object() && one.contains("function") && tool.contains("function") &&
          one["function"].value("name", Json()) == tool["function"].value("name", Json())) {
        kept.push_back(tool);
        break;
      }
  tools = std::move(kept);
}

void read_choice(Fields& fields, ToolChoice& out, Json& tools) {
  const Json* choice = fields.get("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object() && choice->contains("type")) {
    if ((*choice)["type"] == "function") return read_named(fields, *choice, out);
    if ((*choice)["type"] == "allowed_tools") return read_allowed(fields, *choice, out, tools);
  } else if (read_word(*choice, out)) {
    return;
  }
  fields.fail_field("tool_choice",
                    "tool_choice must be \"none\", \"auto\", \"required\", or name a function");
}

void check_served(Fields& fields, const ServedModel& model) {
  const AnswerFormats* formats = model.formats;
  if (formats == nullptr || formats->tools == ToolFormat::none)
    return fields.fail_field("tools", "tools: nothing tells how this model writes calls of tools",
                             "start with --tool-call-parser NAME, or set \"tool_choice\": "
                             "\"none\"");
  if (!formats->traits.shows_tools)
    fields.fail_field("tools", "tools: the chat template does not show them to the model",
                      "start with --chat-template FILE, one that shows tools");
}

// The template has words for it, or it becomes a number of tokens.
void take_effort(Fields& fields, const std::string& effort, const ServedModel& model,
                 AnswerReading& reading, ChatInput& chat) {
  chat.kwargs["reasoning_effort"] = effort;
  // What templates without words for effort call it.
  if (effort == "none")
    for (const char* name : {"enable_thinking", "thinking"})
      if (!chat.kwargs.contains(name)) chat.kwargs[name] = false;
  if (model.formats == nullptr || !model.formats->effort_is_budget()) return;
  const auto known = std::ranges::find(kEffortBudgets, effort, &EffortBudget::effort);
  if (known == kEffortBudgets.end())
    return fields.fail_field("reasoning_effort",
                             fmt::format("reasoning_effort must be one of {}, not {}",
                                         fmt::join(effort_names(), ", "), effort.substr(0, 64)));
  if (known->tokens >= 0) reading.thinking_budget = known->tokens;
}

}  // namespace

void read_tools(Fields& fields, const ServedModel& model, AnswerReading& reading, ChatInput& chat) {
  fields.refuse("functions", "is an older form", "use tools");
  fields.refuse("function_call", "is an older form", "use tool_choice");
  fields.read("parallel_tool_calls", reading.parallel);
  const Json* given = fields.array("tools", kToolsMax);
  Json tools = given == nullptr ? Json::array() : *given;
  std::vector<Tool> read(tools.size());
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!read_tool(fields, fmt::format("tools[{}]", i), tools[i], read[i])) return;
    if (is_tool({read.begin(), read.begin() + static_cast<std::ptrdiff_t>(i)}, read[i].name))
      return fields.fail_field("tools", fmt::format("tools has '{}' twice", read[i].name));
  }
  ToolChoice& choice = reading.choice;
  read_choice(fields, choice, tools);
  if (!fields.ok()) return;
  std::erase_if(read, [&](const Tool& tool) {  // those that are not allowed
    return std::ranges::none_of(
        tools, [&](const Json& json) { return json["function"]["name"] == tool.name; });
  });
  const bool forced = choice.kind == Kind::required || choice.kind == Kind::named;
  if (forced && tools.empty())
    return fields.fail_field("tool_choice", "tool_choice asks for a call, but there are no tools");
  if (choice.kind == Kind::named && !is_tool(read, choice.name))
    return fields.fail_field("tool_choice",
                             fmt::format("tool_choice names '{}', which is none of the tools",
                                         choice.name.substr(0, 64)));
  if (tools.empty() || choice.kind == Kind::none) return;
  check_served(fields, model);
  if (!fields.ok()) return;
  reading.tools_as = model.formats->tools;
  reading.tools = std::make_shared<const std::vector<Tool>>(std::move(read));
  chat.tools = std::move(tools);
}

void read_reasoning(Fields& fields, const ServedModel& model, AnswerReading& reading,
                    ChatInput& chat) {
  bool separate = true;
  fields.read("separate_reasoning", separate);
  fields.read("stream_reasoning", reading.stream_reasoning);
  fields.read("include_reasoning", reading.include_reasoning);
  if (separate && model.formats != nullptr) reading.reasoning = model.formats->reasoning;
  if (std::string effort; fields.read("reasoning_effort", effort))
    take_effort(fields, effort, model, reading, chat);
  // Said in tokens, it wins; a model that nobody knows to think has nothing to limit.
  for (const char* name : {"thinking_budget", "thinking_token_budget", "max_thinking_tokens"})
    if (int budget = 0; fields.read(name, budget, 0, INT32_MAX)) reading.thinking_budget = budget;
}

}  // namespace hocket
