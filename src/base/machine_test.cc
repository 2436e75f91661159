#include "base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

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

TEST(Isa, WhatTheProcessorLacksIsRefused) {
  if (detect_isa() == Isa::amx) {
    const IsaVariable variable("amx");
    EXPECT_EQ(choose_isa().value(), Isa::amx);
  } else {
    const IsaVariable variable("amx");
    const Result<Isa> isa = choose_isa();
    ASSERT_FALSE(isa);
    EXPECT_EQ(isa.error().code, ErrorCode::unknown_isa);
    EXPECT_THAT(isa.error().fix, HasSubstr(isa_name(detect_isa())));
  }
}

TEST(Isa, EmulatedTilesNeedAvx512AndAreNeverChosen) {
  EXPECT_NE(detect_isa(), Isa::amx_emulated);
  const IsaVariable variable("amx_emulated");
  EXPECT_EQ(choose_isa().has_value(), detect_isa() >= Isa::avx512);
}

TEST(Isa, PairsOfBf16NeedTheirInstructionAndAreChosenWhereTheyAreFaster) {
  EXPECT_EQ(runs_here(Isa::avx512_bf16), detect_isa() >= Isa::avx512 && has_feature("avx512_bf16"));
  if (is_bf16_faster_than_fma()) {
    EXPECT_GE(detect_isa(), Isa::avx512_bf16);
  }
  const IsaVariable variable("avx512_bf16");
  EXPECT_EQ(choose_isa().has_value(), runs_here(Isa::avx512_bf16));
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
  const Machine m{.cpu_name = "AMD EPYC",
                  .isa = Isa::avx512,
                  .features = {},
                  .cpus = {0, 1},
                  .num_cores = 2,
                  .memory_bytes = 23'400'000'000,
                  .memory_available_bytes = 22'000'000'000,
                  .huge_pages = "madvise"};
  EXPECT_EQ(describe(m), "AMD EPYC | AVX512 | 2 cores | 23.4 GB, 22.0 GB free | 1 NUMA node");
}

}  // namespace
}  // namespace hocket
