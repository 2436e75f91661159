#include "text/tokens/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace hocket {

namespace {

// Computes the failure function of Knuth, Morris and Pratt (1977).
std::vector<uint32_t> borders(std::string_view s) {
  std::vector<uint32_t> border(s.size() + 1, 0);
  for (size_t n = 1; n < s.size(); ++n) {
    uint32_t k = border[n];
    while (k > 0 && s[k] != s[n]) k = border[k];
    border[n + 1] = s[k] == s[n] ? k + 1 : 0;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, StopText stop_text)
    : stop_text_(stop_text) {
  for (std::string& s : stops) {
    HOCKET_CHECK(!s.empty());
    auto border = borders(s);
    stops_.push_back({std::move(s), std::move(border)});
  }
  std::ranges::sort(stops_, std::ranges::greater{}, [](const Stop& s) { return s.text.size(); });
}

void StopMatcher::advance(Stop& stop, char c) {
  uint32_t k = stop.matched;
  while (k > 0 && stop.text[k] != c) k = stop.border[k];
  stop.matched = stop.text[k] == c ? k + 1 : 0;
}

StopMatcher::Piece StopMatcher::push(std::string_view text) {
  if (done_) return {};
  if (stops_.empty()) return {text, std::nullopt};
  held_ += text;
  const size_t before = held_.size() - text.size();
  for (size_t i = 0; i < text.size(); ++i) {
    for (Stop& stop : stops_) advance(stop, text[i]);
    const auto found = std::ranges::find_if(
        stops_, [](const Stop& stop) { return stop.matched == stop.text.size(); });
    if (found == stops_.end()) continue;
    done_ = true;
    held_.resize(before + i + 1 - (stop_text_ == StopText::trim ? found->text.size() : 0));
    out_.swap(held_);
    return {out_, found->text};
  }
  uint32_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  out_.assign(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return {out_, std::nullopt};
}

std::string_view StopMatcher::flush() {
  if (done_) return {};
  for (Stop& stop : stops_) stop.matched = 0;
  out_.swap(held_);
  held_.clear();
  return out_;
}

}  // namespace hocket
