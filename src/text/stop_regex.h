// Regular expressions that end an answer, found while its text grows (rust/: regex-automata, so in
// time linear in the text, whatever the pattern).
// The match that ends first wins, and the answer ends with it: the text up to its end is kept. So
// the result does not depend on where the pieces were cut. A pattern that looks beyond its match
// (`$`, `\b`) is found one character later.
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
  static constexpr size_t kPatternsMax = 16;
  static constexpr size_t kPatternBytesMax = 1024;

  // Errors: invalid_request, in the regex library's words.
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
  // Memory of one search, about: that of its states (rust/src/stop_regex.rs).
  static constexpr int64_t kBytesMax = 1 << 20;

  explicit StopRegexSearch(std::shared_ptr<const StopRegex> regex);

  struct Found {
    size_t kept;  // bytes of the pushed text that come before the match's end
    std::string_view pattern;
  };
  // Errors: invalid_request with the field, where the search takes more processor time than an
  // answer is given; the answer cannot go on.
  Result<std::optional<Found>> push(std::string_view text);
  // The text has ended: the pattern that this completes. Errors: likewise.
  Result<std::optional<std::string_view>> finish();

 private:
  struct Free {
    void operator()(HkStopSearch* s) const;
  };
  std::shared_ptr<const StopRegex> regex_;
  std::unique_ptr<HkStopSearch, Free> handle_;  // null: none could be made
};

}  // namespace hocket
