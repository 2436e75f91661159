#include "compute/comm/all_to_all.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "compute/comm/message_head.h"
#include "compute/comm/slot_memory.h"

namespace hocket {

namespace {

constexpr size_t kHeadBytes = sizeof(MessageHead);
constexpr int kNobody = -1;
constexpr int kMostRanks = 4096;                // with the next, sums of lengths do not overflow
constexpr size_t kMostBytes = size_t{1} << 44;  // of one message
constexpr Duration kLookForAbort = std::chrono::milliseconds(50);  // if nobody wakes this rank

std::string name_of(MessageKind kind, Stamp stamp) {
  return name_of_message(kind, stamp.step, stamp.layer);
}

// Tells of a wait from its first sleep until it goes out of scope.
struct ToldWait {
  ExchangeWatch* watch;
  bool is_told = false;
  void sleeps() {
    if (watch != nullptr && !std::exchange(is_told, true)) watch->waits();
  }
  ~ToldWait() {
    if (is_told) watch->goes_on();
  }
};

}  // namespace

struct AllToAll::State {
  enum class Phase : uint8_t { idle, open, done };
  struct Peer {
    std::span<std::byte> slot;  // head and message
    size_t num_bytes = 0;       // of the message that is there
    bool is_here = false;
    std::optional<Transport::Arrival> early;  // seen before start(); not yet looked into
    MessageHead head;                         // of what goes out
    std::span<std::byte> out;                 // room for a copy of it; agreements only
    bool under_way = false;
  };
  struct Exchange {
    int lane = 0;
    MessageKind kind = MessageKind::dispatch;
    Phase phase = Phase::idle;
    Stamp stamp;
    int num_missing = 0;
    std::vector<Peer> peers;
    ExchangeTimes times;
  };

  State(Transport& transport_in, const Options& options_in)
      : transport(transport_in),
        options(options_in),
        rank(transport.rank()),
        num_ranks(transport.num_ranks()) {}

  Exchange& exchange(int lane, MessageKind kind) {
    HOCKET_CHECK(lane >= 0 && lane < options.num_lanes);
    const int index = lane * kNumMessageKinds + static_cast<int>(kind);
    return exchanges[static_cast<size_t>(index)];
  }
  Channel channel(const Exchange& e, int peer) const {
    return {.peer = peer, .lane = e.lane, .kind = e.kind};
  }
  bool aborted() const {
    return options.abort != nullptr && options.abort->load(std::memory_order_acquire) != 0;
  }
  std::unexpected<Error> give_up(Error e, int peer) {
    failed = std::move(e);
    lost_peer = peer;
    return std::unexpected(*failed);
  }
  // Its message, or the room for this rank's last one.
  bool owes(const Exchange& e, int peer) const {
    const Peer& p = e.peers[static_cast<size_t>(peer)];
    return peer != rank && (e.phase == Phase::open ? !p.is_here : p.under_way);
  }
  int first_owing(const Exchange& e) const {
    int peer = 0;
    while (peer < num_ranks && !owes(e, peer)) ++peer;
    return peer < num_ranks ? peer : kNobody;
  }

  Result<bool> all_here(Exchange& e);
  Result<bool> all_sent(Exchange& e);
  MessageHead head_of(const Exchange& e, int from) const;
  Result<void> send(Exchange& e, int peer, Parts parts);
  template <class Done>
  Result<void> until(Exchange& e, Done done);
  std::string owed(const Exchange& e) const;

