#include "engine/lockstep/vote_carrier.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace hocket {
namespace {

constexpr int kVoteLane = 0;

}  // namespace

VoteCarrier::VoteCarrier(int num_ranks, size_t vote_bytes)
    : mine_(vote_bytes),
      votes_(static_cast<size_t>(num_ranks), std::vector<std::byte>(vote_bytes + 1)),
      sizes_(static_cast<size_t>(num_ranks)),
      parts_(static_cast<size_t>(num_ranks)) {}

void VoteCarrier::rebind(AllToAll& exchange) {
  HOCKET_CHECK(static_cast<size_t>(exchange.num_ranks()) == parts_.size());
  HOCKET_CHECK(is_here());
  exchange_ = &exchange;
  state_.store(State::none, std::memory_order_relaxed);
  error_.reset();
}

// The vote is written before the state says so, and read by the forward thread after it.
void VoteCarrier::post(Stamp stamp, std::span<const std::byte> vote) {
  HOCKET_CHECK(state_.load(std::memory_order_relaxed) == State::none);
  HOCKET_CHECK(vote.size() == mine_.size());
  stamp_ = stamp;
  std::ranges::copy(vote, mine_.begin());
  enter(State::posted);
  // A pass that ended meanwhile may have sent it.
  if (is_here() && state_.load(std::memory_order_relaxed) == State::posted &&
      exchange_->may_start(kVoteLane, MessageKind::agree))
    start();
}

Result<void> VoteCarrier::collect() {
  for (;;) {
    const uint32_t seen = num_events_.load(std::memory_order_acquire);
    const State now = state_.load(std::memory_order_acquire);
    HOCKET_CHECK(now != State::none);
    if (now == State::here || now == State::failed || is_here()) break;
    num_events_.wait(seen, std::memory_order_acquire);
  }
  // From here on no other thread changes the state.
  if (state_.load(std::memory_order_acquire) == State::posted) start();
  if (state_.load(std::memory_order_relaxed) == State::started) take();
  if (state_.load(std::memory_order_relaxed) == State::failed) return fail(*error_);
  enter(State::none);
  return {};
}

std::span<const std::byte> VoteCarrier::from(int rank) const {
  const auto at = static_cast<size_t>(rank);
  return std::span(votes_.at(at)).first(sizes_.at(at));
}

void VoteCarrier::move() {
  const State now = state_.load(std::memory_order_acquire);
  if (now == State::posted) {
    if (!exchange_->may_start(kVoteLane, MessageKind::agree)) return;
    start();
    if (state_.load(std::memory_order_relaxed) == State::failed) signal();
  } else if (now == State::started && exchange_->ready(kVoteLane, MessageKind::agree)) {
    take();
    signal();
  }
}

void VoteCarrier::give_back() {
  num_returned_.fetch_add(1, std::memory_order_release);
  signal();
}

void VoteCarrier::start() {
  const std::array<std::span<const std::byte>, 1> piece = {mine_};
  std::ranges::fill(parts_, AllToAll::Parts(piece));
  const auto started = exchange_->start(kVoteLane, MessageKind::agree, stamp_, parts_);
  if (!started) error_ = started.error();
  enter(started ? State::started : State::failed);
}

// Waits for the votes and copies them, because their slots are the next agreement's.
void VoteCarrier::take() {
  if (const auto came = exchange_->wait(kVoteLane, MessageKind::agree, stamp_); !came) {
    error_ = came.error();
    return enter(State::failed);
  }
  for (int rank = 0; rank < exchange_->num_ranks(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    const std::span<const std::byte> vote = exchange_->from(kVoteLane, MessageKind::agree, rank);
    sizes_[at] = std::min(vote.size(), votes_[at].size());
    std::ranges::copy(vote.first(sizes_[at]), votes_[at].begin());
  }
  exchange_->release(kVoteLane, MessageKind::agree);
  enter(State::here);
}

void VoteCarrier::enter(State next) {
  state_.store(next, std::memory_order_release);
}

void VoteCarrier::signal() {
  num_events_.fetch_add(1, std::memory_order_release);
  num_events_.notify_one();
}

}  // namespace hocket
