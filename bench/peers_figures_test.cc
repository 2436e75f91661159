#include "bench/peers_figures.h"

#include <gtest/gtest.h>

#include "bench/child_program.h"

namespace hocket {
namespace {

constexpr Pass kPrefill512 = {Pass::Kind::prefill, 512};
constexpr Pass kPrefill2048 = {Pass::Kind::prefill, 2048};
constexpr Pass kOne = {Pass::Kind::decode, 1};
constexpr Pass kSixteen = {Pass::Kind::decode, 16};

// Recorded output, without the fields that are not parsed.
constexpr std::string_view kLlamaBench = R"([
  {
    "build_commit": "3f545becc",
    "build_number": 9875,
    "model_filename": "small-bf16.gguf",
    "model_size": 1402338304,
    "n_threads": 2,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ts": 420.5,
    "samples_ns": [ 1269841269, 1207547169 ],
    "samples_ts": [ 403.2, 424 ]
  },
  {
    "build_commit": "3f545becc",
    "build_number": 9875,
    "n_prompt": 0,
    "n_gen": 32,
    "n_depth": 128,
    "avg_ts": 57,
    "samples_ts": [ 50, 58, 60 ]
  }
]
)";

constexpr std::string_view kIkLlamaBench = R"(warning: something about mlock
[
  {
    "build_commit": "8337e4cd3",
    "build_number": "4321",
    "repack": true,
    "n_prompt": 128,
    "n_gen": 32,
    "avg_ts": 71.25,
    "test": "tg32@pp128",
    "samples_ts": [ 71.25 ]
  }
]
)";

TEST(PeersFigures, LlamaBenchAsBothPrintIt) {
  const auto run = parse_llama_bench(kLlamaBench);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->build, "3f545becc (9875)");
  EXPECT_EQ(run->tokens_per_s, (Rates{{kPrefill512, 424}, {kOne, 59}}));  // without the warm-up
  const auto ik = parse_llama_bench(kIkLlamaBench);
  ASSERT_TRUE(ik);
  EXPECT_EQ(ik->build, "8337e4cd3 (4321)");
  EXPECT_EQ(ik->tokens_per_s, (Rates{{kOne, 71.25}}));
}

TEST(PeersFigures, OutputThatIsNoBenchIsRefused) {
  for (const std::string_view text : {"", "error: no such file", "[", "[]", "[1]", "[{}]"})
    EXPECT_EQ(parse_llama_bench(text).error().code, ErrorCode::bad_value) << text;
  for (const std::string_view text : {"", "{}", "{\"speed_tg\"", "| a | b |", "| 1 | 2 |"})
    EXPECT_EQ(parse_batched_bench(text).error().code, ErrorCode::bad_value) << text;
  for (const std::string_view text : {"", "{}", "{\"threads\": 2, \"read_gb_s\": 50}"})
    EXPECT_EQ(parse_one_batch(text).error().code, ErrorCode::bad_value) << text;
}

TEST(PeersFigures, BatchedBenchAsLinesOrAsATable) {
  const auto lines = parse_batched_bench(
      "\n"
      R"({"n_kv_max": 8192, "n_batch": 2048, "is_pp_shared": 1, "pp": 128, "tg": 32, "pl": 1, )"
      R"("n_kv": 160, "t_pp": 0.309, "speed_pp": 413.6, "t_tg": 0.602, "speed_tg": 53.1})"
      "\n"
      R"({"pp": 128, "tg": 32, "pl": 16, "n_kv": 640, "speed_pp": 411.0, "speed_tg": 124.5})"
      "\n\nllama_perf_context_print: load time = 512 ms\n");
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->tokens_per_s, (Rates{{kOne, 53.1}, {kSixteen, 124.5}}));
  const auto table = parse_batched_bench(
      "main: n_kv_max = 8192, n_batch = 2048\n\n"
      "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |"
      "    S t/s |\n"
      "|-------|--------|------|--------|----------|----------|----------|----------|----------|"
      "----------|\n"
      "|   128 |     32 |   16 |    640 |    0.224 |   571.43 |    3.467 |   147.68 |    3.691 |"
      "   173.40 |\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->tokens_per_s, (Rates{{kSixteen, 147.68}}));
}

TEST(PeersFigures, OneBatchAndItsRoof) {
  const auto run = parse_one_batch(
      R"({"cpu":"AMD EPYC","isa":"avx512","threads":2,"weight_bytes":1400000000,)"
      R"("peak_resident_bytes":1500000000,"read_gb_s":60.5,)"
      R"("peak_gflop_s":480.0,"integer_gop_s":1900.0,"peak":"FMA"})"
      "\n"
      R"({"case":"prefill","input_len":2048,"tokens_per_s":1100.0,"read_fraction":0.01,)"
      R"("peak_fraction":0.5})"
      "\n"
      R"({"case":"decode","batch":16,"context_len":128,"output_len":32,"tokens_per_s":600.0,)"
      R"("read_fraction":0.6,"peak_fraction":0.3})"
      "\n");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->cpu, "AMD EPYC");
  EXPECT_EQ(run->threads, 2);
  EXPECT_EQ(run->peak_resident_bytes, 1500000000);
  EXPECT_DOUBLE_EQ(run->read_gb_s, 60.5);
  EXPECT_EQ(run->tokens_per_s, (Rates{{kPrefill2048, 1100}, {kSixteen, 600}}));
  EXPECT_DOUBLE_EQ(run->roof.at(kPrefill2048), 2200);  // multiplies bind
  EXPECT_DOUBLE_EQ(run->roof.at(kSixteen), 1000);      // bytes bind
}

TEST(PeersFigures, RatioIsToTheBetterPeerRoundByRound) {
  const Comparison c = compare({100, 120, 110}, {200, 200, 200}, {{50, 60, 44}, {}, {80, 80, 100}});
  EXPECT_DOUBLE_EQ(c.own.tokens_per_s.median, 110);
  EXPECT_DOUBLE_EQ(c.own.roof_fraction, 0.55);
  ASSERT_EQ(c.peers.size(), 3U);
  EXPECT_FALSE(c.peers[1]);
  EXPECT_EQ(c.better, 2);
  EXPECT_DOUBLE_EQ(c.peers[2]->roof_fraction, 0.4);
  EXPECT_DOUBLE_EQ(c.ratio.median, 1.25);
  EXPECT_DOUBLE_EQ(c.ratio.low, 1.1);
  EXPECT_DOUBLE_EQ(c.ratio.high, 1.5);
  EXPECT_EQ(compare({1}, {2}, {{}}).better, -1);
}

TEST(PeersFigures, NamesOfPasses) {
  EXPECT_EQ(name_of(kPrefill512), "prefill 512");
  EXPECT_EQ(name_of(kSixteen), "decode b=16");
}

TEST(ChildProgram, OutputMemoryAndFailure) {
  const auto run = run_program({"sh", "-c", "echo out; echo err >&2"});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->out, "out\n");
  EXPECT_EQ(run->err, "err\n");
  EXPECT_GT(run->peak_resident_bytes, 0);
  const auto failed = run_program({"sh", "-c", "echo why >&2; exit 3"});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::io);
  EXPECT_NE(failed.error().message.find("status 3: why"), std::string::npos);
  EXPECT_FALSE(run_program({"/no/such/program"}));
}

}  // namespace
}  // namespace hocket
