#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

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
    AnswerDrafts answer{.request = &request, .rows = 1, .max_drafts = 1};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8});
    batch.slices[0].num_appended = 1;
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

// A step lasts until the slowest rank has computed, so another rank's prompts make it long.
TEST(Speculation, LearnsNothingFromStepsInWhichAnotherRankHasPrompts) {
  Speculation speculation(
      {.num_seats = 1, .max_drafts = 1, .fixed = {}, .drafter = std::make_unique<NoDrafts>()});
  Request request;
  request.tokens = {TokenId{1}, TokenId{2}};
  request.prompt_len = 1;
  Batch batch;
  batch.slices.push_back({.request = &request, .begin = 1, .len = 1});
  batch.num_rows = batch.num_decode_rows = 1;
  TimePoint now{std::chrono::seconds(1)};
  for (int i = 0; i < 60; ++i) {
    const bool others_have_prompts = i % 2 == 1;
    AnswerDrafts answer{.request = &request, .rows = 1, .max_drafts = 1};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8, .has_prompts = others_have_prompts});
    batch.slices[0].num_appended = 1;
    speculation.note(batch, now += std::chrono::microseconds(others_have_prompts ? 9000 : 1000),
                     {.others_have_prompts = others_have_prompts});
  }
  EXPECT_EQ(speculation.state().buckets.at(0).num_steps, 29U);  // the first has no begin
  EXPECT_NEAR(speculation.state().buckets.at(0).plain_us, 1000, 1);
}

// A prompt finds no seat; when one is free, its answer gets it.
TEST(Speculation, AnAnswerGetsASeatThatItsPromptDidNotFind) {
  Speculation speculation(
      {.num_seats = 1, .max_drafts = 1, .fixed = {}, .drafter = std::make_unique<NoDrafts>()});
  std::array<Request, 2> requests;
  Batch prompts;
  for (int i = 0; i < 2; ++i) {
    Request& request = requests.at(static_cast<size_t>(i));
    request.id = RequestId{static_cast<uint64_t>(i)};
    request.tokens = {TokenId{1}, TokenId{2}};
    request.prompt_len = 1;
    request.state = Request::State::running;
    prompts.slices.push_back({.request = &request, .begin = 0, .len = 1});
  }
  prompts.num_rows = 2;
  TimePoint now{std::chrono::seconds(1)};
  speculation.note(prompts, now, {});
  EXPECT_EQ(speculation.seat_of(RequestId{0}), 0);
  EXPECT_EQ(speculation.seat_of(RequestId{1}), -1);
  Batch answer;
  answer.slices.push_back({.request = &requests[1], .begin = 1, .len = 1});
  answer.num_rows = answer.num_decode_rows = 1;
  const auto play = [&] {
    AnswerDrafts offered{.request = &requests[1], .rows = 1, .max_drafts = 1};
    speculation.offer(std::span(&offered, 1), {.max_rows = 8});
    answer.slices[0].num_appended = 1;
    speculation.note(answer, now += std::chrono::microseconds(1000), {});
  };
  play();
  EXPECT_EQ(speculation.seat_of(RequestId{1}), -1);
  speculation.forget(RequestId{0});
  play();
  EXPECT_EQ(speculation.seat_of(RequestId{1}), 0);
  // A request that runs takes the seat of one that was sent back to the queue.
  speculation.take_seat(requests[0]);
  EXPECT_EQ(speculation.seat_of(RequestId{0}), -1);
  requests[1].state = Request::State::waiting;
  speculation.take_seat(requests[0]);
  EXPECT_EQ(speculation.seat_of(RequestId{0}), 0);
  EXPECT_EQ(speculation.seat_of(RequestId{1}), -1);
}

// The answers of a rank end, and it begins others later. Its last step of answers does not count
// the drafts that other ranks had in between.
TEST(Speculation, AStepBeforeAGapShowsNoTime) {
  Speculation speculation(
      {.num_seats = 1, .max_drafts = 1, .fixed = {}, .drafter = std::make_unique<NoDrafts>()});
  Request request;
  request.tokens = {TokenId{1}, TokenId{2}};
  request.prompt_len = 1;
  Batch batch, nothing;
  batch.slices.push_back({.request = &request, .begin = 1, .len = 1});
  batch.num_rows = batch.num_decode_rows = 1;
  TimePoint now{std::chrono::seconds(1)};
  const auto offer = [&] {
    AnswerDrafts answer{.request = &request, .rows = 1, .max_drafts = 1};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8, .num_other_answers = 1});
  };
  const auto end_step = [&](const Batch& played, int64_t us) {
    if (!batch.slices.empty()) batch.slices[0].num_appended = 1;
    speculation.note(played, now += std::chrono::microseconds(us), {.num_other_answers = 1});
  };
  for (int i = 0; i < 40; ++i) offer(), end_step(batch, 1000);
  offer();
  const uint64_t num_steps = speculation.state().buckets.at(0).num_steps;
  end_step(batch, 5000);
  end_step(nothing, 1000);
  offer();
  EXPECT_EQ(speculation.state().buckets.at(0).num_steps, num_steps);
  EXPECT_EQ(speculation.state().totals.num_steps, 41U);
}

