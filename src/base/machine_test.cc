#include "base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

namespace hocket {
namespace {

using testing::HasSubstr;

// Sets HOCKET_ISA for one test and restores its value afterwards.
class IsaVariable {
 public:
  explicit IsaVariable(const char* value) {
    if (const char* old = std::getenv("HOCKET_ISA")) old_ = old;
    setenv("HOCKET_ISA", value, 1);
  }
  ~IsaVariable() {
    if (old_) {
      setenv("HOCKET_ISA", old_->c_str(), 1);
    } else {
      unsetenv("HOCKET_ISA");
    }
  }
  IsaVariable(const IsaVariable&) = delete;
  IsaVariable& operator=(const IsaVariable&) = delete;

 private:
  std::optional<std::string> old_;
};

TEST(Isa, NamesGoBothWays) {
  for (Isa isa : kAllIsas) EXPECT_EQ(parse_isa(isa_name(isa)).value(), isa);
}

TEST(Isa, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Result<Isa> isa = parse_isa("sse9");
  ASSERT_FALSE(isa);
  EXPECT_EQ(isa.error().code, ErrorCode::unknown_isa);
  EXPECT_THAT(isa.error().message, HasSubstr("'sse9'"));
  EXPECT_THAT(isa.error().fix, HasSubstr("avx512"));
}

TEST(Isa, TheVariableForcesALowerLevel) {
  const IsaVariable variable("ref");
  EXPECT_EQ(choose_isa().value(), Isa::ref);
}

TEST(Isa, AnEmptyVariableMeansTheBest) {
  const IsaVariable variable("");
  EXPECT_EQ(choose_isa().value(), detect_isa());
}

// Processors of each kind, and the level that each gets.
TEST(Isa, TheFastestLevelIsChosenAndNoneWhoseInstructionsAreMissing) {
  using enum Isa;
  struct Case {
    IsaFacts facts;
    Isa best;
    std::vector<Isa> lacking;
  };
  const std::vector<Case> cases = {
      {{ref, false, false}, ref, {avx2, avx512, avx512_bf16, amx, amx_emulated}},
      {{avx2, false, false}, avx2, {avx512, avx512_bf16, amx, amx_emulated}},
      {{avx512, false, false}, avx512, {avx512_bf16, amx}},
      {{avx512, true, false}, avx512, {amx}},
      {{avx512, true, true}, avx512_bf16, {amx}},
      {{amx, false, false}, amx, {avx512_bf16}},
      {{amx, true, true}, amx, {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(choose_isa(c.facts, "").value(), c.best);
    for (Isa isa : kAllIsas) {
      const Result<Isa> chosen = choose_isa(c.facts, isa_name(isa));
      EXPECT_EQ(chosen.has_value(), std::ranges::count(c.lacking, isa) == 0)
          << isa_name(isa) << " where " << isa_name(c.best) << " is the fastest";
      EXPECT_EQ(chosen.value_or(isa), isa);
    }
  }
}

TEST(Isa, WhatTheProcessorLacksIsNamed) {
  const auto refusal = [](Isa highest, std::string_view wanted) {
    return describe(choose_isa({.highest = highest}, wanted).error());
  };
  const std::string pairs = refusal(Isa::amx, "avx512_bf16");
  EXPECT_THAT(pairs, HasSubstr("HOCKET_ISA=avx512_bf16: this processor or its kernel lacks "
                               "avx512_bf16; the fastest level here is amx"));
  EXPECT_THAT(pairs, HasSubstr("fix: HOCKET_ISA=amx"));
  EXPECT_THAT(refusal(Isa::avx512, "amx"),
              HasSubstr("lacks amx; the fastest level here is avx512"));
  EXPECT_THAT(refusal(Isa::avx2, "amx_emulated"), HasSubstr("lacks avx512;"));
}

TEST(Isa, ThisProcessorRunsTheLevelThatItGets) {
  EXPECT_TRUE(runs_here(detect_isa()));
  EXPECT_NE(detect_isa(), Isa::amx_emulated);
  if (!has_feature("avx512_bf16")) {
    EXPECT_FALSE(is_bf16_faster_than_fma());
    EXPECT_FALSE(runs_here(Isa::avx512_bf16));
  }
}

TEST(Isa, PairsAreChosenUnlessTheyTakeHalfAsLongAgain) {
  EXPECT_TRUE(is_bf16_faster_than_fma(5000, 5000));  // AMD: one rate, twice the numbers
  EXPECT_TRUE(is_bf16_faster_than_fma(5000, 7400));
  EXPECT_FALSE(is_bf16_faster_than_fma(5000, 7600));
  EXPECT_FALSE(is_bf16_faster_than_fma(5000, 10000));  // Intel: half the rate
  EXPECT_FALSE(is_bf16_faster_than_fma(0, 0));
  EXPECT_FALSE(is_bf16_faster_than_fma(-2, -4));
}

TEST(Machine, ItsPartsAgree) {
  const Machine m = inspect_machine();
  EXPECT_FALSE(m.cpu_name.empty());
  EXPECT_GE(m.num_cores, 1);
  EXPECT_LE(m.num_cores, static_cast<int>(m.cpus.size()));
  EXPECT_EQ(std::set<int>(m.cpus.begin(), m.cpus.end()).size(), m.cpus.size());
  EXPECT_GE(m.num_numa_nodes, 1);
  EXPECT_GT(m.memory_bytes, int64_t{64} << 20);
  EXPECT_GT(m.memory_available_bytes, 0);
  EXPECT_LE(m.memory_available_bytes, m.memory_bytes);
  EXPECT_THAT(m.huge_pages, testing::AnyOf("always", "madvise", "never"));
  const auto has = [&](const char* name) { return std::ranges::count(m.features, name) == 1; };
  EXPECT_TRUE(has("avx512vl") || m.isa < Isa::avx512);
  EXPECT_TRUE(has("amx_bf16") || m.isa < Isa::amx);
}

TEST(Machine, IsDescribedInOneLine) {
  Machine m{.cpu_name = "AMD EPYC",
            .isa = Isa::avx512_bf16,
            .features = {},
            .cpus = {0, 1},
            .num_cores = 2,
            .memory_bytes = 23'400'000'000,
            .memory_available_bytes = 22'000'000'000,
            .huge_pages = "madvise"};
  EXPECT_EQ(describe(m), "AMD EPYC | AVX512_BF16 | 2 cores | 23.4 GB, 22.0 GB free | 1 NUMA node");
  m.forced_isa = Isa::avx512;
  EXPECT_THAT(describe(m), HasSubstr(" | AVX512 by HOCKET_ISA, else AVX512_BF16 | "));
}

TEST(Machine, ALevelIsForcedWhereTheVariableNamesAnother) {
  const IsaVariable other("amx_emulated");
  EXPECT_EQ(inspect_machine().forced_isa.has_value(), runs_here(Isa::amx_emulated));
  const IsaVariable same(std::string(isa_name(detect_isa())).c_str());
  EXPECT_FALSE(inspect_machine().forced_isa);
}

}  // namespace
}  // namespace hocket
