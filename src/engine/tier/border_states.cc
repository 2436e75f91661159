#include "engine/tier/border_states.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

// Tokens between the windows that are kept inside a prompt, unless a window is longer. A window of
// 128 tokens every 1,024 takes an eighth of what all window pages would; those at the ends of a
// prompt and its answer come on top.
constexpr int kWindowInterval = 1024;

}  // namespace

BorderStates::BorderStates(StatePool* delta_nets, PagePool* windows, int window_tokens,
                           int page_tokens)
    : delta_nets_(delta_nets),
      windows_(window_tokens > 1 ? windows : nullptr),
      window_tokens_(window_tokens),
      page_tokens_(page_tokens) {
  HOCKET_CHECK((delta_nets == nullptr || windows == nullptr));
}

int BorderStates::max_window_pages() const {
  return window_record_pages(window_tokens_, page_tokens_);
}

int64_t BorderStates::bytes() const {
  if (delta_nets_ != nullptr) return delta_nets_->state_bytes();
  return windows_ != nullptr ? max_window_pages() * windows_->page_bytes() : 0;
}

int BorderStates::border_tokens() const {
  return delta_nets_ != nullptr ? std::max(kDeltaBlock, page_tokens_) : page_tokens_;
}

size_t BorderStates::interval_pages() const {
  return static_cast<size_t>(std::max(kWindowInterval / page_tokens_, max_window_pages()));
}

void BorderStates::save(std::span<const int> indices, std::span<std::byte> to) const {
  HOCKET_CHECK(std::ssize(to) == bytes());
  if (delta_nets_ != nullptr) return delta_nets_->save_state(indices.front(), to);
  HOCKET_CHECK(std::ssize(indices) <= max_window_pages());
  for (const int index : indices) {
    windows_->save_page(PageId{index}, to.first(window_page_bytes()));
    to = to.subspan(window_page_bytes());
  }
  std::memset(to.data(), 0, to.size());
}

BorderStates::Indices BorderStates::find(const Scheduler& scheduler,
                                         const CacheNamespace& name_space,
                                         std::span<const TokenId> tokens) const {
  if (delta_nets_ != nullptr) {
    const int slot = scheduler.state_in_tree(name_space, tokens);
    return slot >= 0 ? Indices{slot} : Indices();
  }
  Indices indices;
  for (const PageId page : scheduler.window_in_tree(name_space, tokens)) {
    if (page == kNoPage) return {};
    indices.push_back(value(page));
  }
  return indices;
}

int64_t BorderStates::restore(Scheduler& scheduler, const CacheNamespace& name_space,
                              std::span<const TokenId> tokens,
                              std::span<const std::byte> from) const {
  int64_t num_copied = 0;
  if (delta_nets_ != nullptr) {
    scheduler.restore_state(name_space, tokens, [&](int slot) {
      delta_nets_->load_state(from, slot);
      num_copied = std::ssize(from);
    });
    return num_copied;
  }
  scheduler.restore_window(name_space, tokens, [&](int index, PageId page) {
    windows_->load_page(
        from.subspan(static_cast<size_t>(index) * window_page_bytes(), window_page_bytes()), page);
    num_copied += windows_->page_bytes();
  });
  return num_copied;
}

}  // namespace hocket
