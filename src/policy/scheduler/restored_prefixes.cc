// The prefixes of the tree for those who keep copies of them elsewhere, and sessions by name.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

bool Scheduler::restore(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                        int max_pages, const std::function<void(std::span<const PageId>)>& fill) {
  State& s = *state_;
  const auto page_tokens = static_cast<size_t>(s.page_tokens());
  const int num_pages = static_cast<int>(tokens.size() / page_tokens);
  HOCKET_CHECK(tokens.size() == static_cast<size_t>(num_pages) * page_tokens);
  HOCKET_CHECK(!s.batches.has_rows());
  if (!s.options.prefix_cache) return false;
  const int num_held = s.cache.num_pages_in_tree(name_space, tokens);
  const int num_lacking = num_pages - num_held;
  if (num_lacking == 0) return true;
  if (num_lacking > max_pages) return false;
  const Lease path =
      s.cache.pin(name_space, tokens.first(static_cast<size_t>(num_held) * page_tokens));
  if (num_lacking > s.num_available_pages()) return false;
  s.cache.evict(num_lacking - s.pages.num_free());
  std::vector<PageId> pages(static_cast<size_t>(num_lacking), kNoPage);
  const bool has_room = s.pages.take(pages);
  HOCKET_CHECK(has_room);
  fill(pages);
  s.cache.append_restored(name_space, tokens, pages);
  s.counters.restored_tokens_total += pages.size() * page_tokens;
  ++s.progress.cache_generation;
  s.pause.end();
  return true;
}

bool Scheduler::restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                              const std::function<void(int slot)>& fill) {
  State& s = *state_;
  const auto page_tokens = static_cast<size_t>(s.page_tokens());
  HOCKET_CHECK((!tokens.empty() && tokens.size() % page_tokens == 0));
  HOCKET_CHECK(!s.batches.has_rows());
  if (!s.options.prefix_cache || !s.states.enabled()) return false;
  if (static_cast<size_t>(s.cache.num_pages_in_tree(name_space, tokens)) * page_tokens !=
      tokens.size())
    return false;
  const Lease path = s.cache.pin(name_space, tokens);
  const int slot = s.states.take_to_restore();
  if (slot < 0) return false;
  fill(slot);
  static_cast<void>(s.cache.cache_state(path, path.len(), slot));
  ++s.progress.cache_generation;
  s.pause.end();
  return true;
}

bool Scheduler::restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                               const std::function<void(int index, PageId page)>& fill) {
  State& s = *state_;
  HOCKET_CHECK((!tokens.empty() && std::cmp_equal(tokens.size() % s.page_tokens(), 0)));
  HOCKET_CHECK(!s.batches.has_rows());
  if (!s.options.prefix_cache || !s.has_windows()) return false;
  std::vector<PageId> window = s.cache.window_in_tree(name_space, tokens);
  if (window.empty()) return false;
  const Lease path = s.cache.pin(name_space, tokens);
  std::vector<PageId> held;
  std::ranges::copy_if(window, std::back_inserter(held), [](PageId p) { return p != kNoPage; });
  const WindowLease holds = s.cache.pin_window(0, held);
  std::vector<PageId> taken(window.size() - held.size(), kNoPage);
  const int num_taken = static_cast<int>(taken.size());
  // Reservations count on pages that are free or evictable, and these are evictable again.
  if (num_taken > s.num_available_window_pages()) return false;
  s.cache.evict_window(num_taken - s.windows.num_free());
  const bool has_room = s.windows.take(taken);
  HOCKET_CHECK(has_room);
  for (size_t i = 0, next = 0; i < window.size(); ++i) {
    const bool lacks = window[i] == kNoPage;
    window[i] = lacks ? taken[next++] : kNoPage;
    if (lacks) fill(static_cast<int>(i), window[i]);
  }
  s.cache.fill_window(path, window);
  ++s.progress.cache_generation;
  s.pause.end();
  return true;
}

int Scheduler::cached_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const {
  const int len = state_->cache.match_len(name_space, tokens);
  return len - len % state_->page_tokens();
}

int Scheduler::in_tree_len(const CacheNamespace& name_space,
                           std::span<const TokenId> tokens) const {
  return state_->page_tokens() * state_->cache.num_pages_in_tree(name_space, tokens);
}

const SessionTokens* Scheduler::session_tokens(SessionKey key) const {
  return state_->sessions.find(key);
}

void Scheduler::protect_session(SessionKey key, const CacheNamespace& name_space,
                                std::span<const TokenId> tokens, TimePoint now) {
  state_->sessions.protect(key, name_space, tokens, now);
}

bool Scheduler::end_session(SessionKey key) {
  return state_->sessions.end(key);
}

int Scheduler::num_available_pages() const {
  return state_->num_available_pages();
}

std::vector<PageId> Scheduler::pages_in_tree(const CacheNamespace& name_space,
                                             std::span<const TokenId> tokens) const {
  return state_->cache.pages_in_tree(name_space, tokens);
}

int Scheduler::state_in_tree(const CacheNamespace& name_space,
                             std::span<const TokenId> tokens) const {
  return state_->cache.state_in_tree(name_space, tokens);
}

std::vector<PageId> Scheduler::window_in_tree(const CacheNamespace& name_space,
                                              std::span<const TokenId> tokens) const {
  return state_->cache.window_in_tree(name_space, tokens);
}

}  // namespace hocket
