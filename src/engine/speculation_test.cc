#include "engine/speculation.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

class NoDrafts final : public Drafter {
 public:
  void begin(int /*seat*/, int /*max_len*/) override {}
  void end(int /*seat*/) override {}
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) task.drafts = {};
  }
  bool is_free() const override { return true; }
};

// Returns the time that the gate takes for that of a step without drafts, after steps of 1,000 us.
double plain_us(bool overlapped, double overlapped_share) {
  Speculation speculation(
      {.num_seats = 1, .max_drafts = 1, .fixed = {}, .drafter = std::make_unique<NoDrafts>()});
  Request request;
  request.tokens = {TokenId{1}, TokenId{2}};
  request.prompt_len = 1;
  Batch batch;
  batch.slices.push_back({.request = &request, .begin = 1, .len = 1});
  batch.num_rows = batch.num_decode_rows = 1;
  batch.overlapped = overlapped;
  TimePoint now{std::chrono::seconds(1)};
  for (int i = 0; i < 100; ++i) {
    AnswerDrafts answer{.request = &request, .rows = 1, .most = 1};
    speculation.offer(std::span(&answer, 1), 8);
    batch.slices[0].num_taken = 1;
    speculation.note(batch, now += std::chrono::microseconds(1000),
                     {.overlapped_share = overlapped_share});
  }
  return speculation.state().buckets.at(0).plain_us;
}

// While answers have drafts no step overlaps, also not those that show the time without drafts. The
// time that overlap would have saved in these is a cost of the drafts.
TEST(Speculation, CountsTheOverlapThatDraftsPrevent) {
  EXPECT_NEAR(plain_us(false, 1), 1000, 1);
  EXPECT_NEAR(plain_us(true, 0.9), 1000, 1);
  EXPECT_NEAR(plain_us(false, 0.9), 900, 1);
}

}  // namespace
}  // namespace hocket
