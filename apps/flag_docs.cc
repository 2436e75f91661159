#include "apps/flag_docs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/setting_ranges.h"

namespace hocket {
namespace {

bool is_switch(const Flag& flag) {
  return std::holds_alternative<bool*>(flag.target);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Returns the help as a cell of a Markdown table: flags become code, `|` and `<` are escaped.
std::string cell(const std::string& help) {
  std::string out;
  for (size_t at = 0; at < help.size();) {
    const bool begins = help.compare(at, 2, "--") == 0 && at + 2 < help.size() &&
                        std::islower(static_cast<unsigned char>(help[at + 2])) != 0 &&
                        (at == 0 || help[at - 1] == ' ' || help[at - 1] == '(');
    if (!begins) {
      out += help[at] == '|' ? "\\|" : help[at] == '<' ? "&lt;" : std::string(1, help[at]);
      ++at;
      continue;
    }
    const size_t end =
        std::min(help.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_", at), help.size());
    out += fmt::format("`{}`", help.substr(at, end - at));
    at = end;
  }
  return out;
}

std::string markdown(const CommandLine& line) {
  std::string page = fmt::format("## hocket {}\n\n{}\n", line.command, cell(line.about));
  for (const FlagGroup& group : line.groups) {
    page += fmt::format("\n**{}**\n\n| Flag | Default | |\n|---|---|---|\n", group.heading);
    for (const Flag& flag : group.flags) {
      const std::string value = default_text(flag);
      page += fmt::format("| `--{}`{} | {} | {} |\n", flag.name,
                          flag.short_name.empty() ? "" : fmt::format(", `-{}`", flag.short_name),
                          value.empty() ? "" : fmt::format("`{}`", value), cell(flag.help));
    }
  }
  return page + "\n";
}

// Escapes backslashes and hyphens, which troff would interpret.
std::string troff(const std::string& text) {
  return replaced(replaced(text, "\\", "\\e"), "-", "\\-");
}

std::string man(const CommandLine& line) {
  std::string page = fmt::format(".SS hocket {}\n{}.\n", troff(line.command), troff(line.about));
  for (const FlagGroup& group : line.groups)
    for (const Flag& flag : group.flags) {
      const std::string value = default_text(flag);
      page += fmt::format(".TP\n.BR \\-\\-{}{}\n\\&{}{}.\n", troff(flag.name),
                          is_switch(flag) ? "" : " \\ \\fIVALUE\\fR", troff(flag.help),
                          value.empty() ? "" : fmt::format(" (default: {})", troff(value)));
    }
  return page;
}

std::string words(const CommandLine& line) {
  std::vector<std::string> names;
  if (line.takes_config) names.emplace_back("--config");
  for (const FlagGroup& group : line.groups)
    for (const Flag& flag : group.flags) names.push_back("--" + flag.name);
  return fmt::format("{}\n", fmt::join(names, " "));
}

// Returns [least, most] for a number, null for any other flag.
nlohmann::ordered_json range_json(const Flag& flag) {
  return std::visit(
      [&](const auto* target) -> nlohmann::ordered_json {
        using T = std::remove_cvref_t<decltype(*target)>;
        if constexpr (!std::is_arithmetic_v<T> || std::is_same_v<T, bool>) return nullptr;
        const NumberRange range = setting_range<T>(flag.name);
        return {range.low, range.high};
      },
      flag.target);
}

std::string json(const CommandLine& line) {
  nlohmann::ordered_json flags = nlohmann::ordered_json::array();
  for (const FlagGroup& group : line.groups)
    for (const Flag& flag : group.flags)
      flags.push_back({{"name", flag.name},
                       {"group", group.heading},
                       {"switch", is_switch(flag)},
                       {"default", default_text(flag)},
                       {"range", range_json(flag)},
                       {"variable", variable_name(flag.name)},
                       {"help", flag.help}});
  return nlohmann::ordered_json{
             {"command", line.command}, {"about", line.about}, {"flags", std::move(flags)}}
             .dump() +
         "\n";
}

}  // namespace

std::string variable_name(std::string_view flag) {
  std::string name = "HOCKET_";
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string default_text(const Flag& flag) {
  return std::visit(
      [](const auto* target) -> std::string {
        using T = std::remove_cvref_t<decltype(*target)>;
        if constexpr (std::is_same_v<T, bool>) return *target ? "on" : "";
        if constexpr (std::is_same_v<T, std::vector<std::string>>)
          return fmt::format("{}", fmt::join(*target, " "));
        else
          return fmt::format("{}", *target);
      },
      flag.target);
}

Result<std::string> flag_docs(const CommandLine& line, std::string_view form) {
  if (form == "markdown") return markdown(line);
  if (form == "man") return man(line);
  if (form == "words") return words(line);
  if (form == "json") return json(line);
  return fail(error(ErrorCode::bad_value, "--help={} is no form of help", form)
                  .with_fix("--help, or --help=json, markdown, man or words"));
}

}  // namespace hocket
