#include "policy/scheduler/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/log.h"

namespace hocket {
namespace {

constexpr int kPageTokens = 4;
using Ids = std::vector<uint64_t>;

// A queue of one policy and a cache that holds the beginnings of some prompts.
struct Bench {
  explicit Bench(SchedulePolicy policy, int max_overtaken = 512)
      : queue({.policy = policy,
               .max_requests = 4096,
               .in_batch = {.max_cached = -1},
               .max_overtaken = max_overtaken,
               .seed = 5}),
        pages(256, kPageTokens),
        cache(pages, {}) {
    log::set_level(log::Level::error);  // hides the warnings of policies that fall back
    for (int text = 0; text < 4; ++text) {
      const std::vector<TokenId> tokens = words(text, kPageTokens * (text + 1));
      std::vector<PageId> own(static_cast<size_t>(text + 1));
      EXPECT_TRUE(pages.take(own));
      cache.insert({}, tokens, own);
    }
  }

  static std::vector<TokenId> words(int text, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(TokenId{text * 100 + i});
    return tokens;
  }

  // Makes requests so different that every policy has an order of its own.
  std::unique_ptr<Request> request(uint64_t id) const {
    auto made = std::make_unique<Request>();
    made->id = RequestId{id};
    made->tokens = words(static_cast<int>(id * 7 % 5), 3 + static_cast<int>(id * 11 % 23));
    made->prompt_len = static_cast<int>(made->tokens.size());
    made->sampling.max_new_tokens = 1 + static_cast<int>(id * 13 % 17);
    made->client = id % 3;
    made->routing_key = id % 4;
    return made;
  }
  void arrive(uint64_t id, int priority = 0) {
    auto made = request(id);
    made->priority = priority;
    queue.push(std::move(made), {}, rows_total += 3);
  }
  void begin_pass() { queue.begin_pass(cache, {.cache_generation = 1, .rows_total = rows_total}); }
  uint64_t head_id() { return value(queue.head()->id); }
  // Takes all requests in one pass, except those to be skipped; returns the ids in order.
  template <class IsSkipped>
  Ids pass(const IsSkipped& is_skipped) {
    begin_pass();
    Ids taken;
    while (queue.head() != nullptr) {
      if (is_skipped(head_id()))
        queue.skip_head();
      else
        taken.push_back(value(queue.take_head()->id));
    }
    return taken;
  }
  Ids pass() {
    return pass([](uint64_t) { return false; });
  }

