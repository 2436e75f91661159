#include "compute/comm/all_to_all.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "compute/comm/all_to_all_state.h"

namespace hocket {

namespace {

constexpr int kMaxRanks = 4096;  // together with kMaxBytes, sums of lengths do not overflow
constexpr size_t kMaxBytes = size_t{1} << 44;  // the longest message

}  // namespace

size_t AllToAll::bytes_for(int num_ranks, const Options& options) {
  size_t num_bytes = 0;
  for (const MessageSizes& sizes : options.max_bytes) {
    for (const size_t most : sizes) {
      HOCKET_CHECK(most <= kMaxBytes);
      if (most > 0) num_bytes += SlotMemory::bytes_of(State::kHeadBytes + most);
    }
    // Memory for copies.
    num_bytes += SlotMemory::bytes_of(sizes[static_cast<size_t>(MessageKind::agree)]);
  }
  return num_bytes * static_cast<size_t>(num_ranks - 1);
}

Result<std::unique_ptr<AllToAll>> AllToAll::create(Transport& transport, const Options& options) {
  HOCKET_CHECK(transport.num_ranks() <= kMaxRanks);
  HOCKET_CHECK((!options.present || options.present->has(transport.rank())));
  auto state = std::make_unique<State>(transport, options);
  HOCKET_TRY(state->memory, SlotMemory::create(bytes_for(state->num_ranks, options)));
  for (size_t lane = 0; lane < options.max_bytes.size(); ++lane) {
    for (size_t kind = 0; kind < kNumMessageKinds; ++kind) {
      State::Exchange& e = state->exchanges[lane].at(kind);
      e.lane = static_cast<int>(lane), e.kind = static_cast<MessageKind>(kind);
      e.max_bytes = options.max_bytes[lane].at(kind);
      if (e.max_bytes > 0) state->make_slots(e);
    }
  }
  return std::unique_ptr<AllToAll>(new AllToAll(std::move(state)));
}

AllToAll::AllToAll(std::unique_ptr<State> state) : state_(std::move(state)) {}
AllToAll::~AllToAll() {
  state_->transport.withdraw();
}

int AllToAll::rank() const {
  return state_->rank;
}
int AllToAll::num_ranks() const {
  return state_->num_ranks;
}
bool AllToAll::has(int rank) const {
  return state_->has(rank);
}
int AllToAll::lost_peer() const {
  return state_->failed ? state_->lost_peer : State::kNobody;
}

Result<void> AllToAll::start(int lane, MessageKind kind, Stamp stamp,
                             std::span<const Parts> parts) {
  State& s = *state_;
  if (s.failed) return std::unexpected(*s.failed);
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(parts.size() == static_cast<size_t>(s.num_ranks));
  HOCKET_CHECK(e.phase == State::Phase::idle);
  if (kind != MessageKind::agree) {
    const bool is_dispatch = kind == MessageKind::dispatch;
    const auto other = is_dispatch ? MessageKind::combine : MessageKind::dispatch;
    HOCKET_CHECK(s.exchanges[static_cast<size_t>(lane)].at(static_cast<size_t>(other)).phase ==
                 State::Phase::idle);
  }
  if (s.aborted()) {
    return s.give_up(error(ErrorCode::lost_rank, "the step was aborted before the {} of rank {}",
                           name_of_message(kind, stamp.step, stamp.layer), s.rank),
                     State::kNobody);
  }
  const TimePoint start = s.transport.now();
  // The peers have this rank's last message of the lane, or they would not have let it get here;
  // only an agreement may still be under way.
  State::Exchange* const it[] = {&e};
  if (auto sent = s.until(it, [&] { return s.all_sent(e); }); !sent) return sent;

  e.times = {.start = start, .peers_posted = start, .last_byte = start};
  e.stamp = stamp;
  std::optional<Error> lost;
  int lost_peer = State::kNobody;
  // Each rank begins with another peer, so that no link is crowded.
  for (int i = 1; i < s.num_ranks; ++i) {
    const int peer = (s.rank + i) % s.num_ranks;
    if (!s.has(peer)) continue;
    auto sending = s.send(e, peer, parts[static_cast<size_t>(peer)]);
    // The other peers get their messages, or they would miss this rank.
    if (sending || lost) continue;
    lost = std::move(sending).error();
    lost->message += fmt::format("; it was to take the {} of rank {}",
                                 name_of_message(kind, stamp.step, stamp.layer), s.rank);
    lost_peer = peer;
  }
  if (lost) return s.give_up(*std::move(lost), lost_peer);
  e.times.posted = s.transport.now();
  if (s.options.watch != nullptr) s.options.watch->started(lane, kind, stamp);
  e.phase = State::Phase::open;
  e.wait_in.reset();
  e.num_missing = s.num_peers;
  return {};
}

Result<void> AllToAll::wait(int lane, MessageKind kind, Stamp stamp) {
  State& s = *state_;
  if (s.failed) return std::unexpected(*s.failed);
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::open);
  HOCKET_CHECK(stamp.step == e.stamp.step && stamp.layer == e.stamp.layer);
  if (!e.wait_in) {  // else wait_any() found it complete
    e.times.wait_in = s.transport.now();
    State::Exchange* const it[] = {&e};
    if (auto here = s.until(it, [&] { return s.all_here(e); }); !here) return here;
    e.times.wait_out = s.transport.now();
  }
  e.phase = State::Phase::done;
  if (s.options.watch != nullptr) s.options.watch->finished(lane, kind, stamp, e.times);
  return {};
}

