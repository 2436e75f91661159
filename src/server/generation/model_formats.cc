#include "server/generation/model_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "text/answers/reasoning_start.h"

namespace hocket {
namespace {

Result<ReasoningField> read_field(const std::string& name) {
  if (name == "reasoning_content") return ReasoningField::reasoning_content;
  if (name == "reasoning") return ReasoningField::reasoning;
  if (name == "both") return ReasoningField::both;
  return fail(error(ErrorCode::bad_value, "--reasoning-field {} is unknown", name)
                  .with_fix("reasoning_content, reasoning or both"));
}

const char* field_name(ReasoningField field) {
  switch (field) {
    case ReasoningField::reasoning_content:
      return "reasoning_content";
    case ReasoningField::reasoning:
      return "reasoning";
    case ReasoningField::both:
      break;
  }
  return "both";
}

// Returns "low 1024, medium 8192, ...".
std::string budgets_in_words() {
  std::string words;
  for (const auto& [effort, tokens] : kEffortBudgets)
    if (tokens >= 0) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", effort, tokens);
  return words;
}

// Calls in channels go with reasoning in channels, and others with others.
Result<void> check_pair(const ModelFormats& formats) {
  const ToolFormat tools = formats.tools;
  const bool channels = tools == ToolFormat::gpt_oss;
  if (!formats.reasoning || tools == ToolFormat::none || channels == formats.reasoning.channels)
    return {};
  return fail(error(ErrorCode::bad_value,
                    "--reasoning-parser {} does not go with --tool-call-parser {}",
                    reasoning_format_name(formats.reasoning), tool_format_name(tools))
                  .with_fix(channels ? "--reasoning-parser gpt-oss, or none"
                                     : "--tool-call-parser gpt_oss, or none"));
}

void log_formats(const ModelFormats& formats) {
  const auto why = [](bool by_flag) { return by_flag ? "by flag" : "by the chat template"; };
  log::info("answers: tool calls as {} ({}), reasoning as {} ({})", tool_format_name(formats.tools),
            why(formats.tools_by_flag), reasoning_format_name(formats.reasoning),
            why(formats.reasoning_by_flag));
  if (formats.effort_is_budget())
    log::info(
        "answers: the chat template has no words for reasoning_effort; it limits the tokens of "
        "reasoning instead: {}",
        budgets_in_words());
  if (formats.tools != ToolFormat::none && !formats.caps.shows_tools)
    log::warning(
        "the chat template shows the model no tools: requests with tools are refused; "
        "--chat-template FILE can give one that does");
}

}  // namespace

std::vector<std::string_view> effort_names() {
  std::vector<std::string_view> names;
  for (const EffortBudget& one : kEffortBudgets) names.push_back(one.effort);
  return names;
}

Result<ModelFormats> choose_model_formats(const AnswerSettings& settings,
                                          const ChatTemplate* chat_template,
                                          const Tokenizer* tokenizer) {
  ModelFormats formats;
  const std::string source = chat_template == nullptr ? "" : chat_template->source();
  HOCKET_TRY(formats.tools, choose_tool_format(settings.tool_call_parser, source));
  HOCKET_TRY(formats.reasoning, choose_reasoning_format(settings.reasoning_parser, source));
  HOCKET_TRY_VOID(check_pair(formats));
  HOCKET_TRY(formats.reasoning_field, read_field(settings.reasoning_field));
  formats.tools_by_flag = settings.tool_call_parser != "auto";
  formats.reasoning_by_flag = settings.reasoning_parser != "auto";
  if (chat_template == nullptr || tokenizer == nullptr) return formats;
  formats.caps = caps_of(*chat_template);
  std::vector<std::string_view> marks = marks_of(formats.tools);
  for (const std::string_view mark : marks_of(formats.reasoning)) marks.push_back(mark);
  formats.kept = control_tokens_of(marks, *tokenizer);
  log_formats(formats);
  return formats;
}

Json model_formats_json(const ModelFormats& formats) {
  Json budgets = Json::object();
  if (formats.effort_is_budget())
    for (const auto& [effort, tokens] : kEffortBudgets)
      if (tokens >= 0) budgets[std::string(effort)] = tokens;
  return {{"tool_call_parser", tool_format_name(formats.tools)},
          {"tool_call_parser_from", formats.tools_by_flag ? "flag" : "chat template"},
          {"reasoning_parser", reasoning_format_name(formats.reasoning)},
          {"reasoning_parser_from", formats.reasoning_by_flag ? "flag" : "chat template"},
          {"reasoning_field", field_name(formats.reasoning_field)},
          {"reasoning_effort_budgets", std::move(budgets)},
          {"template_tells_reasoning_effort", formats.caps.uses_effort},
          {"template_shows_tools", formats.caps.shows_tools}};
}

}  // namespace hocket
