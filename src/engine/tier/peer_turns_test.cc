#include "engine/tier/peer_turns.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kTurnsBegin{};

PeerTurns::Prompt turns_prompt(uint64_t id, int num_pages, int num_lacking) {
  return {.id = RequestId{id},
          .num_pages = num_pages,
          .num_lacking = num_lacking,
          .until = kTurnsBegin + 300s};
}

// Running requests end some day. If none runs, nothing would make room.
TEST(PeerTurns, APromptWaitsForThePagesOfRunningRequestsAlone) {
  PeerTurns turns;
  const auto prompt = turns_prompt(1, 512, 512);
  EXPECT_TRUE(turns.waits(prompt, {.num_available = 148, .has_requests = true}, kTurnsBegin));
  EXPECT_TRUE(turns.is_behind(RequestId{2}, kTurnsBegin));
  EXPECT_FALSE(turns.waits(prompt, {.num_available = 148, .has_requests = false}, kTurnsBegin));
  EXPECT_FALSE(turns.waits(prompt, {.num_available = 512, .has_requests = true}, kTurnsBegin));
  EXPECT_FALSE(turns.is_behind(RequestId{2}, kTurnsBegin));
  // The tree has the others, and running requests may pin them.
  EXPECT_FALSE(turns.waits(turns_prompt(3, 512, 100), {.num_available = 148, .has_requests = true},
                           kTurnsBegin));
}

TEST(PeerTurns, APromptWaitsNoLongerThanItMay) {
  PeerTurns turns;
  const auto prompt = turns_prompt(1, 512, 512);
  const PeerTurns::Pool pool{.num_available = 148, .has_requests = true};
  EXPECT_TRUE(turns.waits(prompt, pool, kTurnsBegin + 299s));
  EXPECT_FALSE(turns.is_behind(RequestId{2}, kTurnsBegin + 300s));
  EXPECT_FALSE(turns.waits(prompt, pool, kTurnsBegin + 300s));
}

TEST(PeerTurns, APromptFindsRoomBesideThoseUnderWay) {
  PeerTurns turns;
  turns.reserve(100);
  EXPECT_TRUE(turns.waits(turns_prompt(1, 50, 50), {.num_available = 149}, kTurnsBegin));
  EXPECT_TRUE(turns.waits(turns_prompt(2, 10, 10), {.num_available = 149}, kTurnsBegin));
  turns.leave(RequestId{1});
  EXPECT_FALSE(turns.waits(turns_prompt(2, 10, 10), {.num_available = 149}, kTurnsBegin));
  EXPECT_TRUE(turns.waits(turns_prompt(3, 10, 10), {.num_available = 149, .takes_no_order = true},
                          kTurnsBegin));
  turns.release(100);
  EXPECT_FALSE(turns.waits(turns_prompt(3, 10, 10), {.takes_no_order = true}, kTurnsBegin));
}

}  // namespace
}  // namespace hocket
