// Allocates slots by number. A slot is free or has an owner. Owner: the scheduler.   Thread:
// engine.   After construction nothing allocates.
#pragma once

#include <vector>

#include "base/check.h"

namespace hocket {

class SlotAllocator {
 public:
  explicit SlotAllocator(int num_slots) : is_free_(static_cast<size_t>(num_slots), true) {
    free_.reserve(is_free_.size());
    for (int slot = num_slots - 1; slot >= 0; --slot) free_.push_back(slot);
  }

  // Precondition: one is free.
  int take() {
    HOCKET_CHECK(!free_.empty());
    const int slot = free_.back();
    free_.pop_back();
    is_free_[static_cast<size_t>(slot)] = false;
    return slot;
  }
  // It is a bug to return a free slot.
  void give_back(int slot) {
    HOCKET_CHECK(slot >= 0 && slot < num_slots());
    HOCKET_CHECK(!is_free_[static_cast<size_t>(slot)]);
    is_free_[static_cast<size_t>(slot)] = true;
    free_.push_back(slot);
  }

  int num_slots() const { return static_cast<int>(is_free_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }

 private:
  std::vector<int> free_;  // a stack: the slot freed last is the warmest
  std::vector<bool> is_free_;
};

}  // namespace hocket
