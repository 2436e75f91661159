#include "compute/comm/link_simulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "base/mix.h"
#include "compute/comm/message_head.h"

namespace hocket {

namespace {

constexpr Duration kMaxTransferTime =
    std::chrono::hours(10);  // longest time of a message on a link: clocks do not overflow

void check_links(const LinkModel& links) {
  HOCKET_CHECK(links.bytes_per_s >= 0 && std::isfinite(links.bytes_per_s));
  HOCKET_CHECK(links.bytes_scale > 0 && std::isfinite(links.bytes_scale));
  HOCKET_CHECK(links.latency.count() >= 0);
  HOCKET_CHECK(links.jitter.count() >= 0);
  HOCKET_CHECK(links.drop >= 0 && links.drop <= 1);
}

}  // namespace

LinkSimulation::LinkSimulation(int num_ranks, const LinkModel& links)
    : num_ranks_(num_ranks), links_(links) {
  HOCKET_CHECK(num_ranks > 0);
  check_links(links);
  ends_.resize(static_cast<size_t>(num_ranks));
  const size_t num_paths_each = static_cast<size_t>(num_ranks) * kMaxLanes * kNumMessageKinds;
  paths_.resize(num_paths_each * static_cast<size_t>(num_ranks));
  events_.reserve(paths_.size());
  for (End& end : ends_) end.posted.reserve(num_paths_each);
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      for (int i = 0; i < kMaxLanes * kNumMessageKinds; ++i) {
        const auto kind = static_cast<MessageKind>(i % kNumMessageKinds);
        Path& p = path(from, to, {.lane = i / kNumMessageKinds, .kind = kind});
        p.from = from, p.to = to, p.kind = kind;
      }
    }
  }
}

const LinkSimulation::Path& LinkSimulation::path(int from, int to, const Channel& channel) const {
  HOCKET_CHECK(from >= 0 && from < num_ranks_);
  HOCKET_CHECK(to >= 0 && to < num_ranks_);
  HOCKET_CHECK(channel.lane >= 0 && channel.lane < kMaxLanes);
  const int kind = static_cast<int>(channel.kind);
  HOCKET_CHECK(kind < kNumMessageKinds);
  const int index = ((from * num_ranks_ + to) * kMaxLanes + channel.lane) * kNumMessageKinds + kind;
  return paths_[static_cast<size_t>(index)];
}

LinkSimulation::Path& LinkSimulation::path(int from, int to, const Channel& channel) {
  return const_cast<Path&>(std::as_const(*this).path(from, to, channel));
}

template <class Visit>
void LinkSimulation::each_path_of(int rank, Visit&& visit) {
  for (Path& p : paths_) {
    if (p.from == rank || p.to == rank) visit(p);
  }
}

Result<void> LinkSimulation::reachable(int rank, int peer) const {
  if (ends_[rank].lost) return fail(ErrorCode::lost_rank, "rank {}, this one, was lost", rank);
  if (ends_[peer].lost) {
    return fail(ErrorCode::lost_rank, "rank {} is lost: its connection to rank {} broke", peer,
                rank);
  }
  if (ends_[peer].gone) {
    return fail(ErrorCode::lost_rank, "rank {} is lost: it closed its connection to rank {}", peer,
                rank);
  }
  return {};
}

void LinkSimulation::expect(int rank, const Channel& from, std::span<std::byte> slot) {
  Path& p = path(from.peer, rank, from);
  HOCKET_CHECK(from.peer != rank);
  HOCKET_CHECK(!p.expected);
  HOCKET_CHECK(!p.landed);
  p.slot = slot;
  p.expected = true;
  // Only an agreement may come early.
  if (p.kind == MessageKind::agree) p.kept.reserve(slot.size());
  if (!p.has_kept) return;
  fill_slot(p, p.kept_arrival);
  p.has_kept = false;
  if (p.flight != Flight::blocked) return;
  p.flight = Flight::to_slot;
  push_event(p);
}