class DraftsAhead final : public Drafter {
 public:
  void begin(int /*seat*/, int /*max_len*/) override {}
  void end(int /*seat*/) override {}
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) task.drafts = {};
  }
  bool is_free() const override { return false; }
  bool drafts_ahead() const override { return true; }
};

// A service that computes prompts for others has such answers alone, and nothing would show the
// time of a step without the module's rows.
TEST(Speculation, AnswersWithoutRoomForDraftsLeavePromptsFollowed) {
  Speculation speculation(
      {.num_seats = 1, .max_drafts = 1, .fixed = {}, .drafter = std::make_unique<DraftsAhead>()});
  Request request;
  request.tokens = {TokenId{1}, TokenId{2}};
  request.prompt_len = 1;
  const auto offer = [&](int num_left, int max_drafts) {
    request.sampling.max_new_tokens = request.generated() + num_left;
    AnswerDrafts answer{.request = &request, .rows = 1, .max_drafts = max_drafts};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8});
    return speculation.ahead().follows;
  };
  EXPECT_TRUE(speculation.ahead().follows);
  EXPECT_TRUE(offer(1, 0));
  EXPECT_FALSE(offer(2, 1)) << "the time without the module is measured";
  EXPECT_TRUE(offer(1, 0));
  EXPECT_FALSE(offer(9, 0)) << "and so it is where a step under way leaves no room for drafts";
}

// The token at position i of every request is i, and its drafts always hold.
class HoldingDraftsAhead final : public Drafter {
 public:
  void begin(int /*seat*/, int /*max_len*/) override {}
  void end(int /*seat*/) override {}
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      next_ = TokenId{static_cast<int>(task.tokens.size())};
      task.drafts = std::span(&next_, std::min<size_t>(1, static_cast<size_t>(task.max_drafts)));
      task.kind = kModuleDrafts;
    }
  }
  bool is_free() const override { return false; }
  bool drafts_ahead() const override { return true; }

 private:
  TokenId next_{};
};

// Steps wait for the tokens before them as long as answers have drafts. The drafts that were chosen
// last are no reason to wait if every answer ends before it could have one.
TEST(Speculation, StepsOverlapWhereAllAnswersEndAtOnce) {
  Speculation speculation({.num_seats = 1,
                           .max_drafts = 1,
                           .fixed = {},
                           .drafter = std::make_unique<HoldingDraftsAhead>()});
  Request request;
  request.tokens = {TokenId{0}, TokenId{1}};
  request.prompt_len = 1;
  request.sampling.max_new_tokens = 10'000;
  TimePoint now{std::chrono::seconds(1)};
  for (int i = 0; i < 1000 && !speculation.plays_drafts(); ++i) {
    const bool follows = speculation.ahead().follows;
    AnswerDrafts answer{.request = &request, .rows = 1, .max_drafts = 1};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8});
    const int num_drafts = static_cast<int>(answer.drafts.size());
    const int len = request.len();
    Batch batch;
    batch.slices.push_back({.request = &request,
                            .begin = len - 1,
                            .len = 1 + num_drafts,
                            .num_drafts = num_drafts,
                            .num_appended = 1 + num_drafts});
    batch.num_rows = 1 + num_drafts;
    batch.num_decode_rows = 1;
    batch.num_drafts = num_drafts;
    for (int at = len; at <= len + num_drafts; ++at) request.tokens.push_back(TokenId{at});
    speculation.note(
        batch, now += std::chrono::microseconds(1000),
        {.rows = follows ? FollowedRows::answers : FollowedRows::none, .overlapped_share = 1});
  }
  ASSERT_TRUE(speculation.plays_drafts());
  request.sampling.max_new_tokens = request.generated() + 1;
  for (int i = 0; i < 10; ++i) {
    AnswerDrafts answer{.request = &request, .rows = 1};
    speculation.offer(std::span(&answer, 1), {.max_rows = 8});
  }
  EXPECT_FALSE(speculation.plays_drafts());
}

}  // namespace
}  // namespace hocket
