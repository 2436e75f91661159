#include "policy/scheduler/step_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/mix.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;

// A simulated machine whose steps take an exact time, or that time on average.
struct Machine {
  double fixed_us = 3000, prefill_us = 900, decode_us = 400, key_us = 0.2;
  double noise = 0;  // uniform in [1 - noise, 1 + noise]
  uint64_t drawn = 1;

  double mean_us(const StepShape& s) const {
    return fixed_us + prefill_us * s.prefill_rows + decode_us * s.decode_rows +
           key_us * static_cast<double>(s.keys);
  }
  double draw() { return static_cast<double>(mix64(++drawn * kMixStep) >> 11) * 0x1p-53; }
  int draw(int least, int most) { return least + static_cast<int>(draw() * (most - least + 1)); }
  Duration run(const StepShape& s, double slower = 1) {
    return from_seconds(slower * mean_us(s) * (1 + noise * (2 * draw() - 1)) / 1e6);
  }
};

// Returns the shape of `decodes` rows, each with `context` tokens before it, beside a chunk [begin,
// begin + rows).
StepShape shape(int decodes, int context, int rows = 0, int begin = 0) {
  return {rows, decodes, decodes * keys_of_rows(context, 1) + keys_of_rows(begin, rows)};
}
StepShape random_shape(Machine& m) {
  const int rows = m.draw() < 0.5 ? 0 : 32 * m.draw(1, 16);
  return shape(m.draw(rows == 0 ? 1 : 0, 32), m.draw(10, 4000), rows, 32 * m.draw(0, 100));
}

double off(const StepTimes& times, const Machine& m, const StepShape& s, double slower = 1) {
  return std::abs(to_us(times.predict(s)) / (slower * m.mean_us(s)) - 1);
}

const StepShape kShapes[] = {shape(1, 100),         shape(32, 1000),  shape(8, 4000),
                             shape(4, 500, 256),    shape(0, 0, 512), shape(16, 2000, 64, 3000),
                             shape(1, 10, 512, 100)};

TEST(StepTimes, KnowsNothingAtFirst) {
  const StepTimes times;
  EXPECT_EQ(times.predict(shape(4, 100)), Duration(0));
  EXPECT_EQ(times.prefill_rows_within(milliseconds(100), shape(4, 100), 0,
                                      {.min_rows = 32, .max_rows = 2048}),
            32);
}

TEST(StepTimes, RecoversWhatTheStepsAreMadeOf) {
  Machine machine{.noise = 0.1};
  StepTimes times;
  for (int i = 0; i < 3000; ++i) {
    const StepShape s = random_shape(machine);
    times.note(s, machine.run(s));
  }
  // Differences of two shapes show one coefficient each.
  const auto us = [&](const StepShape& s) { return to_us(times.predict(s)); };
  EXPECT_NEAR(us({0, 1, 0}) - us({}), machine.decode_us, 0.05 * machine.decode_us);
  EXPECT_NEAR(us({1000, 0, 0}) - us({}), 1000 * machine.prefill_us, 20 * machine.prefill_us);
  EXPECT_NEAR(us({0, 0, 1000000}) - us({}), 1e6 * machine.key_us, 2e4 * machine.key_us);
  for (const StepShape& s : kShapes) EXPECT_LT(off(times, machine, s), 0.02);
  EXPECT_NEAR(times.error(), 0.05, 0.015);  // the mean of |uniform(-0.1, 0.1)|
}

TEST(StepTimes, FollowsAChangeOfSpeedInWhateverItSees) {
  for (const double slower : {0.4, 1.3, 3.0, 20.0}) {
    Machine machine{.noise = 0.05};
    StepTimes times;
    for (int i = 0; i < 1000; ++i) {
      const StepShape s = random_shape(machine);
      times.note(s, machine.run(s));
    }
    // Only decode steps are noted; what they show about the machine holds for prefills, too.
    for (int i = 0; i < 50; ++i) {
      const StepShape s = shape(machine.draw(4, 16), machine.draw(100, 2000));
      times.note(s, machine.run(s, slower));
    }
    for (const StepShape& s : kShapes)
      EXPECT_LT(off(times, machine, s, slower), 0.12) << slower << " " << s.prefill_rows;
  }
}