Result<int> AllToAll::wait_any(std::span<const int> lanes, MessageKind kind, Stamp stamp) {
  State& s = *state_;
  if (s.failed) return std::unexpected(*s.failed);
  HOCKET_CHECK(lanes.size() > 0);
  HOCKET_CHECK(lanes.size() <= static_cast<size_t>(kMaxLanes));
  std::array<State::Exchange*, kMaxLanes> all{};
  for (size_t i = 0; i < lanes.size(); ++i) {
    State::Exchange& e = s.exchange(lanes[i], kind);
    HOCKET_CHECK(e.phase == State::Phase::open);
    HOCKET_CHECK(stamp.step == e.stamp.step && stamp.layer == e.stamp.layer);
    all[i] = &e;
  }
  const State::Exchanges open(all.data(), lanes.size());
  const TimePoint wait_in = s.transport.now();
  State::Exchange* found = nullptr;
  const auto any_here = [&]() -> Result<bool> {
    for (State::Exchange* e : open) {
      HOCKET_TRY(const bool is_here, s.all_here(*e));
      if (is_here) return found = e, true;
    }
    return false;
  };
  if (auto here = s.until(open, any_here); !here) return std::unexpected(here.error());
  if (!found->wait_in) {
    found->wait_in = found->times.wait_in = wait_in;
    found->times.wait_out = s.transport.now();
  }
  return found->lane;
}

bool AllToAll::ready(int lane, MessageKind kind) {
  State& s = *state_;
  if (s.failed || s.aborted()) return true;
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::open);
  s.transport.progress();
  auto here = s.all_here(e);
  if (!here) s.failed = here.error();
  return !here || *here;
}

bool AllToAll::may_start(int lane, MessageKind kind) {
  State& s = *state_;
  if (s.failed || s.aborted()) return true;
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::idle);
  s.transport.progress();
  auto sent = s.all_sent(e);
  if (!sent) s.failed = sent.error();
  return !sent || *sent;
}

bool AllToAll::peer_started(int lane, MessageKind kind) {
  State& s = *state_;
  if (s.failed) return true;
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::idle);
  s.transport.progress();
  for (int peer = 0; peer < s.num_ranks; ++peer) {
    State::Peer& p = e.peers[static_cast<size_t>(peer)];
    if (!s.is_peer(peer)) continue;
    if (!p.early) {
      auto arrival = s.transport.arrived(s.channel(e, peer));
      if (!arrival) return true;  // start() or wait() reports it, or why the step is given up
      p.early = *arrival;
    }
    if (p.early) return true;
  }
  return s.aborted();
}

std::span<const std::byte> AllToAll::from(int lane, MessageKind kind, int peer) const {
  State& s = *state_;
  if (s.failed || !s.is_peer(peer)) return {};
  const State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::done);
  const State::Peer& p = e.peers.at(static_cast<size_t>(peer));
  return p.slot.subspan(State::kHeadBytes, p.num_bytes);
}

void AllToAll::release(int lane, MessageKind kind) {
  State& s = *state_;
  if (s.failed) return;
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::done);
  e.phase = State::Phase::idle;
  for (int peer = 0; peer < s.num_ranks; ++peer) {
    State::Peer& p = e.peers[static_cast<size_t>(peer)];
    p.is_here = false;
    if (s.is_peer(peer)) s.transport.expect(s.channel(e, peer), p.slot);
  }
}

void AllToAll::progress() {
  state_->transport.progress();
  if (state_->options.watch != nullptr) state_->options.watch->progressed();
}

void AllToAll::progress_inside() {
  state_->transport.progress();
}

const ExchangeTimes& AllToAll::times(int lane, MessageKind kind) const {
  return state_->exchange(lane, kind).times;
}

}  // namespace hocket
