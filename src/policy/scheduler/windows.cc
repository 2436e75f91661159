// The pages of window layers, in models with sliding windows: which of them a request holds, and
// how many it may still need.
//
// A request needs at most max_window_pages(), however long it becomes. Those that it lacks are
// reserved from its admission on, so that a running request finds a page whenever it grows, and a
// prompt in chunks can always go on by a page.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/last_message.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

namespace {

// Returns the most rows that a request computes at a time while others wait.
int rows_at_a_time(const SchedulerOptions& options) {
  return std::max(1 + options.max_forced, options.page_tokens);
}

// Returns the first page of the window with which the next turn begins if the template drops the
// answer or its reasoning: the turn goes on where the generation prompt begins.
int first_page_of_next_turn(const Request& request, const SchedulerOptions& options) {
  const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.prompt_len));
  const int found = last_message(prompt, options.eos_ids).generation_prompt;
  const int goes_on = found > 0 ? found : request.prompt_len;
  const int border = goes_on / options.page_tokens * options.page_tokens;
  return first_seen_page(border, options.window, options.page_tokens);
}

}  // namespace

// Returns the pages for a window, for the page in which it begins, and for the rows of a step.
int window_pages_of_request(const SchedulerOptions& options) {
  const int tokens =
      options.window.most_keys() - 1 + options.page_tokens - 1 + rows_at_a_time(options);
  return (tokens + options.page_tokens - 2) / options.page_tokens + 1;
}

// Returns the most rows of an answer in a step: pages of window layers are reserved for so many.
int Scheduler::State::window_rows() const {
  return has_windows() ? rows_at_a_time(options) : std::numeric_limits<int>::max();
}

// Refuses a request whose prompt can never fit into the pages of window layers, if prompts are not
// cut.
// After a retraction its answer so far is computed like a prompt.
Result<void> Scheduler::State::check_window(int prompt_len, int max_new_tokens) const {
  const int64_t max_len = int64_t{prompt_len} + max_new_tokens - 1;
  const int64_t held = int64_t{options.num_window_pages} * page_tokens();
  if (!has_windows() || chunk_tokens() >= 0 || max_len <= held) return {};
  return fail(
      error(ErrorCode::request_too_big,
            "{} prompt tokens and {} new ones can never fit: prompts are computed whole, and the "
            "window layers hold {} tokens in all",
            prompt_len, max_new_tokens, held)
          .with_fix("a shorter prompt, or a server with another --chunked-prefill-size than -1")
          .with_param("max_tokens"));
}

// Returns the most window pages that a request holds at a time, without those of the first
// num_matched pages of its sequence.
int Scheduler::State::max_window_pages(const Request& request, int num_matched) const {
  if (!has_windows()) return 0;
  const int max_len = request.prompt_len + request.sampling.max_new_tokens - 1;
  return std::min(window_pages_of_request(options),
                  pages_for(max_len, page_tokens()) - num_matched);
}

int Scheduler::State::first_own_window_page(const Request& request) {
  return std::max(request.window.begin, request.leased_pages);
}

// Returns how many pages the request would give to others if it ended.
int Scheduler::State::num_released_window_pages(const Request& request) {
  const int held = static_cast<int>(request.window.pages.size());
  return held - std::min(held, first_own_window_page(request)) +
         request.window.lease.num_sole_pages();
}

int Scheduler::State::reserved_window_pages(const Request& request) const {
  if (!has_windows()) return 0;
  return std::max(0, max_window_pages(request) - num_released_window_pages(request));
}

int Scheduler::State::num_available_window_pages() const {
  return windows.num_free() + cache.num_evictable_window_pages();
}

// Returns the pages that a request may take without taking what others reserve. A prompt that goes
// on has at least its own reserve; null stands for a prompt that would begin.
int Scheduler::State::window_room(const Request* request) const {
  if (!has_windows()) return std::numeric_limits<int>::max();
  int reserved = 0;
  const auto add = [&](const Request& other) {
    if (&other != request) reserved += reserved_window_pages(other);
  };
  for (const auto& other : chunked)
    if (other) add(*other);
  for (const auto& other : running.requests()) add(*other);
  const int available = num_available_window_pages();
  const int own = request == nullptr ? 0 : std::min(available, reserved_window_pages(*request));
  return std::max(own, available - reserved);
}

