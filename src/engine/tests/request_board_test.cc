#include "engine/stats/request_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/clock_testing.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RequestBoardTest : public ::testing::Test {
 protected:
  RequestBoardTest() { clock_.advance(1h); }
  static RequestInput input_of(uint64_t id) {
    RequestInput input = greedy_input({1, 2, 3, 4, 5}, 8);
    input.id = RequestId{id};
    return input;
  }

  FakeClock clock_;
  Scheduler scheduler_{{.num_pages = 64, .page_tokens = 4, .max_running_requests = 2}};
  RequestBoard board_;
};

TEST_F(RequestBoardTest, NotesOnlyWhileSomebodyWatchesAndNotTooOften) {
  ASSERT_TRUE(scheduler_.add(input_of(1)));
  board_.note(scheduler_, clock_.now());
  EXPECT_THAT(board_.snapshot(clock_.now()), IsEmpty());  // it was not watched
  board_.note(scheduler_, clock_.now());
  EXPECT_THAT(board_.snapshot(clock_.now()), SizeIs(1));
  ASSERT_TRUE(scheduler_.add(input_of(2)));
  board_.note(scheduler_, clock_.now());
  EXPECT_THAT(board_.snapshot(clock_.now()), SizeIs(1));  // before kPeriod is over
  board_.note_idle(scheduler_, clock_.now());
  EXPECT_THAT(board_.snapshot(clock_.now()), SizeIs(2));
  clock_.advance(RequestBoard::kInterest + 1ms);
  board_.note(scheduler_, clock_.now());
  EXPECT_THAT(board_.snapshot(clock_.now()), IsEmpty());  // kInterest is over
}

TEST(RequestBoard, AnEngineTellsWhereItsRequestsAre) {
  ServerSettings settings = settings_of(kBundled, 2);
  settings.memory.max_running_requests = 2;  // one per rank
  Service service(settings);
  ASSERT_TRUE(service.works());
  service.engine().request_snapshots();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(service.submit(long_one(i)).has_value());
  std::set<RequestSnapshot::Where> seen;
  std::set<int> ranks;
  ASSERT_TRUE(service.read_until([&] {
    for (const RequestStatus& at : service.engine().request_snapshots()) {
      seen.insert(at.seen.where);
      ranks.insert(at.rank);
      EXPECT_EQ(at.seen.prompt_tokens, 20);
      if (at.seen.where == RequestSnapshot::Where::running) {
        EXPECT_EQ(at.seen.computed_tokens, 20);
      }
    }
    return seen.contains(RequestSnapshot::Where::running) &&
           seen.contains(RequestSnapshot::Where::waiting) && ranks.size() == 2;
  }));
  ASSERT_TRUE(service.read_all());
  ASSERT_TRUE(service.read_until([&] { return service.engine().request_snapshots().empty(); }));
}

}  // namespace
}  // namespace hocket
