// Messages that are there before anybody asks: for runs of a step that only compute. Wraps a rank's
// transport; agreements always take it. All ranks change the mode together, between passes.
//
//   live      everything goes through
//   record    the same; what a pass sends and receives is remembered
//   replay    nothing leaves; what came in the remembered pass is there at once
//   traffic   the same, and as many bytes as the pass would send travel over a second transport,
//             where nobody waits for them
//
// A remembered message is copied into its slot; the time that this took is told, so that it can be
// taken off. Passes of a plan are alike but for the step's number, since their batch is.
// Thread: the rank's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "compute/comm/transport.h"

namespace hocket {

class ReplayTransport final : public Transport {
 public:
  enum class Mode : uint8_t { live, record, replay, traffic };
  // Both outlive it. traffic: null, where that mode is not used.
  ReplayTransport(Transport& below, Transport* traffic);

  // Before a pass of this step. To record, what was remembered is forgotten.
  void begin_pass(Mode mode, uint64_t step);
  // After it, and after all ranks have said so: until what left is all away, and traffic that was
  // to come is here.   Errors: lost_rank.
  Result<void> end_pass();
  // Of the pass since begin_pass(): copying remembered messages.
  Duration copied() const { return copied_; }

  // Of the remembered pass: how long its messages were, in their order.
  struct Sent {
    int peer, lane;
    MessageKind kind;
    size_t num_bytes;  // without heads
  };
  const std::vector<Sent>& sent_messages() const { return record_.sent; }

  // A pass as it was remembered, to be put back later.
  struct Record {
    std::vector<Sent> sent;
    std::vector<std::vector<std::vector<std::byte>>> came;  // [channel][nth]
  };
  Record take_record() { return std::move(record_); }
  void set_record(Record record) { record_ = std::move(record); }

  int rank() const override { return below_.rank(); }
  int num_ranks() const override { return below_.num_ranks(); }
  TransportCaps caps() const override { return below_.caps(); }
  void expect(const Channel& from, std::span<std::byte> slot) override;
  Result<std::optional<Arrival>> arrived(const Channel& from) override;
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override;
  Result<bool> sent(const Channel& to) override;
  void withdraw() override { below_.withdraw(); }
  bool progress() override;
  void wait(Duration most) override;
  void wake() override { below_.wake(); }
  TimePoint now() const override { return below_.now(); }

 private:
  struct Traffic {  // of a channel
    std::deque<size_t> to_send;
    int64_t to_come = 0;
    bool is_expected = false, under_way = false;
    bool is_away = true;  // below, of what went through
    std::vector<std::byte> slot, bytes;
  };
  size_t index_of(const Channel& channel) const;
  Channel channel_of(size_t index) const;
  bool is_played(const Channel& channel) const {
    return (mode_ == Mode::replay || mode_ == Mode::traffic) && channel.kind != MessageKind::agree;
  }
  void patch(std::span<std::byte> message) const;
  Result<void> move_traffic();

  Transport& below_;
  Transport* traffic_transport_;
  Mode mode_ = Mode::live;
  uint64_t step_ = 0;
  Duration copied_{};
  Record record_;
  std::vector<std::span<std::byte>> slots_;  // [channel]
  std::vector<size_t> next_;                 // [channel] message that comes next
  std::vector<Traffic> traffic_;             // [channel]
};

}  // namespace hocket
