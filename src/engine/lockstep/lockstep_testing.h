// Ranks that agree on steps over a loopback in virtual time, and their possible proposals. Tests
// only.
#pragma once

#include <functional>
#include <memory>

#include "compute/comm/testing.h"
#include "engine/lockstep/lockstep.h"
#include "engine/plan/memory_plan.h"

namespace hocket::testing {

inline constexpr StepProposal kNothing;
inline constexpr StepProposal kDecode{.work = {.num_decoding = 3}, .load = {.num_requests = 3}};
inline constexpr StepProposal kPrompt{.work = {.begins = true}, .load = {.num_requests = 1}};
inline constexpr StepProposal kChunk{.work = {.continues = true}, .load = {.num_requests = 1}};

inline const Batch kAnswers{.mode = ForwardMode::decode, .num_rows = 3, .num_decode_rows = 3};
inline const Batch kNoRows;

// One rank's end of the hub, with its exchange, heartbeat and lockstep.
struct LockstepRank {
  explicit LockstepRank(LoopbackHub& hub_in, Transport& end_in, int max_delayed_passes = 0,
                        std::optional<RankSet> present = {})
      : hub(hub_in),
        end(end_in),
        exchange(*AllToAll::create(end, {.max_bytes = on_lanes(1, {0, 0, kAgreementBytes}),
                                         .epoch = 1,
                                         .present = present,
                                         .stall_timeout = std::chrono::seconds(1)})),
        lockstep(end.num_ranks(),
                 {.own_heartbeat = &own_heartbeat, .max_delayed_passes = max_delayed_passes}) {
    lockstep.rebind(end, *exchange);
  }
  void spend(Duration duration) { hub.spend(end.rank(), duration); }
  void wait_until_peer_waits() {
    while (!lockstep.peer_waiting()) lockstep.wait(std::chrono::seconds(1));
  }

  LoopbackHub& hub;
  Transport& end;
  std::unique_ptr<AllToAll> exchange;
  OwnHeartbeat own_heartbeat;
  Lockstep lockstep;
};

inline void on_lockstep_ranks(int num_ranks, LinkModel links,
                              const std::function<void(LockstepRank&)>& body,
                              int max_delayed_passes = 0) {
  LoopbackHub hub(num_ranks, links, LoopbackHub::Time::virtual_time);
  on_ranks(hub, num_ranks, [&](Transport& end) {
    LockstepRank rank(hub, end, max_delayed_passes);
    body(rank);
  });
}

inline void on_lockstep_ranks(int num_ranks, const std::function<void(LockstepRank&)>& body) {
  on_lockstep_ranks(num_ranks, {.latency = std::chrono::microseconds(200)}, body);
}

}  // namespace hocket::testing
