#include "compute/comm/message_head.h"

#include <fmt/format.h>

#include <cstring>

#include "base/mix.h"

namespace hocket {

uint64_t sum_of(const MessageHead& head) {
  const auto words = std::bit_cast<std::array<uint64_t, 8>>(head);
  uint64_t sum = kMixStep;
  for (size_t i = 0; i + 1 < words.size(); ++i) sum = mix64(sum ^ words[i]) + kMixStep;
  return sum;
}

std::string name_of_message(MessageKind kind, uint64_t step, int layer) {
  switch (kind) {
    case MessageKind::dispatch:
      return fmt::format("dispatch of step {}, layer {}", step, layer);
    case MessageKind::combine:
      return fmt::format("combine of step {}, layer {}", step, layer);
    case MessageKind::agree:
      return fmt::format("agreement of step {}", step);
  }
  return fmt::format("message of kind {}", static_cast<int>(kind));
}

std::string mismatch(std::span<const std::byte> message, const MessageHead& expected) {
  MessageHead head;
  if (message.size() < sizeof(head)) return fmt::format("{} bytes are no head", message.size());
  std::memcpy(&head, message.data(), sizeof(head));
  if (head.magic != MessageHead::kMagic) return "it does not begin as a message of hocket";
  if (head.version != MessageHead::kVersion) {
    return fmt::format("its format is version {}, this rank's is {}", head.version,
                       MessageHead::kVersion);
  }
  if (head.sum != sum_of(head)) return "its head is damaged";
  if (head.epoch != expected.epoch) {
    return fmt::format("it is of epoch {}{}, this rank is in epoch {}", head.epoch,
                       head.epoch < expected.epoch ? ", which has ended" : "", expected.epoch);
  }
  if (head.from != expected.from || head.lane != expected.lane || head.kind != expected.kind ||
      head.step != expected.step || head.layer != expected.layer) {
    return fmt::format("it is the {} (lane {}) of rank {}",
                       name_of_message(MessageKind{head.kind}, head.step, head.layer), head.lane,
                       head.from);
  }
  if (head.num_bytes != message.size() - sizeof(head)) {
    return fmt::format("its head says {} bytes, {} came", head.num_bytes,
                       message.size() - sizeof(head));
  }
  return {};
}

}  // namespace hocket
