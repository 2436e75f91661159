// The pages of window layers in FakeEngine: each remembers the tokens that were written to it, so
// that a wrong page, a copy left out or a page given up too early shows at once. Thread: any one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "policy/scheduler/scheduler.h"

namespace hocket {

class FakeWindows {
 public:
  explicit FakeWindows(const SchedulerOptions& options)
      : page_tokens_(options.page_tokens),
        window_(options.window),
        memory_(static_cast<size_t>(options.num_window_pages * options.page_tokens), TokenId{-1}) {}

  bool enabled() const { return window_.bounded(); }
  // Returns the first page that the token behind `num_tokens` tokens sees.
  int first_seen(int num_tokens) const {
    return first_seen_page(num_tokens, window_, page_tokens_);
  }

  void copy(const Batch& batch) {
    for (const PageCopy& copy : batch.copies)
      for (int i = 0; i < copy.tokens; ++i) at(copy.window_to, i) = at(copy.window_from, i);
  }

  // Fills a page that is read from a slower tier.
  void fill(PageId page, std::span<const TokenId> tokens) {
    for (int i = 0; i < page_tokens_; ++i) at(page, i) = tokens[static_cast<size_t>(i)];
  }

  // Computes a batch. `tokens` are those of each slice's request up to the slice's end. Returns
  // what is wrong, or an empty string.
  std::string forward(const Batch& batch, std::span<const std::vector<TokenId>> tokens,
                      bool overlapped) {
    for (size_t i = 0; i < batch.slices.size(); ++i) {
      const Slice& slice = batch.slices[i];
      if (std::string wrong = check(slice, tokens[i], slice.begin); !wrong.empty()) return wrong;
      if (std::string wrong = check_count(slice); !overlapped && !wrong.empty()) return wrong;
    }
    for (size_t i = 0; i < batch.slices.size(); ++i)
      for (int p = batch.slices[i].begin; p < std::ssize(tokens[i]); ++p)
        *find(*batch.slices[i].request, p) = tokens[i][static_cast<size_t>(p)];
    for (size_t i = 0; i < batch.slices.size(); ++i)
      if (std::string wrong = check(batch.slices[i], tokens[i], static_cast<int>(tokens[i].size()));
          !wrong.empty())
        return wrong;
    return {};
  }

 private:
  TokenId& at(PageId page, int offset) {
    return memory_.at(static_cast<size_t>(value(page) * page_tokens_ + offset));
  }
  // Returns where a position's token is kept; null if its page was given up.
  TokenId* find(const Request& request, int position) {
    const PageId page = request.window.pages.at(static_cast<size_t>(position / page_tokens_));
    return page == kNoPage ? nullptr : &at(page, position % page_tokens_);
  }

  // Checks what the slice's rows see, up to `end`.
  std::string check(const Slice& slice, std::span<const TokenId> tokens, int end) {
    for (int p = window_.first_key(slice.begin); p < end; ++p) {
      const TokenId* held = find(*slice.request, p);
      if (held == nullptr || *held != tokens[static_cast<size_t>(p)])
        return fmt::format("request {}, row {}: position {} of the window {}",
                           value(slice.request->id), slice.begin, p,
                           held == nullptr ? "was given up" : "holds another token");
    }
    return {};
  }
  // Checks that the request holds no page that none of its rows sees.
  std::string check_count(const Slice& slice) const {
    const RequestWindow& window = slice.request->window;
    // Drafts that were not accepted leave pages for later rows.
    const int end = std::max(slice.begin + slice.len, slice.request->len());
    const int used = std::min(static_cast<int>(window.pages.size()), pages_for(end, page_tokens_));
    const int held = used - window.begin;
    if (std::ssize(window.pages) > pages_for(end + kMaxDrafts, page_tokens_))
      return fmt::format("request {} holds pages beyond its drafts", value(slice.request->id));
    const bool answers = slice.request->state == Request::State::running;
    const int forced = answers ? slice.request->uncomputed() : 0;  // they have pages already
    const int tokens = window_.max_keys() + page_tokens_ - 2 + forced + slice.len;
    const int most = pages_for(tokens, page_tokens_) + 1;
    if (held <= most) return {};
    return fmt::format("request {} holds {} pages for its window of {} tokens and {} rows",
                       value(slice.request->id), held, window_.max_keys(), slice.len);
  }

  int page_tokens_;
  VisibleKeys window_;
  std::vector<TokenId> memory_;  // [pages * page_tokens]
};

}  // namespace hocket