TEST(StepTimes, ForgetsWhatIsNoLongerTrueOfOneTerm) {
  Machine machine{.noise = 0.05};
  StepTimes times;
  for (int i = 0; i < 10000; ++i) {
    if (i == 5000) machine.decode_us *= 1.3;
    const StepShape s = random_shape(machine);
    times.note(s, machine.run(s));
  }
  const double us = to_us(times.predict({0, 1000, 0}) - times.predict({}));
  EXPECT_NEAR(us / (1000 * machine.decode_us), 1, 0.03);
}

TEST(StepTimes, OneOutlierChangesNothing) {
  for (const double outlier : {20.0, 1000.0, 0.01}) {
    Machine machine{.noise = 0.05};
    StepTimes times;
    for (int i = 0; i < 300; ++i) {
      const StepShape s = random_shape(machine);
      times.note(s, machine.run(s));
    }
    std::vector<Duration> before;
    for (const StepShape& s : kShapes) before.push_back(times.predict(s));
    times.note(shape(8, 1000, 128), machine.run(shape(8, 1000, 128), outlier));
    for (size_t i = 0; i < std::size(kShapes); ++i)
      EXPECT_NEAR(to_us(times.predict(kShapes[i])) / to_us(before[i]), 1, 0.02) << outlier;
  }
}

TEST(StepTimes, AnEarlyOutlierIsForgiven) {
  Machine machine{.noise = 0.05};
  StepTimes times;
  for (int i = 0; i < 200; ++i) {
    const StepShape s = random_shape(machine);
    // The first two steps are slow, as after a start.
    times.note(s, machine.run(s, i < 2 ? 20 : 1));
  }
  for (const StepShape& s : kShapes) EXPECT_LT(off(times, machine, s), 0.1);
}

TEST(StepTimes, PureDecodeIsPredictedAndForgetsNoPrefill) {
  Machine machine{.noise = 0.05};
  StepTimes times;
  for (int i = 0; i < 500; ++i) {
    const StepShape s = random_shape(machine);
    times.note(s, machine.run(s));
  }
  const Duration before = times.predict({512, 0, 0}) - times.predict({});
  for (int i = 0; i < 100000; ++i) times.note(shape(8, 1000), machine.run(shape(8, 1000)));
  EXPECT_LT(off(times, machine, shape(8, 1000)), 0.02);
  EXPECT_NEAR(to_us(times.predict({512, 0, 0}) - times.predict({})) / to_us(before), 1, 0.1);
}

TEST(StepTimes, ColinearStepsArePredictedWithoutNegativeTerms) {
  Machine machine;
  StepTimes times;
  // With one chunk size beside one decode row, the terms cannot be told apart.
  for (int i = 0; i < 2000; ++i) times.note(shape(1, 100, 64), machine.run(shape(1, 100, 64)));
  EXPECT_LT(off(times, machine, shape(1, 100, 64)), 0.001);
  for (const StepShape& s :
       {StepShape{}, StepShape{100, 0, 0}, StepShape{0, 100, 0}, StepShape{0, 0, 100000}}) {
    EXPECT_GE(times.predict(s), Duration(0));
    EXPECT_LE(to_us(times.predict(s)), 100 * machine.mean_us(shape(1, 100, 64)));
  }
  // The first step of another kind is believed.
  times.note(shape(1, 100), machine.run(shape(1, 100)));
  EXPECT_LT(off(times, machine, shape(1, 100)), 0.1);
  EXPECT_LT(off(times, machine, shape(1, 100, 64)), 0.05);
}

TEST(StepTimes, MoreIsNeverPredictedToTakeLess) {
  // Larger batches are faster on this machine: negative slopes fit best.
  StepTimes times;
  for (int i = 0; i < 500; ++i) {
    const int decodes = 1 + i % 16;
    times.note(shape(decodes, 10), milliseconds(20) - decodes * milliseconds(1));
  }
  EXPECT_GE(times.predict(shape(16, 10)), times.predict(shape(1, 10)));
  EXPECT_GE(times.predict({}), Duration(0));
}

struct RowsCase {
  Duration goal = milliseconds(100);
  StepShape others = shape(8, 500);
  int begin = 0;
};
int rows_within(const StepTimes& times, const RowsCase& asked = {}) {
  return times.prefill_rows_within(asked.goal, asked.others, asked.begin,
                                   {.min_rows = 32, .max_rows = 2048});
}

