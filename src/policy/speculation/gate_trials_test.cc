// Tests which numbers of drafts the gate tries, on machines whose times were measured.
#include <gtest/gtest.h>

#include <vector>

#include "policy/speculation/served_drafts_testing.h"

namespace hocket {
namespace {

using testing::DraftMachine;
using testing::DraftRun;
using testing::DraftServer;
using testing::Making;

// Returns the mean over some runs of how near the server comes to the best fixed number after its
// first 200 steps with drafts that hold by `chance`, behind `before` steps in which 0.3 of them do.
double share_of_best_behind(DraftRun run, double chance, int before) {
  constexpr int kRuns = 8;
  double sum = 0;
  for (run.seed = 1; run.seed <= kRuns; ++run.seed) {
    DraftServer server(run);
    if (before > 0) {
      server.set_chance(0.3);
      server.rate_of(before);
      server.set_chance(chance);
    }
    server.rate_of(200);
    sum += server.rate_of(200) / server.best_fixed_rate();
  }
  return sum / kRuns;
}

// Shape small in int4 with 16 answers: a second row of each takes nearly as long as three more. The
// first trials show the dear rows only; that must not speak against all others.
TEST(Gate, FindsThatManyDraftsPayWhereFewDoNot) {
  const DraftMachine machine{
      .measured_us = {{16, 1000}, {32, 1910}, {48, 1915}, {80, 2303}, {144, 4465}}};
  for (const double chance : {0.8, 0.9})
    for (const int before : {0, 300, 1000}) {
      SCOPED_TRACE(::testing::Message() << "chance " << chance << " behind " << before << " steps");
      EXPECT_GE(share_of_best_behind({.machine = machine,
                                      .chances = std::vector<double>(16, chance),
                                      .making = Making::free,
                                      .noise = 0.05},
                                     chance, before),
                before == 0 ? 0.95 : chance - 0.05);
    }
}

// Drafts are not to blame for the time that other programs take.
TEST(Gate, FindsAGainThoughTheMachineHoldsUpSomeSteps) {
  for (const double chance : {0.8, 0.9}) {
    SCOPED_TRACE(::testing::Message() << "chance " << chance);
    EXPECT_GE(share_of_best_behind(
                  {.machine = {.measured_us = {{1, 1000}, {2, 1610}, {3, 1650}, {5, 2530}}},
                   .chances = {chance},
                   .making = Making::free,
                   .noise = 0.05,
                   .held_up_every = 16},
                  chance, 0),
              0.95);
  }
}

}  // namespace
}  // namespace hocket
