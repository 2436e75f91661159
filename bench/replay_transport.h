// A transport that can replay recorded messages, for runs of a step that only compute. It wraps a
// rank's transport, which always carries agreements. All ranks change the mode together, between
// passes.
//
//   live      all messages go through
//   record    the same, and the messages that a pass sends and receives are recorded
//   replay    nothing leaves; messages of the recorded pass are there at once
//   traffic   as replay, while as many bytes as the pass would send travel over a second transport;
//             no computation waits for them
//
// A recorded message is copied into its slot. copied() returns the time that this took, so that it
// can be subtracted. Passes of a plan differ in the step's number only, since their batch is the
// same. Thread: the rank's.
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
  // Both transports outlive it. traffic: null if Mode::traffic is not used.
  ReplayTransport(Transport& below, Transport* traffic);

  // Call it before a pass of this step. Mode::record drops the previous record.
  void begin_pass(Mode mode, uint64_t step);
  // Call it after the pass and an agreement of all ranks. Waits until all messages and all traffic
  // have left, and all expected traffic has arrived.   Errors: lost_rank.
  Result<void> end_pass();
  // Returns the time spent since begin_pass() on copying recorded messages.
  Duration copied() const { return copied_; }

  // A message that the recorded pass sent.
  struct SentMessage {
    int peer, lane;
    MessageKind kind;
    size_t num_bytes;  // without the head
  };
  // Returns them in the order in which they were sent.
  const std::vector<SentMessage>& sent_messages() const { return record_.sent; }

  // A recorded pass. take_record() moves it out, set_record() puts it back.
  struct Record {
    std::vector<SentMessage> sent;
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
  void wait(Duration max_wait) override;
  void wake() override { below_.wake(); }
  TimePoint now() const override { return below_.now(); }

 private:
  struct Traffic {  // state of one channel
    std::deque<size_t> to_send;
    int64_t to_come = 0;
    bool is_expected = false, under_way = false;
    bool is_away = true;  // the transport below has sent this channel's last message
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
  std::vector<size_t> next_;                 // [channel] next message to replay
  std::vector<Traffic> traffic_;             // [channel]
};

}  // namespace hocket
