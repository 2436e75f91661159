// Exchanges of empty messages, and checks of their errors. Tests only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compute/comm/all_to_all.h"

namespace hocket::testing {

inline constexpr Stamp kStamp{.step = 7, .layer = 2};

inline AllToAll::Options options(Duration stall = std::chrono::seconds(30)) {
  return {.max_bytes = on_lanes(2, {100, 100, 100}), .epoch = 3, .stall_timeout = stall};
}

inline std::unique_ptr<AllToAll> make(Transport& end, const AllToAll::Options& with) {
  auto made = AllToAll::create(end, with);
  EXPECT_TRUE(made.has_value());
  return std::move(*made);
}

inline Result<void> start(AllToAll& exchange, MessageKind kind, Stamp stamp = kStamp,
                          int lane = 0) {
  const std::vector<AllToAll::Parts> nothing(static_cast<size_t>(exchange.num_ranks()));
  return exchange.start(lane, kind, stamp, nothing);
}

inline Result<void> exchange_once(AllToAll& exchange, MessageKind kind, Stamp stamp = kStamp) {
  HOCKET_TRY_VOID(start(exchange, kind, stamp));
  HOCKET_TRY_VOID(exchange.wait(0, kind, stamp));
  exchange.release(0, kind);
  return {};
}

inline void expect_lost(const Result<void>& result,
                        const ::testing::Matcher<const std::string&>& what) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(result.error().message, what);
}

}  // namespace hocket::testing
