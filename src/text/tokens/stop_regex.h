// Regular expressions that end an answer, searched while its text grows (rust/: regex-automata, so
// time is linear in the text for every pattern). The match that ends first wins; the answer keeps
// its text up to the end of the match. So the result does not depend on how the text was cut. A
// pattern that looks beyond its match (`$`, `\b`) is found one character later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct HkStopRegex;
struct HkStopSearch;

namespace hocket {

// Thread: any; const calls share it.
class StopRegex {
 public:
  static constexpr size_t kMaxPatterns = 16;
  static constexpr size_t kMaxPatternBytes = 1024;

  // Errors: invalid_request, with the regex library's message.
  static Result<std::shared_ptr<const StopRegex>> compile(std::vector<std::string> patterns);

  const std::vector<std::string>& patterns() const { return patterns_; }

 private:
  friend class StopRegexSearch;
  struct Free {
    void operator()(HkStopRegex* r) const;
  };
  StopRegex() = default;

  std::vector<std::string> patterns_;
  std::unique_ptr<HkStopRegex, Free> handle_;
};

// Owner: one running answer. Thread: one at a time.
class StopRegexSearch {
 public:
  // Memory of one search, about: the size of its states (rust/src/stop_regex.rs).
  static constexpr int64_t kMaxBytes = 1 << 20;

  explicit StopRegexSearch(std::shared_ptr<const StopRegex> regex);

  struct StopMatch {
    size_t kept;  // bytes of the pushed text before the match's end
    std::string_view pattern;
  };
  // Searches further. Errors: invalid_request with the field, if the search takes more processor
  // time than one answer may have; the answer cannot continue.
  Result<std::optional<StopMatch>> push(std::string_view text);
  // Ends the text; returns the pattern that is complete by that. Errors: as of push().
  Result<std::optional<std::string_view>> finish();

 private:
  struct Free {
    void operator()(HkStopSearch* s) const;
  };
  std::shared_ptr<const StopRegex> regex_;
  std::unique_ptr<HkStopSearch, Free> handle_;  // null: it could not be created
};

}  // namespace hocket
