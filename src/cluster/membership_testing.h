// Tests only: the judgement of four ranks, with a time that the test sets.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cluster/membership.h"

namespace hocket {

// Rank 0 and three others, with a time that the test sets, in ms.
class MembershipTest : public testing::Test {
 protected:
  explicit MembershipTest(const Membership::Start& start = Membership::Start())
      : members_(identity(0), limits_, at(0), start) {}

  static constexpr int kRanks = 4;
  static TimePoint at(int64_t ms) { return TimePoint(std::chrono::milliseconds(1'000'000 + ms)); }

  static Identity identity(int rank, const std::string& boot = "first") {
    return {.rank = rank,
            .num_ranks = kRanks,
            .host = fmt::format("h{}", rank),
            .boot_id = boot,
            .version = "1"};
  }
  Result<void> join(int rank, int64_t ms, const std::string& boot = "first", bool resumes = false) {
    return members_.join(
        {.identity = identity(rank, boot), .last_epoch = 0, .resumes = resumes, .heartbeat = {}},
        at(ms));
  }
  void all_join(int64_t ms) {
    for (int rank = 1; rank < kRanks; ++rank) ASSERT_TRUE(join(rank, ms));
    ASSERT_TRUE(members_.view().whole());
    ASSERT_EQ(members_.view().epoch, 1u);
  }
  // Every rank except `silent` sends a heartbeat every 250 ms in (from, to], and rank 0 judges each
  // time.
  void live(int64_t from, int64_t to, int silent = -1) {
    for (int64_t ms = from + 250; ms <= to; ms += 250) {
      for (int rank = 0; rank < kRanks; ++rank)
        if (rank != silent) members_.heartbeat(rank, heartbeats_[rank], at(ms));
      members_.tick(at(ms));
    }
  }
  MemberState state(int rank) const { return members_.view().members[rank].state; }

  LivenessLimits limits_;
  Membership members_;
  Heartbeat heartbeats_[kRanks];
};

}  // namespace hocket
