#include "bench/machine.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr std::string_view kKernels =
    R"({"isa":"avx2","threads":2,"read_gb_s":40.25,"peak":"FMA",)"
    R"("peak_gflop_s":215.4,"int8_gop_s":1431})"
    "\n"
    R"({"case":"linear rows=1 k=2048 n=2048 bf16","us":256.0,"us_p10":250,)"
    R"("us_p90":1260,"ref_ratio":7.14,"bf16_ratio":0,"fraction":0.861,)"
    R"("limit":"read bandwidth","same_bits":true})"
    "\n"
    R"({"case":"linear rows=1 k=2048 n=2048 int8","us":99.96,"us_p10":90,)"
    R"("us_p90":110,"ref_ratio":9,"bf16_ratio":1.94,"fraction":0.8,)"
    R"("limit":"read bandwidth","same_bits":true})"
    "\n";

TEST(MachineTables, KernelsHaveLimitsAndARowForEachCase) {
  EXPECT_EQ(*kernels_table(kKernels),
            "Limits (avx2, 2 threads): read 40.2 GB/s, FMA 215 GFLOP/s, int8 1,431 Gop/s.\n\n"
            "| Case | Time (p10-p90) | Speed against ref | against bf16 | Share of the limit |\n"
            "| --- | --- | --- | --- | --- |\n"
            "| linear rows=1 k=2048 n=2048 bf16 | 256 us (250-1,260) | 7.1 x |  | 0.86 of read "
            "bandwidth |\n"
            "| linear rows=1 k=2048 n=2048 int8 | 100.0 us (90.0-110) | 9.0 x | 1.94 x | 0.80 of "
            "read bandwidth |\n");
}

std::string passes_of(double read, double decode) {
  return R"({"cpu":"some","isa":"avx2","threads":2,"read_gb_s":)" + std::to_string(read) +
         R"(,"peak":"FMA"})"
         "\n"
         R"({"case":"prefill 512","input_len":512,"tokens_per_s":1512,)"
         R"("tokens_per_s_min":1155,"tokens_per_s_max":1553,"read_fraction":0.03,)"
         R"("peak_fraction":0.7})"
         "\n"
         R"({"case":"decode","batch":16,"context_len":128,"tokens_per_s":)" +
         std::to_string(decode) +
         R"(,"tokens_per_s_min":40,"tokens_per_s_max":60,"read_fraction":0.5,)"
         R"("peak_fraction":0.2})"
         "\n";
}

TEST(MachineTables, PassesHaveAColumnForEachForm) {
  EXPECT_EQ(*passes_table({passes_of(40, 50), passes_of(41, 51), passes_of(42, 52)}),
            "| Pass | bf16 (read 40.0 GB/s) | int8 (read 41.0 GB/s) | int4 (read 42.0 GB/s) |\n"
            "| --- | --- | --- | --- |\n"
            "| prefill 512 | 1,512 (1,155-1,553) [0.70] | 1,512 (1,155-1,553) [0.70] | 1,512 "
            "(1,155-1,553) [0.70] |\n"
            "| decode b=16 | 50.0 (40.0-60.0) [0.50] | 51.0 (40.0-60.0) [0.50] | 52.0 (40.0-60.0) "
            "[0.50] |\n");
}

TEST(MachineTables, APassThatAFormLacksLeavesItsCellEmpty) {
  const std::string whole = passes_of(40, 50);
  const std::string first_only = whole.substr(0, whole.find(R"({"case":"decode")"));
  EXPECT_EQ(*passes_table({first_only, whole, first_only}),
            "| Pass | bf16 (read 40.0 GB/s) | int8 (read 40.0 GB/s) | int4 (read 40.0 GB/s) |\n"
            "| --- | --- | --- | --- |\n"
            "| prefill 512 | 1,512 (1,155-1,553) [0.70] | 1,512 (1,155-1,553) [0.70] | 1,512 "
            "(1,155-1,553) [0.70] |\n"
            "| decode b=16 |  | 50.0 (40.0-60.0) [0.50] |  |\n");
}

TEST(MachineTables, ACaseWithoutAGoalHasNoShareOfIt) {
  EXPECT_EQ(*scheduler_table(R"({"name":"decode 256","us_p50":6.04,"us_p99":9.29,"goal_us":15,)"
                             R"("ratio":0.4})"
                             "\n"
                             R"({"name":"decode 1","us_p50":0.08,"us_p99":0.11,"goal_us":null,)"
                             R"("ratio":null})"
                             "\n"),
            "| Case | p50 (p99) | Share of the goal |\n"
            "| --- | --- | --- |\n"
            "| decode 256 | 6.04 us (9.29) | 0.40 |\n"
            "| decode 1 | 0.08 us (0.11) |  |\n");
}

TEST(MachineTables, OnlyThePlannersChoiceInRealTimeHasARow) {
  EXPECT_EQ(
      *overlap_table(R"({"clock":"virtual","phase":"decode","rows":8,"link_gbit":1,"ranks":2,)"
                     R"("order":"auto","plan":"a","step_us":9,"eta":1,"auto_over_serial":1,)"
                     R"("auto_over_best":1})"
                     "\n"
                     R"({"clock":"real","phase":"decode","rows":8,"link_gbit":1,"ranks":2,)"
                     R"("order":"serial","plan":"serial","step_us":9,"eta":1,)"
                     R"("auto_over_serial":1,"auto_over_best":1})"
                     "\n"
                     R"({"clock":"real","phase":"decode","rows":64,"link_gbit":1,"ranks":2,)"
                     R"("order":"auto","plan":"two-halves","step_us":12345,"eta":0.9,)"
                     R"("auto_over_serial":1.2,"auto_over_best":0.99})"
                     "\n"),
      "| Step | Chosen plan | Time | Overlap efficiency (eta) | Speed against serial | "
      "Speed against the fastest order |\n"
      "| --- | --- | --- | --- | --- | --- |\n"
      "| decode 64 rows, 1 Gbit/s, 2 ranks | two-halves | 12,345 us | 0.90 | 1.200 | 0.990 "
      "|\n");
}

TEST(MachineTables, ABenchThatPrintedNoFiguresIsAnError) {
  for (const auto table : {kernels_table, scheduler_table, overlap_table})
    EXPECT_EQ(table("no figures\n{\"why\":1}\n").error().code, ErrorCode::bad_value);
  EXPECT_EQ(passes_table({"", "", ""}).error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
