#include "server/generation/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "text/answers/typed_value.h"

namespace hocket {
namespace {

using ChoiceKind = ToolChoice::Kind;
using Names = std::set<std::string_view>;  // a tree set: clients can make hashes collide

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
  if (!inner.read("name", tool.name) || tool.name.empty() || tool.name.size() > kMaxToolNameBytes ||
      tool.name.find_first_of(" \t\r\n<>{}\"'`") != std::string::npos)
    inner.fail_field("name", fmt::format("{}.function.name must have 1 to {} bytes, no blanks, "
                                         "quotes, angles or braces",
                                         at, kMaxToolNameBytes));
  inner.read("description", tool.description);
  if (const Json* parameters = inner.object("parameters")) tool.parameters = to_text(*parameters);
  inner.read("strict", tool.strict);
  // Other members are for the template to print.
  if (inner.ok()) return true;
  fields.fail(inner.finish().error());
  return false;
}

bool is_tool(const std::vector<Tool>& tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const Tool& tool) { return tool.name == name; });
}

// Returns the name in {"type": "function", "function": {"name": ...}}; null if there is none.
const std::string* name_in(const Json& json) {
  if (!json.is_object()) return nullptr;
  const auto function = json.find("function");
  if (function == json.end() || !function->is_object()) return nullptr;
  const auto name = function->find("name");
  return name == function->end() ? nullptr : name->get_ptr<const std::string*>();
}

void read_named(Fields& fields, const Json& choice, ToolChoice& out) {
  const std::string* name = name_in(choice);
  if (name == nullptr)
    return fields.fail_field("tool_choice", "tool_choice.function.name must be a string");
  out = {.kind = ChoiceKind::named, .name = *name};
}

bool read_word(const Json& word, ToolChoice& out) {
  if (word == "none") return out.kind = ChoiceKind::none, true;
  if (word == "auto") return out.kind = ChoiceKind::automatic, true;
  if (word == "required") return out.kind = ChoiceKind::required, true;
  return false;
}

// Returns the names in {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}};
// the model is not shown the other tools.
std::optional<Names> read_allowed(Fields& fields, const Json& choice, ToolChoice& out) {
  const auto allowed = choice.find("allowed_tools");
  if (allowed == choice.end() || !allowed->is_object() || !allowed->contains("mode") ||
      !allowed->contains("tools") || !(*allowed)["tools"].is_array() ||
      !read_word((*allowed)["mode"], out)) {
    fields.fail_field("tool_choice", "tool_choice.allowed_tools needs a mode and a list of tools");
    return std::nullopt;
  }
  const Json& list = (*allowed)["tools"];
  if (list.size() > kMaxTools) {
    fields.fail_field("tool_choice", fmt::format("tool_choice.allowed_tools may name {} tools, "
                                                 "not {}",
                                                 kMaxTools, list.size()));
    return std::nullopt;
  }
  Names names;
  for (const Json& one : list)
    if (const std::string* name = name_in(one)) names.insert(*name);
  return names;
}

// Returns the names of the tools that are allowed; nullopt: all.
std::optional<Names> read_choice(Fields& fields, ToolChoice& out) {
  const Json* choice = fields.get("tool_choice");
  if (choice == nullptr || read_word(*choice, out)) return std::nullopt;
  const auto type = choice->is_object() ? choice->find("type") : choice->end();
  if (type != choice->end() && *type == "allowed_tools") return read_allowed(fields, *choice, out);
  if (type != choice->end() && *type == "function")
    read_named(fields, *choice, out);
  else
    fields.fail_field("tool_choice",
                      "tool_choice must be \"none\", \"auto\", \"required\", or name a function");
  return std::nullopt;
}

// Removes the tools that are not in `names` from both lists.
void keep_named(const Names& names, std::vector<Tool>& read, Json& tools) {
  std::vector<Tool> kept;
  Json kept_json = Json::array();
  for (size_t i = 0; i < read.size(); ++i) {
    if (!names.contains(read[i].name)) continue;
    kept.push_back(std::move(read[i]));
    kept_json.push_back(std::move(tools[i]));
  }
  read = std::move(kept);
  tools = std::move(kept_json);
}

void check_served(Fields& fields, const ServedModel& model) {
  const ModelFormats* formats = model.formats;
  if (formats == nullptr || formats->tools == ToolFormat::none)
    return fields.fail_field("tools", "tools: how this model writes tool calls is not known",
                             "start with --tool-call-parser NAME, or set \"tool_choice\": "
                             "\"none\"");
  if (!formats->caps.shows_tools)
    fields.fail_field("tools", "tools: the chat template does not show them to the model",
                      "start with --chat-template FILE, one that shows tools");
}

// Finds the types of the tools' parameters. Errors: a field error if the schemas of all tools
// together need too many visits.
void find_kinds(Fields& fields, std::vector<Tool>& tools) {
  SchemaVisits visits;
  for (Tool& tool : tools) {
    tool.kinds = std::make_shared<ParameterKinds>(tool.parameters, visits);
    if (visits.used_up())
      return fields.fail_field(
          "tools",
          fmt::format("tools: the schemas of their parameters up to '{}' lead to more than {} "
                      "schemas, over alternatives and references",
                      tool.name, SchemaVisits::kMax),
          "fewer tools, or fewer $ref and anyOf that lead to one another");
  }
}

// Passes the effort to the template. If the template does not handle it, it becomes a thinking
// budget.
void take_effort(Fields& fields, const std::string& effort, const ServedModel& model,
                 AnswerReading& reading, ChatInput& chat) {
  chat.kwargs["reasoning_effort"] = effort;
  // Templates that do not handle efforts have one of these switches.
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
  const Json* given = fields.array("tools", kMaxTools);
  Json tools = given == nullptr ? Json::array() : *given;
  std::vector<Tool> read(tools.size());
  Names names;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!read_tool(fields, fmt::format("tools[{}]", i), (*given)[i], read[i])) return;
    if (!names.insert(read[i].name).second)
      return fields.fail_field("tools", fmt::format("tools has '{}' twice", read[i].name));
  }
  ToolChoice& choice = reading.choice;
  const std::optional<Names> allowed = read_choice(fields, choice);
  if (!fields.ok()) return;
  if (allowed) keep_named(*allowed, read, tools);
  const bool forced = choice.kind == ChoiceKind::required || choice.kind == ChoiceKind::named;
  if (forced && tools.empty())
    return fields.fail_field("tool_choice", "tool_choice asks for a call, but there are no tools");
  if (choice.kind == ChoiceKind::named && !is_tool(read, choice.name))
    return fields.fail_field("tool_choice",
                             fmt::format("tool_choice names '{}', which is none of the tools",
                                         choice.name.substr(0, 64)));
  if (tools.empty() || choice.kind == ChoiceKind::none) return;
  check_served(fields, model);
  if (!fields.ok()) return;
  find_kinds(fields, read);
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
  // A budget in tokens overrides the effort. It has no effect if the model has no known format of
  // reasoning.
  for (const char* name : {"thinking_budget", "thinking_token_budget", "max_thinking_tokens"})
    if (int budget = 0; fields.read(name, budget, 0, INT32_MAX)) reading.thinking_budget = budget;
}

}  // namespace hocket
