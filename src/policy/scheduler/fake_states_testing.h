// The states of a model with delta nets in FakeEngine: a slot holds the tokens that its state
// stands for, so that a wrong slot, a border too many or a slot freed too early shows at once.
// Thread: any one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "policy/scheduler/scheduler.h"

namespace hocket {

class FakeStates {
 public:
  explicit FakeStates(const SchedulerOptions& options)
      : step_(options.state_tokens),
        states_(static_cast<size_t>(options.num_states)),
        blocks_(options.num_states > 0 ? static_cast<size_t>(options.max_running_requests) : 0) {}

  bool enabled() const { return !states_.empty(); }

  // Fills a slot whose state is read from a slower tier.
  void fill(int slot, std::span<const TokenId> tokens) {
    states_.at(static_cast<size_t>(slot)).assign(tokens.begin(), tokens.end());
  }

  // Finds slots that two slices of a step would use at the same time, one of them writing.
  std::string check(const Batch& batch) const {
    std::vector<int> writer(states_.size(), -1);
    const int num_slices = static_cast<int>(batch.slices.size());
    for (int i = 0; i < num_slices; ++i)
      for (const StateSlot& state : states(batch.slices[static_cast<size_t>(i)])) {
        int& other = writer[static_cast<size_t>(state.slot)];
        if (state.end <= batch.slices[static_cast<size_t>(i)].begin) continue;
        if (other >= 0 && other != i) return fmt::format("two slices write state {}", state.slot);
        other = i;
      }
    for (int i = 0; i < num_slices; ++i)
      for (const StateSlot& state : states(batch.slices[static_cast<size_t>(i)])) {
        const int other = writer[static_cast<size_t>(state.slot)];
        if (other >= 0 && other != i) return fmt::format("two slices use state {}", state.slot);
      }
    return {};
  }

  // Computes a slice. `tokens` are those of its request up to the slice's end. Returns what is
  // wrong, or an empty string.
  std::string forward(const Slice& slice, std::span<const TokenId> tokens) {
    if (slice.block < 0) return "no block slot";
    History& block = blocks_[static_cast<size_t>(slice.block)];
    const auto before = tokens.first(static_cast<size_t>(slice.begin));
    if (slice.load_state_at >= 0) {
      if (slice.load_state_at != slice.begin || slice.begin % step_ != 0)
        return fmt::format("its state is loaded at {} instead of {}", slice.load_state_at,
                           slice.begin);
      if (slice.begin > 0 && !std::ranges::equal(at(slice, slice.begin), before))
        return fmt::format("its first state is not that of its {} tokens", slice.begin);
    } else if (block.size() < before.size() ||
               !std::ranges::equal(std::span(block).first(before.size()), before)) {
      return "its block slot holds other tokens";
    }
    const auto drafts_begin = std::ssize(tokens) - slice.num_drafts;
    if (std::ssize(tokens) / step_ != drafts_begin / step_) return "a state is made of drafts";
    for (int border = (slice.begin / step_ + 1) * step_; border <= std::ssize(tokens);
         border += step_) {
      const auto source = static_cast<size_t>(border - step_);
      if (source > 0 && !std::ranges::equal(at(slice, border - step_), tokens.first(source)))
        return fmt::format("the state before border {} is another's", border);
      const auto made = tokens.first(static_cast<size_t>(border));
      at(slice, border).assign(made.begin(), made.end());
    }
    block.assign(tokens.begin(), tokens.end());
    return {};
  }

 private:
  using History = std::vector<TokenId>;

  static std::span<const StateSlot> states(const Slice& slice) {
    return std::span(slice.states).first(static_cast<size_t>(slice.num_states));
  }

  History& at(const Slice& slice, int border) {
    for (const StateSlot& state : states(slice))
      if (border <= state.end) return states_[static_cast<size_t>(state.slot)];
    HOCKET_CHECK(false);
    return states_.front();
  }

  int step_;
  std::vector<History> states_, blocks_;
};

}  // namespace hocket