void Scheduler::State::take_window_pages(Request& request, int num_pages) {
  if (!has_windows()) return;
  cache.evict_window(num_pages - windows.num_free());
  std::vector<PageId>& held = request.window.pages;
  const size_t before = held.size();
  held.resize(before + static_cast<size_t>(num_pages), kNoPage);
  HOCKET_CHECK(windows.take(std::span(held).subspan(before)));
}

// Gives the pages of its match to a request that begins.
void Scheduler::State::begin_window(Request& request, PrefixMatch& match) {
  if (!has_windows()) return;
  request.window.pages.assign(match.window_pages.begin(), match.window_pages.end());
  request.window.begin = match.window.begin();
  request.window.lease = std::move(match.window);
}

// Gives up pages that no token from now on sees. Two do: the one behind the first `end` tokens, and
// the one at the last border before it, since the tree gets the pages up to there if the request
// ends, and the next turn begins there. Rows in flight come later and see less.
void Scheduler::State::slide_window(Request& request, int end) {
  if (!has_windows()) return;
  RequestWindow& window = request.window;
  const int border = end / page_tokens() * page_tokens();
  const int begin = first_seen_page(border, options.window, page_tokens());
  for (; window.begin < begin; ++window.begin) {
    PageId& page = window.pages[static_cast<size_t>(window.begin)];
    if (window.begin >= request.leased_pages) windows.give_back({&page, 1});
    page = kNoPage;
  }
  window.lease.release_before(begin);
}

// Pins what the tree got, and marks the pages with which the next turn begins. Precondition: the
// request's lease covers its first leased_pages.
void Scheduler::State::lease_window(Request& request) {
  if (!has_windows()) return;
  RequestWindow& window = request.window;
  const int end = std::max(window.begin, request.leased_pages);
  const auto pin = [&](int begin_page, int end_page) {
    return cache.pin_window(begin_page, std::span(window.pages)
                                            .first(static_cast<size_t>(end_page))
                                            .subspan(static_cast<size_t>(begin_page)));
  };
  WindowLease before = std::exchange(window.lease, pin(window.begin, end));
  before.release_before(end);  // the request goes on
  const int prompt_end = std::min(end, request.prompt_len / page_tokens());
  if (window.begin >= prompt_end) return;
  const int begin = std::max(window.begin, first_page_of_next_turn(request, options));
  // A lease marks its pages as in view when it ends.
  if (begin < prompt_end) pin(begin, prompt_end);
}

void Scheduler::State::free_window(Request& request) {
  if (!has_windows()) return;
  RequestWindow& window = request.window;
  const auto own =
      std::min(window.pages.size(), static_cast<size_t>(first_own_window_page(request)));
  windows.give_back(std::span(window.pages).subspan(own));
  window.pages.clear();
  window.lease = WindowLease();
  window.begin = 0;
}

// Recounts the pages: each is free, in the tree, or a request's; and a request has as many of them
// as of others.
void Scheduler::State::check_windows() const {
  int sum = windows.num_free() + cache.num_window_pages();
  const auto count = [&](const Request& request) {
    const RequestWindow& window = request.window;
    const auto held = static_cast<int>(window.pages.size());
    HOCKET_CHECK(window.pages.size() == request.pages.size());
    HOCKET_CHECK(window.begin <= held);
    for (int i = 0; i < held; ++i)
      HOCKET_CHECK((window.pages[static_cast<size_t>(i)] == kNoPage) == (i < window.begin));
    sum += held - std::min(held, first_own_window_page(request));
  };
  for (const auto& request : chunked) count(*request);
  for (const auto& request : running.requests()) count(*request);
  for (const auto& request : leaving) count(*request);
  HOCKET_CHECK(sum == windows.num_pages());
  if (num_active() == 0 && leaving.empty())
    HOCKET_CHECK(cache.num_evictable_window_pages() == cache.num_window_pages());
}

}  // namespace hocket