StepTimes taught(const Machine& machine) {
  StepTimes times;
  Machine copy = machine;
  for (int i = 0; i < 1000; ++i) {
    const StepShape s = random_shape(copy);
    times.note(s, copy.run(s));
  }
  return times;
}

TEST(StepTimes, ProbesUpwardFromAPage) {
  Machine machine;
  StepTimes times;
  for (int i = 0; i < 50; ++i) times.note(shape(8, 500), machine.run(shape(8, 500)));
  // A prefill that ran alone tells nothing about one beside decode rows.
  times.note(shape(0, 0, 512), machine.run(shape(0, 0, 512)));
  std::vector<int> allowed;
  for (int i = 0; i < 6; ++i) {
    const int rows = rows_within(times) / 32 * 32;
    allowed.push_back(rows);
    times.note(shape(8, 500, rows), machine.run(shape(8, 500, rows)));
  }
  EXPECT_EQ((std::vector(allowed.begin(), allowed.begin() + 2)), (std::vector{32, 64}));
  // 3 + 8 * 0.4 + 4008 keys * 0.0002 = 7 ms; the other 93 ms are about 101 rows, less the error.
  for (size_t i = 2; i < allowed.size(); ++i) EXPECT_TRUE(allowed[i] == 64 || allowed[i] == 96);
  EXPECT_EQ(rows_within(times, {.goal = std::chrono::seconds(10)}), 2 * 96);
}

TEST(StepTimes, RowsStayWithinTheGoalAndUseIt) {
  const Machine machine;
  const StepTimes times = taught(machine);
  for (const int begin : {0, 1000, 20000})
    for (const int goal_ms : {50, 100, 300}) {
      const RowsCase asked{.goal = milliseconds(goal_ms), .begin = begin};
      const int rows = rows_within(times, asked);
      const auto took_ms = [&](int n) {
        StepShape s = asked.others;
        s.prefill_rows += n;
        s.keys += keys_of_rows(begin, n);
        return machine.mean_us(s) / 1e3;
      };
      if (rows > 32) {
        EXPECT_LE(took_ms(rows), goal_ms);
      }
      EXPECT_GE(took_ms(rows), 0.9 * goal_ms);
    }
  EXPECT_LT(rows_within(times, {.begin = 20000}), rows_within(times, {.begin = 0}));
}

TEST(StepTimes, TheUsualErrorIsKeptFree) {
  const StepTimes times = taught({.noise = 0.4});
  ASSERT_NEAR(times.error(), 0.2, 0.06);
  StepShape s = shape(8, 500);
  s.prefill_rows = rows_within(times);
  s.keys += keys_of_rows(0, s.prefill_rows);
  EXPECT_NEAR(to_ms(times.predict(s)), 100 / (1 + times.error()), 2);
}

TEST(StepTimes, MoreTimeIsNeverFewerRows) {
  const StepTimes times = taught({});
  int before = 0;
  for (int ms = 0; ms < 2000; ++ms) {
    const int rows = rows_within(times, {.goal = milliseconds(ms)});
    ASSERT_GE(rows, before) << ms;
    before = rows;
  }
  EXPECT_GT(before, 500);
}

TEST(StepTimes, AGoalBelowDecodeLeavesAPage) {
  const StepTimes times = taught({});
  EXPECT_EQ(rows_within(times, {.goal = milliseconds(2)}), 32);
  EXPECT_EQ(rows_within(times, {.goal = Duration(0)}), 32);
  // Twice the most rows it saw.
  EXPECT_EQ(rows_within(times, {.goal = std::chrono::hours(1)}), 2 * 512);
}

TEST(StepTimes, OfABatchDecodeRowsAreThoseOfAnswersAndTheirDrafts) {
  Batch batch;
  batch.slices = {{.begin = 64, .len = 32},
                  {.begin = 10, .len = 5, .is_sampled = true},
                  {.begin = 99, .len = 1, .is_sampled = true},
                  {.begin = 200, .len = 4, .is_sampled = true, .num_drafts = 3}};
  const StepShape s = shape_of(batch);
  EXPECT_EQ(s.prefill_rows, 37);
  EXPECT_EQ(s.decode_rows, 1 + 4);
  EXPECT_EQ(s.keys, 32 * 64 + 32 * 33 / 2 + 5 * 10 + 15 + 100 + 4 * 200 + 10);
}

}  // namespace
}  // namespace hocket