  Transport& transport;
  const Options options;
  const int rank, num_ranks;
  SlotMemory memory;
  std::vector<Exchange> exchanges;  // [lane][kind]
  std::optional<Error> failed;
  int lost_peer = kNobody;  // blamed by `failed`; set by whoever finds out, before it
};

// Without length and sum.
MessageHead AllToAll::State::head_of(const Exchange& e, int from) const {
  return {.lane = static_cast<uint8_t>(e.lane),
          .kind = static_cast<uint8_t>(e.kind),
          .epoch = options.epoch,
          .from = static_cast<uint16_t>(from),
          .layer = e.stamp.layer,
          .step = e.stamp.step};
}

// What `e` still waits for, in words.
std::string AllToAll::State::owed(const Exchange& e) const {
  const bool is_in = e.phase == Phase::open;
  std::string names;
  int count = 0;
  for (int peer = 0; peer < num_ranks; ++peer) {
    if (!owes(e, peer)) continue;
    names += fmt::format("{}rank {}", count++ == 0 ? "" : ", ", peer);
  }
  const char* verb = is_in ? (count == 1 ? "owes" : "owe") : (count == 1 ? "has" : "have");
  return fmt::format("{} {} the {} (lane {}) {} rank {}", names,
                     is_in ? verb : fmt::format("{} not taken", verb), name_of(e.kind, e.stamp),
                     e.lane, is_in ? "to" : "of", rank);
}

// Moves what can move until done(e). Errors: lost_rank when the step is given up, which goes before
// what is seen of ranks that gave it up already; else its own, or after the stall timeout.
template <class Done>
Result<void> AllToAll::State::until(Exchange& e, Done done) {
  const TimePoint deadline = transport.now() + options.stall_timeout;
  ToldWait told{options.watch};
  for (;;) {
    transport.progress();
    auto is_done = done(e);
    if (is_done && *is_done) return {};
    if (aborted()) {
      return give_up(error(ErrorCode::lost_rank, "the step was given up while {}", owed(e)),
                     kNobody);
    }
    if (!is_done) return give_up(std::move(is_done).error(), lost_peer);
    const Duration left = deadline - transport.now();
    if (left.count() <= 0) {
      return give_up(error(ErrorCode::lost_rank, "{} since {:.3f} s", owed(e),
                           to_seconds(options.stall_timeout)),
                     first_owing(e));
    }
    told.sleeps();
    transport.wait(options.abort == nullptr ? left : std::min(left, kLookForAbort));
  }
}

Result<bool> AllToAll::State::all_here(Exchange& e) {
  for (int peer = 0; peer < num_ranks && e.num_missing > 0; ++peer) {
    Peer& p = e.peers[static_cast<size_t>(peer)];
    if (peer == rank || p.is_here) continue;
    Result<std::optional<Transport::Arrival>> arrival = std::exchange(p.early, std::nullopt);
    if (!arrival->has_value()) arrival = transport.arrived(channel(e, peer));
    if (!arrival) {
      lost_peer = peer;
      Error lost = std::move(arrival).error();
      lost.message += fmt::format("; {}", owed(e));
      return fail(std::move(lost));
    }
    if (!arrival->has_value()) continue;
    const size_t num_bytes = (**arrival).num_bytes;
    if (const auto why = mismatch(p.slot.first(num_bytes), head_of(e, peer)); !why.empty()) {
      lost_peer = peer;
      return fail(ErrorCode::lost_rank, "rank {} cannot use what rank {} sent as {} (lane {}): {}",
                  rank, peer, name_of(e.kind, e.stamp), e.lane, why);
    }
    p.is_here = true;
    p.num_bytes = num_bytes - kHeadBytes;
    --e.num_missing;
    e.times.in_bytes += p.num_bytes;
    e.times.last_byte = std::max(e.times.last_byte, (**arrival).when);
  }
  return e.num_missing == 0;
}

Result<bool> AllToAll::State::all_sent(Exchange& e) {
  bool all = true;
  for (int peer = 0; peer < num_ranks; ++peer) {
    Peer& p = e.peers[static_cast<size_t>(peer)];
    if (!p.under_way) continue;
    const Result<bool> is_sent = transport.sent(channel(e, peer));
    if (!is_sent) return lost_peer = peer, std::unexpected(is_sent.error());
    p.under_way = !*is_sent;
    all = all && *is_sent;
  }
  return all;
}

Result<void> AllToAll::State::send(Exchange& e, int peer, Parts parts) {
  Peer& p = e.peers[static_cast<size_t>(peer)];
  HOCKET_CHECK(parts.size() < static_cast<size_t>(kMaxPieces));
  size_t num_bytes = 0;
  for (const auto part : parts) num_bytes += part.size();
  HOCKET_CHECK(num_bytes <= options.most_bytes[static_cast<size_t>(e.kind)]);
  p.head = head_of(e, rank);
  p.head.num_bytes = num_bytes;
  p.head.sum = sum_of(p.head);

  std::array<std::span<const std::byte>, kMaxPieces> all;
  size_t num_parts = 0;
  all[num_parts++] = std::as_bytes(std::span(&p.head, 1));
  if (e.kind == MessageKind::agree) {
    std::byte* to = p.out.data();
    for (const auto part : parts) to = std::ranges::copy(part, to).out;
    all[num_parts++] = p.out.first(num_bytes);
  } else {
    for (const auto part : parts) all[num_parts++] = part;
  }
  HOCKET_TRY_VOID(transport.send(channel(e, peer), std::span(all).first(num_parts)));
  p.under_way = true;
  e.times.out_bytes += num_bytes;
  return {};
}

size_t AllToAll::bytes_for(int num_ranks, const Options& options) {
  size_t num_bytes =
      SlotMemory::bytes_of(options.most_bytes[static_cast<size_t>(MessageKind::agree)]);  // copies
  for (const size_t most : options.most_bytes) {
    HOCKET_CHECK(most <= kMostBytes);
    num_bytes += SlotMemory::bytes_of(kHeadBytes + most);
  }
  return num_bytes * static_cast<size_t>(options.num_lanes) * static_cast<size_t>(num_ranks - 1);
}

Result<std::unique_ptr<AllToAll>> AllToAll::create(Transport& transport, const Options& options) {
  HOCKET_CHECK(options.num_lanes > 0 && options.num_lanes <= kMaxLanes);
  HOCKET_CHECK(transport.num_ranks() <= kMostRanks);
  auto state = std::make_unique<State>(transport, options);
  HOCKET_TRY(state->memory, SlotMemory::create(bytes_for(state->num_ranks, options)));
  for (int lane = 0; lane < options.num_lanes; ++lane) {
    for (int k = 0; k < kNumMessageKinds; ++k) {
      const auto kind = static_cast<MessageKind>(k);
      State::Exchange& e = state->exchanges.emplace_back();
      e.lane = lane, e.kind = kind;
      e.peers.resize(static_cast<size_t>(state->num_ranks));
      for (int peer = 0; peer < state->num_ranks; ++peer) {
        if (peer == state->rank) continue;
        State::Peer& p = e.peers[static_cast<size_t>(peer)];
        const size_t most = options.most_bytes[static_cast<size_t>(k)];
        p.slot = state->memory.take(kHeadBytes + most);
        if (kind == MessageKind::agree) p.out = state->memory.take(most);
      }
    }
  }
  for (const State::Exchange& e : state->exchanges) {
    for (int peer = 0; peer < state->num_ranks; ++peer) {
      const State::Peer& p = e.peers[static_cast<size_t>(peer)];
      if (peer != state->rank) transport.expect(state->channel(e, peer), p.slot);
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
int AllToAll::lost_peer() const {
  return state_->failed ? state_->lost_peer : kNobody;
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
    HOCKET_CHECK(s.exchange(lane, other).phase == State::Phase::idle);
  }
  if (s.aborted()) {
    return s.give_up(error(ErrorCode::lost_rank, "the step was given up before the {} of rank {}",
                           name_of(kind, stamp), s.rank),
                     kNobody);
  }
  const TimePoint start = s.transport.now();
  // What the last one sent is there, or this rank would not be here: only agreements may wait.
  if (auto sent = s.until(e, [&](State::Exchange& x) { return s.all_sent(x); }); !sent) return sent;

  e.times = {.start = start, .last_byte = start};
  e.stamp = stamp;
  std::optional<Error> lost;
  int lost_peer = kNobody;
  for (int i = 1; i < s.num_ranks; ++i) {  // each begins with another, so that no link is crowded
    const int peer = (s.rank + i) % s.num_ranks;
    auto sending = s.send(e, peer, parts[static_cast<size_t>(peer)]);
    if (sending || lost) continue;  // the others get theirs, or they would miss this rank
    lost = std::move(sending).error();
    lost->message +=
        fmt::format("; it was to take the {} of rank {}", name_of(kind, stamp), s.rank);
    lost_peer = peer;
  }
  if (lost) return s.give_up(*std::move(lost), lost_peer);
  e.times.posted = s.transport.now();
  if (s.options.watch != nullptr) s.options.watch->started(lane, kind, stamp);
  e.phase = State::Phase::open;
  e.num_missing = s.num_ranks - 1;
  return {};
}

Result<void> AllToAll::wait(int lane, MessageKind kind, Stamp stamp) {
  State& s = *state_;
  if (s.failed) return std::unexpected(*s.failed);
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::open);
  HOCKET_CHECK(stamp.step == e.stamp.step && stamp.layer == e.stamp.layer);
  e.times.wait_in = s.transport.now();
  if (auto here = s.until(e, [&](State::Exchange& x) { return s.all_here(x); }); !here) return here;
  e.times.wait_out = s.transport.now();
  e.phase = State::Phase::done;
  return {};
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

bool AllToAll::called(int lane, MessageKind kind) {
  State& s = *state_;
  if (s.failed) return true;
  State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::idle);
  s.transport.progress();
  for (int peer = 0; peer < s.num_ranks; ++peer) {
    State::Peer& p = e.peers[static_cast<size_t>(peer)];
    if (peer == s.rank) continue;
    if (!p.early) {
      auto arrival = s.transport.arrived(s.channel(e, peer));
      if (!arrival) return true;  // start() or wait() sees it too, or why the step is given up
      p.early = *arrival;
    }
    if (p.early) return true;
  }
  return s.aborted();
}

std::span<const std::byte> AllToAll::from(int lane, MessageKind kind, int peer) const {
  State& s = *state_;
  if (s.failed || peer == s.rank) return {};
  const State::Exchange& e = s.exchange(lane, kind);
  HOCKET_CHECK(e.phase == State::Phase::done);
  const State::Peer& p = e.peers.at(static_cast<size_t>(peer));
  return p.slot.subspan(kHeadBytes, p.num_bytes);
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
    if (peer != s.rank) s.transport.expect(s.channel(e, peer), p.slot);
  }
}

void AllToAll::progress() {
  state_->transport.progress();
}

const ExchangeTimes& AllToAll::times(int lane, MessageKind kind) const {
  return state_->exchange(lane, kind).times;
}

}  // namespace hocket
