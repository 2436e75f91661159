// Attacks the gate in virtual time: servers whose steps take what real ones took, on machines whose
// speed drifts and which hold steps up, and requests that change. A gate must lose next to nothing
// against no drafts on any of them, and come near the best fixed number.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "policy/speculation/served_drafts_testing.h"

namespace hocket {
namespace {

using testing::DrafterKind;
using testing::DraftMachine;
using testing::DraftNoise;
using testing::DraftRun;
using testing::DraftServer;

struct MeasuredServer {
  const char* name;
  int num_answers;
  DraftMachine machine;
};

// Times of `hocket bench speculation`, relative to a step without drafts, of shape small in int4.
std::vector<MeasuredServer> measured_servers() {
  const auto of = [](const char* name, int num_answers,
                     std::vector<std::pair<int, double>> measured_us) {
    return MeasuredServer{name, num_answers, {.measured_us = std::move(measured_us)}};
  };
  return {of("small, 1", 1, {{1, 1000}, {2, 1610}, {3, 1650}, {5, 2530}, {9, 2900}}),
          of("small, 4", 4, {{4, 1000}, {8, 1370}, {12, 1850}, {20, 2420}, {36, 4200}}),
          of("small, 16", 16, {{16, 1000}, {32, 1910}, {48, 1915}, {80, 2303}, {144, 4465}}),
          of("small, 64", 64, {{64, 1000}, {128, 1880}, {192, 2020}, {320, 3600}, {576, 6500}}),
          of("small, 1, long", 1, {{1, 1000}, {2, 1090}, {3, 1410}, {5, 2150}, {9, 2800}})};
}

struct NoisyMachine {
  const char* name;
  double of_best;  // how near the gate comes to the best fixed number
  DraftNoise noise;
};

const NoisyMachine kNoisyMachines[] = {
    {"calm", 0.97, {.step = 0.02}},
    {"drifts", 0.96, {.step = 0.05, .drift = 0.1, .drift_steps = 100, .cold = 0.05}},
    {"drifts fast",
     0.91,
     {.step = 0.08, .drift = 0.15, .drift_steps = 30, .held_up = 0.01, .cold = 0.05}},
    {"is held up",
     0.94,
     {.step = 0.05,
      .drift = 0.2,
      .drift_steps = 300,
      .held_up = 0.03,
      .held_up_by = 10,
      .cold = 0.1}},
    {"jumps", 0.93, {.step = 0.08, .jump = 0.01, .cold = 0.05}},
};

class GateOnRealTimes : public ::testing::TestWithParam<NoisyMachine> {
 protected:
  static constexpr int kRuns = 4;
  // Returns the mean over some runs that differ by chance.
  template <class Measure>
  static double mean_of(DraftRun run, Measure&& measure) {
    double sum = 0;
    for (run.seed = 1; run.seed <= kRuns; ++run.seed) {
      DraftServer server(run);
      sum += measure(server) / kRuns;
    }
    return sum;
  }
};

TEST_P(GateOnRealTimes, LosesNoPercentAndReachesTheBestFixedNumber) {
  for (const MeasuredServer& measured : measured_servers())
    for (const double chance : {0.0, 0.3, 0.6, 0.8, 0.9}) {
      SCOPED_TRACE(::testing::Message() << measured.name << ", chance " << chance);
      const DraftRun run{
          .machine = measured.machine,
          .chances = std::vector<double>(static_cast<size_t>(measured.num_answers), chance),
          .making = DrafterKind::free,
          .noise = GetParam().noise};
      double of_off = 0;
      const double of_best = mean_of(run, [&](DraftServer& server) {
        server.rate_of(200);
        const double rate = server.rate_of(1000);
        of_off += rate / server.fixed_rate(0) / kRuns;
        return rate / server.best_fixed_rate();
      });
      EXPECT_GE(of_off, 0.99);
      EXPECT_GE(of_best, GetParam().of_best);
    }
}

TEST_P(GateOnRealTimes, FindsALargeGainWithin200Steps) {
  for (const MeasuredServer& measured : measured_servers())
    for (const double chance : {0.6, 0.8, 0.9}) {
      SCOPED_TRACE(::testing::Message() << measured.name << ", chance " << chance);
      const DraftRun run{
          .machine = measured.machine,
          .chances = std::vector<double>(static_cast<size_t>(measured.num_answers), chance),
          .making = DrafterKind::free,
          .noise = GetParam().noise};
      const double of_best = mean_of(run, [](DraftServer& server) {
        if (server.best_fixed_rate() < 1.05 * server.fixed_rate(0)) return 1.0;
        server.rate_of(200);
        return server.rate_of(100) / server.best_fixed_rate();
      });
      EXPECT_GE(of_best, 0.9);
    }
}

// Half of the time drafts are accepted, and half of the time they are not.
TEST_P(GateOnRealTimes, LosesNothingIfAcceptanceTurns) {
  for (const MeasuredServer& measured : measured_servers()) {
    SCOPED_TRACE(measured.name);
    const DraftRun run{
        .machine = measured.machine,
        .chances = std::vector<double>(static_cast<size_t>(measured.num_answers), 0.9),
        .making = DrafterKind::free,
        .noise = GetParam().noise};
    const double of_off = mean_of(run, [](DraftServer& server) {
      double tokens = 0, us = 0, off_us = 0;
      for (int i = 0; i < 3000; ++i) {
        if (i % 300 == 0) server.set_chance(i % 600 == 0 ? 0.9 : 0.1);
        const DraftServer::StepResult taken = server.step();
        tokens += taken.tokens, us += taken.us;
        off_us += taken.tokens / server.fixed_rate(0);
      }
      return off_us / us;
    });
    EXPECT_GE(of_off, 0.99);
  }
}

TEST_P(GateOnRealTimes, LosesNothingIfOneOfSixteenAccepts) {
  for (const MeasuredServer& measured : measured_servers()) {
    if (measured.num_answers != 16) continue;
    std::vector<double> chances(16, 0.05);
    chances[3] = 0.95;
    const double of_off = mean_of({.machine = measured.machine,
                                   .chances = chances,
                                   .making = DrafterKind::free,
                                   .noise = GetParam().noise},
                                  [](DraftServer& server) {
                                    server.rate_of(200);
                                    return server.rate_of(1000) / server.fixed_rate(0);
                                  });
    EXPECT_GE(of_off, 0.99);
  }
}

// Answers come and go, so that steps have many sizes.
TEST_P(GateOnRealTimes, LosesNothingIfTheBatchChanges) {
  for (const double chance : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(::testing::Message() << "chance " << chance);
    const double of_off = mean_of({.chances = std::vector<double>(24, chance),
                                   .making = DrafterKind::free,
                                   .noise = GetParam().noise},
                                  [](DraftServer& server) {
                                    std::mt19937 random(7);
                                    double us = 0, off_us = 0;
                                    for (int i = 0; i < 4000; ++i) {
                                      if (i % 13 == 0)
                                        server.set_num_running(1 + static_cast<int>(random() % 24));
                                      const DraftServer::StepResult taken = server.step();
                                      us += taken.us;
                                      off_us += taken.tokens / server.fixed_rate(0);
                                    }
                                    return off_us / us;
                                  });
    EXPECT_GE(of_off, 0.99);
  }
}

// Drafts pay at first. Then they gain against steps that do not overlap, and lose against those
// that do. While drafts are played no step overlaps, so none shows that.
TEST_P(GateOnRealTimes, LosesNothingIfDraftsPreventOverlap) {
  for (const double share : {0.8, 0.9, 1.0})
    for (const double chance : {0.0, 0.5, 0.6, 0.8}) {
      SCOPED_TRACE(::testing::Message() << "share " << share << ", chance " << chance);
      double of_off = 0;
      const double of_best = mean_of({.machine = measured_servers()[0].machine,
                                      .chances = {0.95},
                                      .making = DrafterKind::free,
                                      .noise = GetParam().noise,
                                      .overlapped_share = share},
                                     [&](DraftServer& server) {
                                       server.rate_of(500);
                                       server.set_chance(chance);
                                       server.rate_of(400);
                                       const double rate = server.rate_of(1500);
                                       of_off += rate / server.fixed_rate(0) / kRuns;
                                       return rate / server.best_fixed_rate();
                                     });
      EXPECT_GE(of_off, 0.98);
      EXPECT_GE(of_best, 0.93);
    }
}

INSTANTIATE_TEST_SUITE_P(Machines, GateOnRealTimes, ::testing::ValuesIn(kNoisyMachines),
                         [](const auto& param) {
                           std::string name = param.param.name;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace hocket