Result<std::optional<Transport::Arrival>> LinkSimulation::arrived(int rank, const Channel& from) {
  Path& p = path(from.peer, rank, from);
  if (p.landed) {
    if (p.landing.num_bytes > p.slot.size()) {
      return fail(ErrorCode::lost_rank, "rank {} sent rank {} {} bytes where {} have room",
                  from.peer, rank, p.landing.num_bytes, p.slot.size());
    }
    p.landed = false;
    return p.landing;
  }
  HOCKET_CHECK(p.expected);
  const bool under_way = p.flight != Flight::none && !ends_[rank].lost;
  if (auto there = reachable(rank, from.peer); !there && !under_way) return fail(there.error());
  return std::nullopt;
}

Result<void> LinkSimulation::post(int rank, const Channel& to,
                                  std::span<const std::span<const std::byte>> parts) {
  Path& p = path(rank, to.peer, to);
  HOCKET_CHECK(to.peer != rank);
  HOCKET_CHECK(parts.size() <= static_cast<size_t>(kMaxPieces));
  HOCKET_TRY_VOID(reachable(rank, to.peer));
  HOCKET_CHECK(p.flight == Flight::none);
  std::ranges::copy(parts, p.parts.begin());
  p.num_parts = static_cast<int>(parts.size());
  p.num_bytes = 0;
  for (const auto part : parts) p.num_bytes += part.size();
  p.flight = Flight::posted;
  ends_[rank].posted.push_back(static_cast<int>(&p - paths_.data()));
  return {};
}

Result<bool> LinkSimulation::sent(int rank, const Channel& to) const {
  if (path(rank, to.peer, to).flight == Flight::none) return true;
  HOCKET_TRY_VOID(reachable(rank, to.peer));
  return false;
}

void LinkSimulation::withdraw(int rank) {
  each_path_of(rank, [&](Path& p) {
    if (p.to == rank) {
      p.expected = p.landed = p.has_kept = false;
      p.slot = {};
    } else if (p.flight != Flight::none && p.own.empty()) {
      for (const auto part : std::span(p.parts).first(static_cast<size_t>(p.num_parts))) {
        p.own.insert(p.own.end(), part.begin(), part.end());
      }
      p.parts[0] = p.own;
      p.num_parts = 1;
    }
  });
}

// Time and events.

bool LinkSimulation::later(const Event& a, const Event& b) {
  return std::tie(a.at, a.from, a.ticket) > std::tie(b.at, b.from, b.ticket);
}

void LinkSimulation::push_event(const Path& p) {
  events_.push_back({.at = p.at,
                     .path = static_cast<int>(&p - paths_.data()),
                     .from = p.from,
                     .ticket = p.ticket});
  std::ranges::push_heap(events_, later);
}

Duration LinkSimulation::time_of(size_t bytes) const {
  if (links_.bytes_per_s == 0) return {};
  const size_t head = std::min(bytes, sizeof(MessageHead));
  const double modelled =
      static_cast<double>(head) + static_cast<double>(bytes - head) * links_.bytes_scale;
  const double ns = modelled * 1e9 / links_.bytes_per_s;
  if (ns >= static_cast<double>(kMaxTransferTime.count())) return kMaxTransferTime;
  return Duration(std::llround(ns));
}

// Returns a number in [0, 1) that depends on the message alone, not on the sequence of calls.
double LinkSimulation::draw(const Path& p, uint64_t which) const {
  const auto channel = static_cast<uint64_t>(&p - paths_.data());
  const uint64_t seed = mix64(links_.seed + kMixStep * (2 * channel + which + 1));
  return static_cast<double>(mix64(seed + kMixStep * p.num_messages) >> 11) * 0x1p-53;
}

void LinkSimulation::commit(TimePoint now) {
  for (End& end : ends_) {
    for (const int index : end.posted) {
      Path& p = paths_[static_cast<size_t>(index)];
      if (p.flight == Flight::posted) take_link(p, now);
    }
    end.posted.clear();
  }
}

void LinkSimulation::take_link(Path& p, TimePoint now) {
  End& sender = ends_[p.from];
  const TimePoint begin = std::max(now, sender.out_busy);
  sender.out_busy = begin + time_of(p.num_bytes);
  ++p.num_messages;
  const bool dropped = draw(p, 0) < links_.drop;
  if (dropped || sender.cut || ends_[p.to].cut) return finish(p);
  const Duration jitter(std::llround(static_cast<double>(links_.jitter.count()) * draw(p, 1)));
  p.at = p.last_first = std::max(begin + links_.latency + jitter, p.last_first);
  p.flight = Flight::to_link;
  p.ticket = next_ticket_++;
  push_event(p);
}

