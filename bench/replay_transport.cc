#include "bench/replay_transport.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/comm/message_head.h"

namespace hocket {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(1);

size_t length_of(std::span<const std::span<const std::byte>> parts) {
  size_t sum = 0;
  for (const auto part : parts) sum += part.size();
  return sum;
}

}  // namespace

ReplayTransport::ReplayTransport(Transport& below, Transport* traffic)
    : below_(below), traffic_transport_(traffic) {
  const size_t channels = static_cast<size_t>(num_ranks()) * kMaxLanes * kNumMessageKinds;
  slots_.resize(channels), next_.resize(channels), traffic_.resize(channels);
  record_.came.resize(channels);
}

size_t ReplayTransport::index_of(const Channel& c) const {
  const auto lane = static_cast<size_t>(c.peer) * kMaxLanes + static_cast<size_t>(c.lane);
  return lane * kNumMessageKinds + static_cast<size_t>(c.kind);
}

Channel ReplayTransport::channel_of(size_t index) const {
  const int i = static_cast<int>(index), lanes = i / kNumMessageKinds;
  return {.peer = lanes / kMaxLanes,
          .lane = lanes % kMaxLanes,
          .kind = static_cast<MessageKind>(i % kNumMessageKinds)};
}

void ReplayTransport::begin_pass(Mode mode, uint64_t step) {
  HOCKET_CHECK(mode != Mode::traffic || traffic_transport_ != nullptr);
  mode_ = mode, step_ = step, copied_ = {};
  std::ranges::fill(next_, 0);
  if (mode != Mode::record) return;
  record_.sent.clear();
  record_.came.assign(slots_.size(), {});
}

void ReplayTransport::expect(const Channel& from, std::span<std::byte> slot) {
  std::span<std::byte>& known = slots_[index_of(from)];
  if (is_played(from)) {  // the transport below still expects a message in this slot
    HOCKET_CHECK(known.data() == slot.data());
    return;
  }
  known = slot;
  below_.expect(from, slot);
}

// Writes this step's number into the head of a recorded message.
void ReplayTransport::patch(std::span<std::byte> message) const {
  MessageHead head;
  std::memcpy(&head, message.data(), sizeof(head));
  head.step = step_;
  head.sum = sum_of(head);
  std::memcpy(message.data(), &head, sizeof(head));
}

Result<std::optional<Transport::Arrival>> ReplayTransport::arrived(const Channel& from) {
  const size_t index = index_of(from);
  if (is_played(from)) {
    const TimePoint begin = now();
    const std::vector<std::byte>& message = record_.came[index].at(next_[index]++);
    const std::span<std::byte> slot = slots_[index].first(message.size());
    std::ranges::copy(message, slot.begin());
    patch(slot);
    const TimePoint end = now();
    copied_ += end - begin;
    return Arrival{.num_bytes = message.size(), .when = end};
  }
  HOCKET_TRY(auto arrival, below_.arrived(from));
  if (arrival && mode_ == Mode::record && from.kind != MessageKind::agree) {
    const auto message = slots_[index].first(arrival->num_bytes);
    record_.came[index].emplace_back(message.begin(), message.end());
  }
  return arrival;
}

Result<void> ReplayTransport::send(const Channel& to,
                                   std::span<const std::span<const std::byte>> parts) {
  if (!is_played(to)) {
    if (to.kind != MessageKind::agree) traffic_[index_of(to)].is_away = false;
    if (mode_ == Mode::record && to.kind != MessageKind::agree)
      record_.sent.push_back({to.peer, to.lane, to.kind, length_of(parts) - sizeof(MessageHead)});
    return below_.send(to, parts);
  }
  if (mode_ != Mode::traffic) return {};
  // The peer sends traffic on this channel too, as long as its recorded message.
  Traffic& traffic = traffic_[index_of(to)];
  traffic.to_send.push_back(length_of(parts));
  ++traffic.to_come;
  return move_traffic();
}

Result<bool> ReplayTransport::sent(const Channel& to) {
  return is_played(to) ? true : below_.sent(to);
}

bool ReplayTransport::progress() {
  if (mode_ == Mode::traffic && !move_traffic()) return true;
  return below_.progress();
}

// With traffic it waits at most kLook, since a peer may need this rank's traffic before it sends.
void ReplayTransport::wait(Duration max_wait) {
  below_.wait(mode_ == Mode::traffic ? std::min(max_wait, kLook) : max_wait);
}

Result<void> ReplayTransport::move_traffic() {
  traffic_transport_->progress();
  for (size_t i = 0; i < traffic_.size(); ++i) {
    Traffic& t = traffic_[i];
    const Channel channel = channel_of(i);
    while (t.to_come > 0) {
      if (!t.is_expected) {
        t.slot.resize(std::max(t.slot.size(), slots_[i].size()));
        traffic_transport_->expect(channel, t.slot);
        t.is_expected = true;
      }
      HOCKET_TRY(const auto arrival, traffic_transport_->arrived(channel));
      if (!arrival) break;
      t.is_expected = false;
      --t.to_come;
    }
    if (t.under_way) {
      HOCKET_TRY(const bool is_sent, traffic_transport_->sent(channel));
      t.under_way = !is_sent;
    }
    if (t.under_way || t.to_send.empty()) continue;
    t.bytes.resize(std::max(t.bytes.size(), t.to_send.front()));
    const std::span<const std::byte> part[] = {std::span(t.bytes).first(t.to_send.front())};
    t.to_send.pop_front();
    HOCKET_TRY_VOID(traffic_transport_->send(channel, part));
    t.under_way = true;
  }
  return {};
}

Result<void> ReplayTransport::end_pass() {
  if (mode_ == Mode::traffic) {
    const auto is_busy = [](const Traffic& t) {
      return t.under_way || t.to_come > 0 || !t.to_send.empty();
    };
    HOCKET_TRY_VOID(move_traffic());
    while (std::ranges::any_of(traffic_, is_busy)) {
      traffic_transport_->wait(kLook);
      below_.progress();  // the last agreement may not have left yet
      HOCKET_TRY_VOID(move_traffic());
    }
  }
  for (size_t i = 0; i < traffic_.size(); ++i)
    while (!traffic_[i].is_away) {
      HOCKET_TRY(traffic_[i].is_away, below_.sent(channel_of(i)));
      if (!traffic_[i].is_away) below_.wait(kLook), below_.progress();
    }
  mode_ = Mode::live;  // only agreements come until the next pass
  return {};
}

}  // namespace hocket
