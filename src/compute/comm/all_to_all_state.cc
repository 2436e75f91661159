#include "compute/comm/all_to_all_state.h"

#include <algorithm>
#include <cstring>

namespace hocket {

// Returns the expected head, without length and sum.
MessageHead AllToAll::State::head_of(const Exchange& e, int from) const {
  return {.lane = static_cast<uint8_t>(e.lane),
          .kind = static_cast<uint8_t>(e.kind),
          .epoch = options.epoch,
          .from = static_cast<uint16_t>(from),
          .layer = e.stamp.layer,
          .step = e.stamp.step};
}

// Returns in words what `e` still waits for.
std::string AllToAll::State::owed(const Exchange& e) const {
  const bool is_in = e.phase == Phase::open;
  std::string names;
  int count = 0;
  for (int peer = 0; peer < num_ranks; ++peer) {
    if (!owes(e, peer)) continue;
    names += fmt::format("{}rank {}", count++ == 0 ? "" : ", ", peer);
  }
  const char* verb = is_in ? (count == 1 ? "owes" : "owe") : (count == 1 ? "has" : "have");
  return fmt::format(
      "{} {} the {} (lane {}) {} rank {}", names, is_in ? verb : fmt::format("{} not taken", verb),
      name_of_message(e.kind, e.stamp.step, e.stamp.layer), e.lane, is_in ? "to" : "of", rank);
}

std::string AllToAll::State::owed(Exchanges of) const {
  std::string all;
  for (const Exchange* e : of) {
    if (first_owing(*e) != kNobody) all += fmt::format("{}{}", all.empty() ? "" : "; ", owed(*e));
  }
  return all;
}

int AllToAll::State::first_owing(Exchanges of) const {
  int first = kNobody;
  for (const Exchange* e : of) {
    const int peer = first_owing(*e);
    if (peer != kNobody && (first == kNobody || peer < first)) first = peer;
  }
  return first;
}

Result<bool> AllToAll::State::all_here(Exchange& e) {
  for (int peer = 0; peer < num_ranks && e.num_missing > 0; ++peer) {
    Peer& p = e.peers[static_cast<size_t>(peer)];
    if (!is_peer(peer) || p.is_here) continue;
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
      return fail(ErrorCode::lost_rank,
                  "rank {} received an invalid message from rank {} ({}, lane {}): {}", rank, peer,
                  name_of_message(e.kind, e.stamp.step, e.stamp.layer), e.lane, why);
    }
    p.is_here = true;
    p.num_bytes = num_bytes - kHeadBytes;
    note_times(e, peer, (**arrival).when);
    --e.num_missing;
  }
  return e.num_missing == 0;
}

void AllToAll::State::note_times(Exchange& e, int peer, TimePoint arrived) {
  const Peer& p = e.peers[static_cast<size_t>(peer)];
  MessageHead head;
  std::memcpy(&head, p.slot.data(), sizeof(head));
  PeerClock& clock = clocks[static_cast<size_t>(peer)];
  clock.heard(arrived, head.pushed_ns, head.min_ns);
  const TimePoint pushed = one_clock ? TimePoint(Duration(head.pushed_ns)) : clock.pushed();
  const bool is_first = e.num_missing == num_peers;
  e.times.in_bytes += p.num_bytes;
  e.times.last_byte = is_first ? arrived : std::max(e.times.last_byte, arrived);
  e.times.peers_posted = is_first ? pushed : std::max(e.times.peers_posted, pushed);
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
  HOCKET_CHECK(num_bytes <= e.max_bytes);
  p.head = head_of(e, rank);
  p.head.num_bytes = num_bytes;
  const TimePoint now = transport.now();
  p.head.pushed_ns = now.time_since_epoch().count();
  p.head.min_ns = clocks[static_cast<size_t>(peer)].min_seen(now);
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

void AllToAll::State::make_slots(Exchange& e) {
  e.peers.resize(static_cast<size_t>(num_ranks));
  for (int peer = 0; peer < num_ranks; ++peer) {
    if (!is_peer(peer)) continue;
    Peer& p = e.peers[static_cast<size_t>(peer)];
    p.slot = memory.take(kHeadBytes + e.max_bytes);
    if (e.kind == MessageKind::agree) p.out = memory.take(e.max_bytes);
    transport.expect(channel(e, peer), p.slot);
  }
}

}  // namespace hocket
