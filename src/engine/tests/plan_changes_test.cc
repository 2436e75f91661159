// Tests the planner in a service in virtual time: two ranks step as step.h does, operations take
// known times, and the network becomes slow. The plan must change on all ranks at one step, and no
// token may change.
#include <gmock/gmock.h>

#include <algorithm>
#include <barrier>
#include <memory>
#include <vector>

#include "compute/comm/testing.h"
#include "compute/comm/transport_clock_testing.h"
#include "engine/lockstep/rank_overlap.h"
#include "engine/rank_setup.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 2, kDecodeRows = 16;  // decode rows on each rank
constexpr int kKeys = 64;                    // keys of a sequence; then it begins again
constexpr int kFastSteps = 150, kSlowSteps = 350;
constexpr Duration kBeside = 50us;
constexpr LinkModel kFastLink{.latency = 1us};  // hiding it gains less than the margin of a change
constexpr LinkModel kSlowLink{.bytes_per_s = 1e8, .latency = 5us};

// Returns the time of an operation over all rows of a rank.
Duration time_of(Op op) {
  switch (op) {
    case Op::attn_in:
      return 100us;
    case Op::attn_core:
      return 160us;
    case Op::gate:
      return 10us;
    case Op::experts:
      return 60us;
    default:
      return 1us;
  }
}

// The prior of the planner: the times above, and the fast link.
class Expected final : public StageModel {
 public:
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times;
    for (int op = 0; op < kNumOps; ++op)
      times.of(static_cast<Op>(op)) =
          to_us(time_of(static_cast<Op>(op))) * bucket.rows / kDecodeRows;
    times.dispatch = times.combine = {0, to_us(kFastLink.latency)};
    times.part_us = 1;
    return times;
  }
};

// The steps that a rank played.
struct PlayedSteps {
  std::vector<PlanId> plans;                 // plan of each step
  std::vector<std::vector<TokenId>> tokens;  // tokens of each step, by row
  std::vector<Plan> settled;  // on rank 0: the plan when the links change, and at the end
};

class TimedRank final : public ForwardProbe {
 public:
  TimedRank(LoopbackHub& hub, Transport& end, Runner& runner, const OverlapSettings& settings)
      : hub_(hub),
        end_(end),
        runner_(runner),
        clock_(end),
        overlap_({.rank = end.rank(),
                  .num_ranks = kRanks,
                  .layers = {.num_moe = runner.info().model.num_layers},
                  .settings = &settings,
                  .prior = std::make_shared<Expected>(),
                  .exact_arrival = end.caps().exact_arrival,
                  .clock = &clock_}),
        lockstep_(kRanks, {.orders = settings.orders.get()}) {
    AllToAll* const exchange =
        *runner.attach({.transport = end, .epoch = 1, .watch = &overlap_.ledger()});
    lockstep_.rebind(end, *exchange);
    for (int i = 0; i < runner.info().num_pages; ++i) pages_.push_back(PageId{i});
    for (int row = 0; row < kDecodeRows; ++row) newest_.push_back(TokenId{row * 7 + end.rank()});
    batch_.reserve(kDecodeRows, kDecodeRows);
  }
  ~TimedRank() override { runner_.detach(); }
  TimedRank(const TimedRank&) = delete;
  TimedRank& operator=(const TimedRank&) = delete;

  void after(int /*layer*/, Op op, const Half& half) override {
    hub_.spend(end_.rank(), time_of(op) * half.rows.count / kDecodeRows);
  }

  void step() {
    overlap_.begin();
    HOCKET_CHECK(lockstep_.finish_agreement(proposal()));
    overlap_.note_reports(lockstep_);
    fill();
    const auto done = runner_.forward_together(batch_, {.id = lockstep_.agreed().pass,
                                                        .plan = lockstep_.agreed().plan,
                                                        .is_trial = lockstep_.agreed().is_trial,
                                                        .ledger = &overlap_.ledger(),
                                                        .probe = this});
    HOCKET_CHECK(done.has_value());
    overlap_.take(overlap_.end());
    lockstep_.begin_agreement(proposal());
    const Ledger::OtherWork other(&overlap_.ledger(), "sample");
    sample();
    played.plans.push_back(id_of(lockstep_.agreed().plan));
    played.tokens.push_back(newest_);
  }
  // Both ranks continue at the same time.
  void rest_until(TimePoint then) {
    hub_.spend(end_.rank(), then - end_.now());
    overlap_.drop();
    if (const auto planner = overlap_.planner_state(); planner && !planner->decisions.empty())
      played.settled.push_back(planner->decisions.back().plan);
  }
  PlayedSteps played;

