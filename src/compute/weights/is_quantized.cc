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
// patterns are kept, those of a model and of its draft model at once.
bool matches(const std::string& pattern, std::string_view module) {
  thread_local std::unordered_map<std::string, std::optional<std::regex>> compiled;
  if (compiled.size() > 2 * (kPatterns + kTargets)) compiled.clear();
  auto [at, is_new] = compiled.try_emplace(pattern);
  if (is_new) at->second = compile(pattern);
  return at->second && std::regex_search(module.begin(), module.end(), *at->second,
                                         std::regex_constants::match_continuous);
}

// Returns true if `module` begins with a match of `glob`, behind which it ends or has a dot.
bool matches_glob(std::string_view glob, std::string_view module) {
  size_t star = glob.find('*');
  if (!module.starts_with(glob.substr(0, star))) return false;
  size_t at = star;  // the end of what is matched
  while (star != glob.npos) {
    glob.remove_prefix(star + 1);
    star = glob.find('*');
    if (star == glob.npos) break;
    const std::string_view piece = glob.substr(0, star);
    at = module.find(piece, at);
    if (at == module.npos) return false;
    at += piece.size();
  }
  if (glob.empty()) return true;
  for (at = module.find(glob, at); at != module.npos; at = module.find(glob, at + 1)) {
    const size_t end = at + glob.size();
    if (end == module.size() || module[end] == '.') return true;
  }
  return false;
}

}  // namespace

bool can_be_read(const std::string& entry) {
  if (entry.starts_with(kGlob)) return entry.size() <= kPatternChars;
  return compile(entry.substr(entry.find(':') + 1)).has_value();
}

bool is_quantized(const QuantConfig& quant, std::string_view module) {
  if (quant.layout == QuantLayout::none) return false;
  bool has_targets = false, is_target = false;
  for (const std::string& entry : quant.skipped) {
    std::string_view name = entry;
    if (name.starts_with(kPattern)) {
      if (matches(entry.substr(kPattern.size()), module)) return false;
      continue;
    }
    if (name.starts_with(kTarget)) {
      has_targets = true;
      is_target = is_target || matches(entry.substr(kTarget.size()), module);
      continue;
    }
    if (name.starts_with(kGlob)) {
      if (matches_glob(name.substr(kGlob.size()), module)) return false;
      continue;
    }
    if (name.ends_with('.') && quant.layout != QuantLayout::awq) name.remove_suffix(1);
    if (name.empty()) continue;
    if (quant.layout == QuantLayout::awq ? module.find(name) != module.npos
                                         : has_run_of_components(module, name))
      return false;
  }
  return is_target || !has_targets;
}

}  // namespace hocket