  WaitingQueue queue;
  PageAllocator pages;
  RadixCache cache;
  uint64_t rows_total = 0;
};

class EveryPolicy : public ::testing::TestWithParam<std::string_view> {
 protected:
  static SchedulePolicy policy() { return parse_schedule_policy(GetParam()).value(); }
};

INSTANTIATE_TEST_SUITE_P(WaitingQueueTest, EveryPolicy,
                         ::testing::ValuesIn(schedule_policy_names().begin(),
                                             schedule_policy_names().end()),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

bool every_third(uint64_t id) {
  return id % 3 == 1;
}

TEST_P(EveryPolicy, TheOthersKeepTheirOrderAndTheSkippedComeNext) {
  Bench plain(policy()), skipping(policy());
  for (uint64_t id = 1; id <= 40; ++id) {
    plain.arrive(id, id % 8 == 0 ? 1 : 0);
    skipping.arrive(id, id % 8 == 0 ? 1 : 0);
  }
  Ids expected = plain.pass();
  ASSERT_EQ(expected.size(), 40u);
  Ids taken = skipping.pass(every_third);
  EXPECT_EQ(skipping.queue.size(), 14);
  if (policy() == SchedulePolicy::random) {  // the draw is another one
    EXPECT_TRUE(std::ranges::all_of(Ids(taken.begin(), taken.begin() + 3),
                                    [](uint64_t id) { return id % 8 == 0; }));
    std::ranges::sort(expected);
    std::ranges::sort(taken);
  }
  std::erase_if(expected, every_third);
  EXPECT_EQ(taken, expected);

  Ids rest = skipping.pass();
  EXPECT_TRUE(skipping.queue.empty());
  std::ranges::sort(rest);
  EXPECT_EQ(rest, (Ids{1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40}));
}

TEST_P(EveryPolicy, RetractedAreSkippedFirstAndComeFirst) {
  Bench bench(policy());
  for (uint64_t id = 1; id <= 6; ++id) bench.arrive(id);
  for (uint64_t id : {11, 12, 13}) bench.queue.push_retracted(bench.request(id), {});
  Ids taken = bench.pass([](uint64_t id) { return id == 13 || id == 11; });
  ASSERT_EQ(taken.size(), 7u);
  EXPECT_EQ(taken.front(), 12u);
  EXPECT_EQ(bench.pass(), (Ids{13, 11}));
}

TEST_P(EveryPolicy, SkippedOnesMayLeave) {
  Bench bench(policy());
  for (uint64_t id = 1; id <= 9; ++id) bench.arrive(id);
  EXPECT_EQ(bench.pass([](uint64_t) { return true; }), Ids{});
  EXPECT_EQ(bench.queue.head(), nullptr);
  for (uint64_t id : {5, 1, 9}) EXPECT_NE(bench.queue.remove(RequestId{id}), nullptr);
  bench.arrive(10, 1);
  Ids rest = bench.pass();
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.front(), 10u);
  std::ranges::sort(rest);
  EXPECT_EQ(rest, (Ids{2, 3, 4, 6, 7, 8, 10}));
}

TEST_P(EveryPolicy, AnOverdueOneIsNextAlsoBehindSkippedOnes) {
  Bench bench(policy(), 0);
  for (uint64_t id = 1; id <= 12; ++id) bench.arrive(id);
  const Ids first = bench.pass([](uint64_t id) { return id <= 2; });
  EXPECT_EQ(first.size(), 10u);
  bench.arrive(13);
  bench.arrive(14);
  bench.begin_pass();
  EXPECT_EQ(bench.head_id(), 1u) << "its time went on while it was skipped";
  bench.queue.skip_head();
  EXPECT_EQ(bench.head_id(), 2u);
}

// Plays random traffic. The queue's promise holds for requests that were never skipped: at most
// max_overtaken later ones leave before them, however many are skipped around them.
TEST_P(EveryPolicy, SkippedOnesAheadCostTheOthersNoTime) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto max_overtaken = static_cast<int>(random() % 6);
    Bench bench(policy(), max_overtaken);
    std::map<uint64_t, int> overtaken;  // by id: how often each waiting request was overtaken
    std::map<uint64_t, bool> was_skipped;
    uint64_t next_id = 1;
    for (int round = 0; round < 60; ++round) {
      for (uint64_t n = random() % 3; n > 0; --n) {
        overtaken[next_id] = 0;
        bench.arrive(next_id++);
      }
      bench.begin_pass();
      for (uint64_t n = random() % 3; n > 0 && bench.queue.head() != nullptr;) {
        const uint64_t id = bench.head_id();
        if (id % 3 == 0 && random() % 4 != 0) {
          was_skipped[id] = true;
          bench.queue.skip_head();
          continue;
        }
        bench.queue.take_head();
        if (!was_skipped[id]) {
          ASSERT_LE(overtaken[id], max_overtaken) << "seed " << seed;
        }
        overtaken.erase(id);
        for (auto& [other, count] : overtaken) count += other < id;
        --n;
      }
    }
  }
}

// A request counts as left once for each time that it waits.
TEST(WaitingQueueTest, SkippedTakenAndRetractedCountsAnew) {
  Bench bench(SchedulePolicy::lof, 0);
  bench.arrive(1);
  EXPECT_EQ(bench.pass([](uint64_t) { return true; }), Ids{});
  bench.begin_pass();
  bench.queue.push_retracted(bench.queue.take_head(), {});
  EXPECT_EQ(bench.pass(), Ids{1});
  auto few = bench.request(2), many = bench.request(3);
  few->sampling.max_new_tokens = 1;
  many->sampling.max_new_tokens = 9;
  bench.queue.push(std::move(few), {}, 0);
  bench.queue.push(std::move(many), {}, 0);
  EXPECT_EQ(bench.pass(), (Ids{2, 3})) << "nobody was ahead of the first, and nobody may overtake";
}

