#include "engine/lockstep.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "engine/memory_plan.h"

namespace hocket {
namespace {

constexpr int kLane = 0;

// What a rank says of its step, in host order: ranks of other byte orders have no arithmetic in
// common anyway.
struct Word {
  uint32_t rows = 0;
  uint8_t extends = 0;  // has rows of prompts
  uint8_t ends = 0;     // wants to stop after this step
  uint8_t plan = 0;     // for later: all play the serial order
  uint8_t votes = 0;    // for later
};
static_assert(sizeof(Word) == kAgreementBytes);

bool has_prompts(ForwardMode mode) {
  return mode == ForwardMode::extend || mode == ForwardMode::mixed;
}

}  // namespace

Lockstep::Lockstep(int num_ranks) : parts_(static_cast<size_t>(num_ranks)) {}

void Lockstep::rebind(Transport& transport, AllToAll& exchange) {
  transport_ = &transport;
  exchange_ = &exchange;
  pass_ = {};
  ends_ = false;
  error_.reset();
}

void Lockstep::fail_with(Error why) {
  if (!error_) error_ = std::move(why);
}

bool Lockstep::agree(const Batch& mine) {
  if (error_) return false;
  ++pass_.step;
  const Stamp stamp{.step = pass_.step};
  const Word word{.rows = static_cast<uint32_t>(mine.num_rows),
                  .extends = has_prompts(mine.mode) ? uint8_t{1} : uint8_t{0},
                  .ends = asks_to_end_ ? uint8_t{1} : uint8_t{0}};
  const std::array<std::span<const std::byte>, 1> piece = {std::as_bytes(std::span(&word, 1))};
  std::ranges::fill(parts_, AllToAll::Parts(piece));
  if (auto sent = exchange_->start(kLane, MessageKind::agree, stamp, parts_); !sent)
    return fail_with(std::move(sent).error()), false;
  if (auto here = exchange_->wait(kLane, MessageKind::agree, stamp); !here)
    return fail_with(std::move(here).error()), false;
  bool computes = false, extends = false;
  ends_ = false;
  for (int rank = 0; rank < exchange_->num_ranks(); ++rank) {
    Word said = word;
    if (rank != exchange_->rank()) {
      const std::span<const std::byte> bytes = exchange_->from(kLane, MessageKind::agree, rank);
      if (bytes.size() != sizeof said)
        return fail_with(error(ErrorCode::lost_rank,
                               "rank {} sent {} bytes as its agreement on step {}, not {}", rank,
                               bytes.size(), pass_.step, sizeof said)),
               false;
      std::memcpy(&said, bytes.data(), sizeof said);
    }
    computes |= said.rows > 0;
    extends |= said.extends != 0;
    ends_ |= said.ends != 0;
  }
  exchange_->release(kLane, MessageKind::agree);
  pass_.mode = extends ? ExchangeMode::counted : ExchangeMode::slotted;
  return computes;
}

bool Lockstep::called() {
  return error_ || exchange_->called(kLane, MessageKind::agree);
}

void Lockstep::wait(Duration most) {
  if (!called()) transport_->wait(most);
}

}  // namespace hocket