void LinkSimulation::advance(TimePoint now) {
  while (!events_.empty() && events_.front().at <= now) {
    std::ranges::pop_heap(events_, later);
    const Event event = events_.back();
    events_.pop_back();
    Path& p = paths_[static_cast<size_t>(event.path)];
    if (p.ticket != event.ticket) continue;  // it was lost since
    if (p.flight == Flight::to_link) {
      End& receiver = ends_[p.to];
      p.at = std::max(p.at, receiver.in_busy) + time_of(p.num_bytes);
      receiver.in_busy = p.at;
      p.flight = Flight::to_slot;
      push_event(p);
    } else {
      land(p);
    }
  }
}

void LinkSimulation::land(Path& p) {
  const Transport::Arrival arrival{.num_bytes = p.num_bytes, .when = p.at};
  if (p.has_kept) {  // no slot is free: it waits, like bytes in a connection
    p.flight = Flight::blocked;
    return;
  }
  p.kept.clear();
  const bool fits = p.expected && p.num_bytes <= p.slot.size();
  std::byte* slot = p.slot.data();
  for (const auto part : std::span(p.parts).first(static_cast<size_t>(p.num_parts))) {
    if (!p.expected) {
      p.kept.insert(p.kept.end(), part.begin(), part.end());
    } else if (fits && !part.empty()) {
      std::memcpy(slot, part.data(), part.size());
      slot += part.size();
    }
  }
  if (p.expected) {
    p.expected = false;
    p.landed = true;
    p.landing = arrival;
  } else {
    p.has_kept = true;
    p.kept_arrival = arrival;
  }
  ends_[p.to].has_events = true;
  finish(p);
}

// Fills the slot from the message that was kept aside.
void LinkSimulation::fill_slot(Path& p, Transport::Arrival arrival) {
  if (arrival.num_bytes <= p.slot.size() && arrival.num_bytes > 0) {
    std::memcpy(p.slot.data(), p.kept.data(), arrival.num_bytes);
  }
  p.expected = false;
  p.landed = true;
  p.landing = arrival;
  ends_[p.to].has_events = true;
}

void LinkSimulation::finish(Path& p) {
  p.flight = Flight::none;
  p.ticket = 0;
  p.own.clear();
  ends_[p.from].has_events = true;
}

TimePoint LinkSimulation::next_event() const {
  return events_.empty() ? TimePoint::max() : events_.front().at;
}

TimePoint LinkSimulation::next_event_of(int rank) const {
  TimePoint next = TimePoint::max();
  for (const Event& event : events_) {
    const Path& p = paths_[static_cast<size_t>(event.path)];
    if (p.from == rank || p.to == rank) next = std::min(next, event.at);
  }
  return next;
}

// Faults.

void LinkSimulation::set_links(const LinkModel& links) {
  check_links(links);
  links_ = links;
}

void LinkSimulation::cut(int rank, bool is_cut) {
  ends_[rank].cut = is_cut;
  if (!is_cut) return;
  each_path_of(rank, [&](Path& p) {
    if (p.flight == Flight::to_link || p.flight == Flight::to_slot) finish(p);
  });
}

void LinkSimulation::stall(int rank, TimePoint until) {
  End& end = ends_[rank];
  end.out_busy = std::max(end.out_busy, until);
  end.in_busy = std::max(end.in_busy, until);
}

void LinkSimulation::lose(int rank) {
  ends_[rank].lost = true;
  each_path_of(rank, [&](Path& p) {
    if (p.flight != Flight::none) finish(p);
  });
  for (End& end : ends_) end.has_events = true;
}

void LinkSimulation::leave(int rank) {
  withdraw(rank);
  ends_[rank].gone = true;
  each_path_of(rank, [&](Path& p) {
    if (p.to == rank && p.flight != Flight::none) finish(p);
  });
  for (End& end : ends_) end.has_events = true;
}

void LinkSimulation::enter(int rank) {
  End& end = ends_[rank];
  end.gone = end.lost = end.has_events = false;
  each_path_of(rank, [&](Path& p) {
    if (p.from == rank && p.flight != Flight::none) finish(p);
  });
}

}  // namespace hocket
