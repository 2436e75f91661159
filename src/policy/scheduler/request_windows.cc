#include "policy/scheduler/request_windows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/last_message.h"

namespace hocket {

namespace {

// Returns the first page of the window with which the next turn begins if the template drops the
// answer or its reasoning: the turn continues where the generation prompt begins.
int first_page_of_next_turn(const Request& request, const SchedulerOptions& options) {
  const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.prompt_len));
  const int found = last_message(prompt, options.eos_ids).generation_prompt;
  const int turn_begin = found > 0 ? found : request.prompt_len;
  const int border = turn_begin / options.page_tokens * options.page_tokens;
  return first_seen_page(border, options.window, options.page_tokens);
}

int first_own_page(const Request& request) {
  return std::max(request.window.begin, request.leased_pages);
}

int num_own_pages(const Request& request) {
  const int held = static_cast<int>(request.window.pages.size());
  return held - std::min(held, first_own_page(request));
}

// Returns how many pages the request would give to others if it ended.
int num_given_back(const Request& request) {
  return num_own_pages(request) + request.window.lease.num_sole_pages();
}

}  // namespace

RequestWindows::RequestWindows(const SchedulerOptions& options, RadixCache& cache)
    : options_(options),
      pages_(std::max(options.num_window_pages, 1), options.page_tokens),
      cache_(cache) {}

int RequestWindows::max_rows() const {
  return enabled() ? rows_at_a_time(options_) : std::numeric_limits<int>::max();
}

int RequestWindows::max_pages(const Request& request, int num_matched) const {
  if (!enabled()) return 0;
  const int max_len = request.prompt_len + request.sampling.max_new_tokens - 1;
  return std::min(window_pages_of_request(options_),
                  pages_for(max_len, options_.page_tokens) - num_matched);
}

int RequestWindows::num_reserved(const Request& request) const {
  return std::max(0, max_pages(request) - num_given_back(request));
}

int RequestWindows::num_freed_by_retraction(const Request& request) const {
  return num_given_back(request) + num_reserved(request);
}

int RequestWindows::first_awaited_page(const Request& request, int border) const {
  const VisibleKeys window{.window = options_.window.max_keys()};
  int end = border;
  if (window.window > 1) {
    const int begin =
        first_seen_page(border, window, request.border_tokens) * request.border_tokens;
    while (end > begin)
      end = first_seen_page(end, window, options_.page_tokens) * options_.page_tokens;
  }
  return end / options_.page_tokens;
}

int RequestWindows::num_available() const {
  return enabled() ? pages_.num_free() + cache_.num_evictable_window_pages()
                   : std::numeric_limits<int>::max();
}

int RequestWindows::room(const Request* request, int reserved_by_others) const {
  if (!enabled()) return std::numeric_limits<int>::max();
  const int available = num_available();
  const int own = request == nullptr ? 0 : std::min(available, num_reserved(*request));
  return std::max(own, available - reserved_by_others);
}

bool RequestWindows::take(std::span<PageId> out) {
  const int num_pages = static_cast<int>(out.size());
  if (num_pages > num_available()) return false;
  cache_.evict_window(num_pages - pages_.num_free());
  return pages_.take(out);
}

void RequestWindows::take(Request& request, int num_pages) {
  if (!enabled()) return;
  std::vector<PageId>& held = request.window.pages;
  const size_t before = held.size();
  held.resize(before + static_cast<size_t>(num_pages), kNoPage);
  HOCKET_CHECK(take(std::span(held).subspan(before)));
}

void RequestWindows::begin(Request& request, PrefixMatch& match) {
  if (!enabled()) return;
  request.window.pages.assign(match.window_pages.begin(), match.window_pages.end());
  request.window.begin = match.window.begin();
  request.window.lease = std::move(match.window);
}

// Gives up the pages that neither of two tokens sees:
//
//   * the one behind the first `end` tokens, which is computed next;
//   * the one at the last border before it: if the request ends, the tree gets the pages up to
//     there, and the next turn begins there.
//
// Rows in flight come later and see less.
void RequestWindows::slide(Request& request, int end) {
  if (!enabled()) return;
  RequestWindow& window = request.window;
  const int border = end / options_.page_tokens * options_.page_tokens;
  const int begin = first_seen_page(border, options_.window, options_.page_tokens);
  for (; window.begin < begin; ++window.begin) {
    PageId& page = window.pages[static_cast<size_t>(window.begin)];
    if (window.begin >= request.leased_pages) pages_.give_back({&page, 1});
    page = kNoPage;
  }
  window.lease.release_before(begin);
}

void RequestWindows::lease(Request& request) {
  if (!enabled()) return;
  RequestWindow& window = request.window;
  const int end = std::max(window.begin, request.leased_pages);
  const auto pin = [&](int begin_page, int end_page) {
    return cache_.pin_window(begin_page, std::span(window.pages)
                                             .first(static_cast<size_t>(end_page))
                                             .subspan(static_cast<size_t>(begin_page)));
  };
  WindowLease before = std::exchange(window.lease, pin(window.begin, end));
  before.release_before(end);  // the request continues
  const int prompt_end = std::min(end, request.prompt_len / options_.page_tokens);
  if (window.begin >= prompt_end) return;
  const int begin = std::max(window.begin, first_page_of_next_turn(request, options_));
  // A lease marks its pages as in view when it ends.
  if (begin < prompt_end) pin(begin, prompt_end);
}

void RequestWindows::free(Request& request) {
  if (!enabled()) return;
  RequestWindow& window = request.window;
  const auto own = std::min(window.pages.size(), static_cast<size_t>(first_own_page(request)));
  pages_.give_back(std::span(window.pages).subspan(own));
  window.pages.clear();
  window.lease = WindowLease();
  window.begin = 0;
}

void RequestWindows::OwnedPages::add(const Request& request) {
  const RequestWindow& window = request.window;
  const auto held = static_cast<int>(window.pages.size());
  HOCKET_CHECK(window.pages.size() == request.pages.size());
  HOCKET_CHECK(window.begin <= held);
  for (int i = 0; i < held; ++i)
    HOCKET_CHECK((window.pages[static_cast<size_t>(i)] == kNoPage) == (i < window.begin));
  num_pages += num_own_pages(request);
}

void RequestWindows::check(const OwnedPages& by_requests) const {
  HOCKET_CHECK(pages_.num_free() + cache_.num_window_pages() + by_requests.num_pages ==
               pages_.num_pages());
}

}  // namespace hocket
