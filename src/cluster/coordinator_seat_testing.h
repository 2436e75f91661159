// Tests only: ranks that share an etcd in memory and want its seat, with a time that the test sets.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock_testing.h"
#include "cluster/coordinator_seat.h"
#include "cluster/memory_etcd_testing.h"

namespace hocket {

inline constexpr const char* kSeat = "/hocket/hocket/coordinator";
inline constexpr const char* kEpoch = "/hocket/hocket/epoch";

struct SeatRank {
  SeatRank(MemoryEtcd& etcd, const FakeClock& clock, Identity self)
      : client(etcd), seat(client, clock, {.name = "hocket", .self = std::move(self)}) {}
  void run() { seat.want(HostPort{"10.0.0.1", 5000}); }
  // Wants an epoch in the last term that this rank had.
  void want_epoch(uint32_t epoch, std::string ranks) {
    seat.want_epoch(seat.state().term, epoch, std::move(ranks));
  }
  CoordinatorSeat::State tick() {
    seat.tick();
    return seat.state();
  }

  MemoryEtcd::Client client;
  CoordinatorSeat seat;
};

class SeatTest : public testing::Test {
 protected:
  static Identity identity(int rank) {
    return {.rank = rank,
            .num_ranks = 3,
            .host = fmt::format("h{}", rank),
            .boot_id = fmt::format("boot{}", rank),
            .model_hash = "m"};
  }
  SeatRank& add(Identity self) {
    ranks_.push_back(std::make_unique<SeatRank>(etcd_, clock_, std::move(self)));
    return *ranks_.back();
  }
  SeatRank& add(int rank) { return add(identity(rank)); }
  void pass(Duration time) { clock_.advance(time); }

  FakeClock clock_;
  MemoryEtcd etcd_{clock_};
  std::vector<std::unique_ptr<SeatRank>> ranks_;
};

}  // namespace hocket
