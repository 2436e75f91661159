// The data that a model needs beside pages before it can continue at a border of pages: the state
// of its delta nets, or the pages of window layers that the next token sees. Stores keep it as one
// record.
//
//   delta nets        | the state of every layer |
//   sliding windows   | window page | .. | window page |   near the beginning of a sequence there
//                                                          are fewer; zeros fill the rest
//
// A record is copied from and to *indices*: one state slot, or the pages of a window in order.
// Thread: engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/kv/page_pool.h"
#include "compute/kv/state_pool.h"
#include "policy/cache/cache_namespace.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class BorderStates {
 public:
  using Indices = std::vector<int>;

  // At most one pool is set: both are null for a model that has only full and latent attention. The
  // pool outlives this. window_tokens: how many tokens a window layer sees, a token's own included;
  // more than the context has are not needed. Behind a window of one token nothing is needed.
  BorderStates(StatePool* delta_nets, PagePool* windows, int window_tokens, int page_tokens);

  bool enabled() const { return delta_nets_ != nullptr || windows_ != nullptr; }
  bool keeps_windows() const { return windows_ != nullptr; }
  int window_tokens() const { return window_tokens_; }
  // Returns the size of a record; 0 if there is none.
  int64_t bytes() const;
  // Records lie behind multiples of these tokens alone.
  int border_tokens() const;
  // Returns how many pages lie between two windows that are kept inside a prompt. A prompt that
  // branches off this one computes at most that number of shared pages again.
  size_t interval_pages() const;

  void save(std::span<const int> indices, std::span<std::byte> to) const;
  // Returns the indices of the tree's record behind `tokens`, which are whole pages; empty if the
  // tree lacks a part of it.
  Indices find(const Scheduler& scheduler, const CacheNamespace& name_space,
               std::span<const TokenId> tokens) const;
  // Adds to the tree the parts of the record behind `tokens` that it lacks
  // (Scheduler::restore_state, restore_window). Returns how many bytes it copied.
  int64_t restore(Scheduler& scheduler, const CacheNamespace& name_space,
                  std::span<const TokenId> tokens, std::span<const std::byte> from) const;

 private:
  int max_window_pages() const;
  size_t window_page_bytes() const { return static_cast<size_t>(windows_->page_bytes()); }

  StatePool* const delta_nets_;
  PagePool* const windows_;
  const int window_tokens_, page_tokens_;
};

}  // namespace hocket
