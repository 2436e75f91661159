// The two batches of a scheduler: at most one is made while the other one is computed.
//
//   begin() -> the owner fills it -> launch() .. take_oldest() when it is committed
//                                            .. take_newest() if it failed
//
// Owner: the scheduler. Thread: engine. Allocates in reserve() only.
#pragma once

#include <array>
#include <cstddef>

#include "base/check.h"
#include "policy/scheduler/batch.h"

namespace hocket {

class BatchPair {
 public:
  void reserve(size_t num_slices) {
    for (Batch& one : batches_) {
      one.slices.reserve(num_slices);
      one.copies.reserve(num_slices);
    }
  }

  // Empties the batch that is not in flight and makes it the newest. Precondition: size() < 2.
  Batch& begin() {
    HOCKET_CHECK(size_ < 2);
    newest_ = size_ > 0 && oldest_ == newest_ ? 1 - oldest_ : newest_;
    batches_[newest_].clear();
    return batches_[newest_];
  }
  // Puts the newest batch in flight.
  void launch() {
    if (size_++ == 0) oldest_ = newest_;
  }
  // Returns the batch that is no longer in flight. Precondition: size() > 0.
  Batch& take_oldest() {
    HOCKET_CHECK(size_ > 0);
    --size_;
    Batch& taken = batches_[oldest_];
    oldest_ = newest_;
    return taken;
  }

  // Returns the newest batch in flight, which is so no longer. Precondition: size() > 0.
  Batch& take_newest() {
    HOCKET_CHECK(size_ > 0);
    // The one of the last begin() may not have been launched.
    Batch& taken = batches_[size_ == 2 ? newest_ : oldest_];
    newest_ = oldest_;
    --size_;
    return taken;
  }

  Batch& newest() { return batches_[newest_]; }
  const Batch& newest() const { return batches_[newest_]; }
  bool is_oldest(const Batch& batch) const { return size_ > 0 && &batch == &batches_[oldest_]; }
  // Batches that wait for their commit; 0..2.
  int size() const { return size_; }
  // True if one of them has rows; an idle step uses no pages.
  bool has_rows() const {
    return (size_ > 0 && !batches_[oldest_].slices.empty()) ||
           (size_ > 1 && !batches_[newest_].slices.empty());
  }
  // True if one of them has drafts.
  bool has_drafts() const {
    return (size_ > 0 && batches_[oldest_].num_drafts > 0) ||
           (size_ > 1 && batches_[newest_].num_drafts > 0);
  }

 private:
  std::array<Batch, 2> batches_;
  size_t newest_ = 0;  // made by the last begin()
  size_t oldest_ = 0;  // if size_ > 0
  int size_ = 0;
};

}  // namespace hocket
