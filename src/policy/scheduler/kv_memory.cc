#include "policy/scheduler/kv_memory.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {
namespace {

constexpr int64_t kSessionsShare = 50;  // percent of the pages that sessions may keep

}  // namespace

KvMemory::KvMemory(const SchedulerOptions& options)
    : pages(options.num_pages, options.page_tokens),
      windows(options, cache),
      states(options, cache),
      cache(pages, {.enabled = options.prefix_cache,
                    .eviction = options.eviction,
                    .events = options.kv_events,
                    .states = states.allocator(),
                    .windows = windows.allocator(),
                    .window = options.window}),
      sessions(cache,
               {.timeout = options.session_timeout,
                .max_tokens = kSessionsShare * options.num_pages * options.page_tokens / 100}),
      options_(options) {}

bool KvMemory::reserve_lists(Request& request) const {
  const int max_len = request.prompt_len + request.sampling.max_new_tokens;
  try {
    request.tokens.reserve(static_cast<size_t>(max_len));
    request.pages.reserve(static_cast<size_t>(pages_for(max_len, page_tokens())));
    if (windows.enabled()) request.window.pages.reserve(request.pages.capacity());
    // Two steps may be in flight.
    if (states.enabled()) request.states.planned.reserve(2 * kMaxStateSlots);
    return true;
  } catch (const std::bad_alloc&) {
    request.fail(error(ErrorCode::out_of_memory,
                       "no memory is left to keep {} tokens of the request", max_len)
                     .with_fix("try again later, or set a smaller max_tokens"));
    return false;
  }
}

void KvMemory::begin(Request& request, PrefixMatch& match) {
  request.pages.assign(match.pages.begin(), match.pages.end());
  request.leased_pages = static_cast<int>(match.pages.size());
  request.computed_len = match.len(page_tokens());
  request.lease = std::move(match.lease);
  states.begin(request, match);
  windows.begin(request, match);
}

void KvMemory::take_pages(Request& request, int end) {
  const size_t num_held = request.pages.size();
  const int num_missing = pages_for(end, page_tokens()) - static_cast<int>(num_held);
  if (num_missing <= 0) return;
  if (pages.num_free() < num_missing) {
    cache.evict(num_missing - pages.num_free());
    ++cache_generation_;
  }
  request.pages.resize(num_held + static_cast<size_t>(num_missing), kNoPage);
  HOCKET_CHECK(pages.take(std::span(request.pages).subspan(num_held)));
  windows.take(request, num_missing);
}

// Afterwards:
//   pages   | the tree's: leased | the partial last page, and rows in flight: own |
void KvMemory::cache_pages(Request& request, int num_tokens) {
  num_tokens = std::min(num_tokens, static_cast<int>(request.num_shareable()));
  const auto num_whole = static_cast<size_t>(num_tokens / page_tokens());
  const auto num_shared = num_whole * static_cast<size_t>(page_tokens());
  request.lease =
      cache.insert(request.cache_namespace, std::span(request.tokens).first(num_shared),
                   std::span(request.pages).first(num_whole), request.priority,
                   std::span(request.window.pages).first(windows.enabled() ? num_whole : 0));
  request.leased_pages = request.lease.len() / page_tokens();
  windows.lease(request);
  ++cache_generation_;
  if (options_.hooks != nullptr) options_.hooks->on_pages_cached(request);
}

// The last token of a request was not computed, or only by a row too many.
void KvMemory::keep_for_next_turn(Request& request, TimePoint now) {
  if (request.finish == FinishReason::stop || request.finish == FinishReason::length)
    cache_pages(request,
                std::min(request.computed_len, static_cast<int>(request.tokens.size()) - 1));
  states.end(request);
  if (request.lease)
    sessions.protect(request.session, request.cache_namespace,
                     std::span(request.tokens).first(static_cast<size_t>(request.lease.len())),
                     now);
}

void KvMemory::free(Request& request) {
  states.free(request);
  windows.free(request);
  pages.give_back(std::span(request.pages).subspan(static_cast<size_t>(request.leased_pages)));
  request.pages.clear();
  request.lease = Lease();
  request.leased_pages = 0;
  request.computed_len = 0;
}

std::optional<int> KvMemory::restore(const CacheNamespace& name_space,
                                     std::span<const TokenId> tokens, int max_pages,
                                     const std::function<void(std::span<const PageId>)>& fill) {
  const int num_pages = static_cast<int>(tokens.size()) / page_tokens();
  HOCKET_CHECK(std::ssize(tokens) == int64_t{num_pages} * page_tokens());
  if (!options_.prefix_cache) return std::nullopt;
  const int num_held = cache.num_pages_in_tree(name_space, tokens);
  const int num_lacking = num_pages - num_held;
  if (num_lacking == 0) return 0;
  if (num_lacking > max_pages) return std::nullopt;
  const Lease path = cache.pin(
      name_space, tokens.first(static_cast<size_t>(num_held) * static_cast<size_t>(page_tokens())));
  if (num_lacking > num_available_pages()) return std::nullopt;
  cache.evict(num_lacking - pages.num_free());
  std::vector<PageId> taken(static_cast<size_t>(num_lacking), kNoPage);
  HOCKET_CHECK(pages.take(taken));
  fill(taken);
  cache.append_restored(name_space, tokens, taken);
  ++cache_generation_;
  return num_lacking;
}

bool KvMemory::restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                             const std::function<void(int slot)>& fill) {
  HOCKET_CHECK((!tokens.empty() && std::cmp_equal(tokens.size() % page_tokens(), 0)));
  if (!options_.prefix_cache || !states.enabled()) return false;
  if (cache.num_pages_in_tree(name_space, tokens) * page_tokens() != std::ssize(tokens))
    return false;
  const Lease path = cache.pin(name_space, tokens);
  const int slot = states.take_to_restore();
  if (slot < 0) return false;
  fill(slot);
  static_cast<void>(cache.cache_state(path, path.len(), slot));
  ++cache_generation_;
  return true;
}

bool KvMemory::restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                              const std::function<void(int index, PageId page)>& fill) {
  HOCKET_CHECK((!tokens.empty() && std::cmp_equal(tokens.size() % page_tokens(), 0)));
  if (!options_.prefix_cache || !windows.enabled()) return false;
  std::vector<PageId> window = cache.window_in_tree(name_space, tokens);
  if (window.empty()) return false;
  const Lease path = cache.pin(name_space, tokens);
  std::vector<PageId> held;
  std::ranges::copy_if(window, std::back_inserter(held), [](PageId p) { return p != kNoPage; });
  const WindowLease holds = cache.pin_window(0, held);
  std::vector<PageId> taken(window.size() - held.size(), kNoPage);
  // Reservations count on pages that are free or evictable, and these are evictable again.
  if (!windows.take(taken)) return false;
  for (size_t i = 0, next = 0; i < window.size(); ++i) {
    const bool lacks = window[i] == kNoPage;
    window[i] = lacks ? taken[next++] : kNoPage;
    if (lacks) fill(static_cast<int>(i), window[i]);
  }
  cache.fill_window(path, window);
  ++cache_generation_;
  return true;
}

void KvMemory::flush() {
  sessions.clear();
  cache.flush();
  ++cache_generation_;
}

}  // namespace hocket