TEST(WaitingQueueTest, APassEndsAfter128Skips) {
  Bench bench(SchedulePolicy::fcfs);
  for (uint64_t id = 1; id <= 200; ++id) bench.arrive(id);
  int asked = 0;
  EXPECT_EQ(bench.pass([&](uint64_t) { return ++asked > 0; }), Ids{});
  EXPECT_EQ(asked, kMaxSkipped);
  EXPECT_EQ(bench.pass().size(), 200u);
}

// There are more than the 128 that are looked up at once, and the second 128 follow the skipped
// ones.
TEST(WaitingQueueTest, CacheAwarePoliciesLookBehindTheSkipped) {
  Bench bench(SchedulePolicy::shortest_prefill_first);
  for (uint64_t id = 1; id <= 150; ++id) bench.arrive(id);
  Ids taken = bench.pass([](uint64_t id) { return id <= 127; });
  std::ranges::sort(taken);
  EXPECT_EQ(taken.size(), 23u);
  EXPECT_EQ(taken.front(), 128u);
  EXPECT_EQ(bench.queue.size(), 127);
}

// A group whose only request is skipped is not a newcomer afterwards.
TEST(WaitingQueueTest, FairCountsAreUntouchedBySkips) {
  Bench bench(SchedulePolicy::fair);
  const auto come = [&](uint64_t id, uint64_t client) {
    auto made = bench.request(id);
    made->client = client;
    bench.queue.push(std::move(made), {}, 0);
  };
  come(1, 1);
  come(2, 2);
  come(3, 2);
  bench.begin_pass();
  ASSERT_EQ(bench.head_id(), 1u);
  bench.queue.skip_head();
  ASSERT_EQ(bench.head_id(), 2u);
  const auto running = bench.queue.take_head();
  bench.queue.admitted(*running, 100);
  bench.begin_pass();
  EXPECT_EQ(bench.head_id(), 1u) << "its client was served nothing yet";
}

TEST(WaitingQueueTest, TheHeldCountInTheLimitsButStandNotInLine) {
  WaitingQueue queue({.max_requests = 3, .max_tokens = 100});
  const Bench make(SchedulePolicy::fcfs);
  const TimePoint start{}, later = start + std::chrono::seconds(1);
  const auto num_tokens = [&](uint64_t id) { return std::ssize(make.request(id)->tokens); };
  queue.hold(make.request(1), start);
  queue.hold(make.request(2), later);
  queue.push(make.request(3), later, 0);
  EXPECT_EQ(queue.size(), 1);
  EXPECT_EQ(queue.num_held(), 2);
  EXPECT_EQ(queue.num_tokens(), num_tokens(1) + num_tokens(2) + num_tokens(3));
  EXPECT_EQ(queue.check_room(1, nullptr).error().code, ErrorCode::queue_full);
  EXPECT_EQ(value(queue.take_queued_before(later)->id), 1u);
  EXPECT_EQ(queue.take_queued_before(later), nullptr);
  EXPECT_TRUE(queue.check_room(1, nullptr));
  EXPECT_FALSE(queue.check_room(100, nullptr));

  queue.push(queue.take_held(0), start, 0);
  EXPECT_EQ(queue.num_held(), 0);
  EXPECT_EQ(queue.num_tokens(), num_tokens(2) + num_tokens(3));
  EXPECT_EQ(value(queue.take_queued_before(later)->id), 2u) << "it has waited since it was held";
  queue.hold(make.request(4), later);
  EXPECT_EQ(value(queue.remove(RequestId{4})->id), 4u);
  EXPECT_EQ(queue.remove(RequestId{4}), nullptr);
}

TEST(SchedulePolicyTest, NamesAreParsed) {
  for (const std::string_view name : schedule_policy_names())
    EXPECT_EQ(schedule_policy_name(parse_schedule_policy(name).value()), name);
  EXPECT_EQ(parse_schedule_policy("fair"), SchedulePolicy::fair);
  EXPECT_EQ(parse_schedule_policy("best").error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
