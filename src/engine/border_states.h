// The data that a model needs beside pages before it can go on at a border of pages: the state of
// its delta nets, or the pages of window layers that the next token sees. Stores keep it as one
// record.
//
//   delta nets        | the state of every layer |
//   sliding windows   | window page | .. | window page |   at the beginning of a sequence fewer,
//                                                          and zeros behind them
//
// A record is copied from and to *places*: one state slot, or the pages of a window in order.
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
  using Places = std::vector<int>;

  // Both null: the model has full and latent attention alone. At most one of them is not. They
  // outlive this. window_tokens: how many tokens a window layer sees, a token's own included; more
  // than the context has are not needed. Behind a window of one token nothing is needed.
  BorderStates(StatePool* delta_nets, PagePool* windows, int window_tokens, int page_tokens);

  bool enabled() const { return delta_nets_ != nullptr || windows_ != nullptr; }
  bool keeps_windows() const { return windows_ != nullptr; }
  // Returns the size of a record; 0 if there is none.
  int64_t bytes() const;
  // Returns the distance, in pages, of the borders inside a prompt whose windows are kept: a prompt
  // that branches off there computes at most so much of what was there.
  size_t interval_pages() const;

  void save(std::span<const int> places, std::span<std::byte> to) const;
  // Returns where the tree has what is needed behind `tokens`, a number of whole pages; nothing if
  // it lacks a part of it.
  Places find(const Scheduler& scheduler, const CacheNamespace& name_space,
              std::span<const TokenId> tokens) const;
  // Gives the tree what it lacks there (Scheduler::restore_state, restore_window).
  void restore(Scheduler& scheduler, const CacheNamespace& name_space,
               std::span<const TokenId> tokens, std::span<const std::byte> from) const;

 private:
  int max_window_pages() const;
  size_t window_page_bytes() const { return static_cast<size_t>(windows_->page_bytes()); }

  StatePool* const delta_nets_;
  PagePool* const windows_;
  const int window_tokens_, page_tokens_;
};

}  // namespace hocket
