#include "text/tokens/stop_regex.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "text/tokens/rust.h"

namespace hocket {

namespace {

std::unexpected<Error> cannot_follow() {
  return fail(error(ErrorCode::invalid_request, "stop_regex: {}", rust::last_error())
                  .with_fix("shorter patterns, with smaller numbers in braces and fewer \\w")
                  .with_param("stop_regex"));
}

}  // namespace

void StopRegex::Free::operator()(HkStopRegex* r) const {
  hk_stop_regex_free(r);
}

void StopRegexSearch::Free::operator()(HkStopSearch* s) const {
  hk_stop_search_free(s);
}

Result<std::shared_ptr<const StopRegex>> StopRegex::compile(std::vector<std::string> patterns) {
  const std::string json = nlohmann::json(patterns).dump();
  HkStopRegex* handle = nullptr;
  if (hk_stop_regex_new(json.data(), json.size(), &handle) != 0) {
    Error e =
        error(ErrorCode::invalid_request, "the pattern cannot be used: {}", rust::last_error());
    if (e.message.find("boundar") != e.message.npos) e.fix = "write (?-u:\\b) in place of \\b";
    return fail(std::move(e));
  }
  std::shared_ptr<StopRegex> regex(new StopRegex);
  regex->handle_.reset(handle);
  regex->patterns_ = std::move(patterns);
  return regex;
}

StopRegexSearch::StopRegexSearch(std::shared_ptr<const StopRegex> regex)
    : regex_(std::move(regex)) {
  HkStopSearch* handle = nullptr;
  if (hk_stop_search_new(regex_->handle_.get(), &handle) == 0) handle_.reset(handle);
  HOCKET_CHECK(handle_ != nullptr);
}

Result<std::optional<StopRegexSearch::StopMatch>> StopRegexSearch::push(std::string_view text) {
  int32_t pattern = -1;
  size_t kept = 0;
  if (hk_stop_search_push(handle_.get(), text.data(), text.size(), &pattern, &kept) != 0)
    return cannot_follow();
  if (pattern < 0) return std::nullopt;
  return StopMatch{kept, regex_->patterns_[static_cast<size_t>(pattern)]};
}

Result<std::optional<std::string_view>> StopRegexSearch::finish() {
  int32_t pattern = -1;
  if (hk_stop_search_end(handle_.get(), &pattern) != 0) return cannot_follow();
  if (pattern < 0) return std::nullopt;
  return regex_->patterns_[static_cast<size_t>(pattern)];
}

}  // namespace hocket
