// Finds which modules of a folder are quantized, by the lists and patterns of its config.
#include <optional>
#include <regex>
#include <unordered_map>

#include "compute/weights/quant_config.h"

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;

constexpr size_t kPatternChars = 500;

// Returns nothing if the pattern is invalid or needs backtracking. It is compiled for the
// polynomial matcher, because names and patterns from foreign files must not take exponential time.
std::optional<std::regex> compile(const std::string& pattern) try {
  if (pattern.size() > kPatternChars) return std::nullopt;
  int digits = 0;  // length of a number in a count, which would overflow in the library
  for (const char c : pattern)
    if ((digits = c >= '0' && c <= '9' ? digits + 1 : 0) > 4) return std::nullopt;
  return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
} catch (const std::regex_error&) {
  return std::nullopt;
}

bool has_run_of_components(std::string_view module, std::string_view entry) {
  for (size_t at = module.find(entry); at != module.npos; at = module.find(entry, at + 1)) {
    const size_t end = at + entry.size();
    if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.'))
      return true;
  }
  return false;
}

// Returns true if the pattern matches. Patterns are few and modules many thousands, so compiled
// patterns are kept.
bool matches(const std::string& pattern, std::string_view module) {
  thread_local std::unordered_map<std::string, std::optional<std::regex>> compiled;
  if (compiled.size() > kPatterns) compiled.clear();
  auto [at, is_new] = compiled.try_emplace(pattern);
  if (is_new) at->second = compile(pattern);
  return at->second && std::regex_search(module.begin(), module.end(), *at->second,
                                         std::regex_constants::match_continuous);
}

}  // namespace

bool can_be_read(const std::string& pattern) {
  return compile(pattern).has_value();
}

bool is_quantized(const QuantConfig& quant, std::string_view module) {
  if (quant.layout == QuantLayout::none) return false;
  for (const std::string& entry : quant.skipped) {
    std::string_view name = entry;
    if (name.starts_with(kPattern)) {
      if (matches(entry.substr(kPattern.size()), module)) return false;
      continue;
    }
    if (name.ends_with('.') && quant.layout != QuantLayout::awq) name.remove_suffix(1);
    if (name.empty()) continue;
    if (quant.layout == QuantLayout::awq ? module.find(name) != module.npos
                                         : has_run_of_components(module, name))
      return false;
  }
  return true;
}

}  // namespace hocket