 private:
  StepProposal proposal() {
    StepProposal proposal{.work = {.num_decoding = kDecodeRows}};
    overlap_.fill(lockstep_, proposal);
    return proposal;
  }
  void fill() {
    const int page_tokens = runner_.info().page_tokens, own = kKeys / page_tokens;
    const int position = static_cast<int>(played.plans.size()) % kKeys;
    batch_.clear();
    batch_.mode = ForwardMode::decode;
    for (int row = 0; row < kDecodeRows; ++row) {
      const auto pages = std::span<const PageId>(pages_).subspan(row * own, own);
      batch_.sequences.push_back({.row_begin = row,
                                  .num_rows = 1,
                                  .first_position = position,
                                  .form = MlaForm::absorbed,
                                  .pages = pages});
      batch_.ids.push_back(newest_[row]);
      batch_.positions.push_back(position);
      batch_.slots.push_back({pages[position / page_tokens], position % page_tokens});
      batch_.output_rows.push_back(row);
    }
  }
  void sample() {
    const View<float> logits = runner_.logits(0, kDecodeRows);
    for (int row = 0; row < kDecodeRows; ++row) {
      const float* begin = logits.row(row);
      newest_[row] =
          TokenId{static_cast<int32_t>(std::max_element(begin, begin + logits.cols) - begin)};
    }
    hub_.spend(end_.rank(), kBeside);
  }

  LoopbackHub& hub_;
  Transport& end_;
  Runner& runner_;
  const TransportClock clock_;
  RankOverlap overlap_;
  Lockstep lockstep_;
  ForwardBatch batch_;
  std::vector<PageId> pages_;
  std::vector<TokenId> newest_;
};

// Runs steps over the fast link, then over the slow one.
std::vector<PlayedSteps> serve(std::span<const std::unique_ptr<Runner>> runners,
                               const char* overlap) {
  ServerSettings settings;
  settings.parallel.ep_size = kRanks;
  settings.parallel.overlap = overlap;
  const OverlapSettings choice = *choose_overlap(settings.parallel);
  LoopbackHub hub(kRanks, kFastLink, LoopbackHub::Time::virtual_time);
  std::vector<PlayedSteps> all(kRanks);
  std::barrier change(kRanks, [&]() noexcept { hub.set_links(kSlowLink); });
  on_ranks(hub, kRanks, [&](Transport& end) {
    TimedRank rank(hub, end, *runners[static_cast<size_t>(end.rank())], choice);
    for (int step = 0; step < kFastSteps; ++step) rank.step();
    rank.rest_until(TimePoint(1000s));
    change.arrive_and_wait();
    for (int step = 0; step < kSlowSteps; ++step) rank.step();
    rank.rest_until(TimePoint(2000s));
    all[static_cast<size_t>(end.rank())] = std::move(rank.played);
  });
  return all;
}

TEST(PlanChanges, WithTheNetworkAndNoTokenDoes) {
  const ServerSettings settings = settings_of(kBundled, kRanks);
  const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_TRUE(runners.has_value()) << describe(runners.error());
  const std::vector<PlayedSteps> without = serve(*runners, "none");
  ::testing::internal::CaptureStderr();
  const std::vector<PlayedSteps> with = serve(*runners, "auto");
  const std::string told = ::testing::internal::GetCapturedStderr();
  const OrderTable& orders = OrderTable::builtin();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(with[rank].plans, with[0].plans);
    EXPECT_THAT(without[rank].plans, Each(PlanId::none));
    EXPECT_EQ(with[rank].tokens, without[rank].tokens) << "rank " << rank;
  }
  const std::vector<Plan>& settled = with[0].settled;
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0], Plan{});
  EXPECT_EQ(kind_of(settled[1], orders), PlanKind::two_batch) << describe(settled[1], orders);
  EXPECT_EQ(with[0].plans.back(), id_of(settled[1]));
  EXPECT_THAT(told, HasSubstr("overlap: decode, 16 rows: none ("));
  EXPECT_THAT(told, HasSubstr("overlap: decode, 16 rows: two-batch, "));
}

}  // namespace
}  // namespace hocket
