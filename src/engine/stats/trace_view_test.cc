#include "engine/stats/trace_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/stats/trace_file.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using Kind = LedgerSpan::Kind;

// Two layers of a 100 us step of two halves on two ranks, written to one file per rank.
class TraceView : public ::testing::Test {
 protected:
  TraceView()
      : dir_(fmt::format("{}hocket-view-{}", ::testing::TempDir(),
                         ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(dir_);
  }
  ~TraceView() override { std::filesystem::remove_all(dir_); }

  struct Piece {
    Kind kind;
    Op op;
    int half, layer;
    Duration begin, end;
  };
  static LedgerSpan span(const Piece& piece, TimePoint base) {
    return {.kind = piece.kind,
            .op = piece.op,
            .message = piece.op == Op::combine_wait ? MessageKind::combine : MessageKind::dispatch,
            .half = static_cast<uint8_t>(piece.half),
            .layer = static_cast<int16_t>(piece.layer),
            .begin = base + piece.begin,
            .end = base + piece.end};
  }
  TraceTape tape(int rank, const std::vector<Piece>& pieces) {
    const TimePoint base(Duration(1h));
    TraceTape tape{.rank = rank};
    for (const Piece& piece : pieces) tape.spans.push_back(span(piece, base));
    StepAccount account{.step = 7, .bucket = {Phase::decode, 64, 0}, .begin = base, .took = 100us};
    account.compute[0] = 60us;
    account.exposed = 10us, account.waiting = 20us, account.other = 10us, account.hidden = 30us;
    tape.steps.push_back({.account = account, .end_span = tape.spans.size()});
    return tape;
  }
  TraceTape tape(int rank) {
    return tape(rank, {{Kind::other, {}, 0, -1, 0us, 100us},
                       {Kind::other, {}, 0, -1, 0us, 10us},
                       {Kind::waiting, Op::gate, 0, -1, 2us, 6us},
                       {Kind::op, Op::attn_core, 0, 0, 10us, 30us},
                       {Kind::op, Op::dispatch_start, 0, 0, 30us, 32us},
                       {Kind::push, Op::dispatch_start, 0, 0, 30us, 31us},
                       {Kind::op, Op::attn_core, 1, 0, 32us, 50us},
                       {Kind::op, Op::dispatch_wait, 0, 0, 50us, 70us},
                       {Kind::waiting, Op::dispatch_wait, 0, 0, 50us, 60us},
                       {Kind::exposed, Op::dispatch_wait, 0, 0, 60us, 66us},
                       {Kind::wire, Op::dispatch_wait, 0, 0, 40us, 66us},
                       {Kind::wire, Op::dispatch_wait, 1, 0, 60us, 80us},
                       {Kind::wire, Op::combine_wait, 0, 0, 80us, 90us},
                       {Kind::op, Op::experts, 1, 1, 70us, 100us}});
  }
  std::string write(const std::string& name, const TraceTape& tape) {
    const std::string path = dir_ + "/" + name;
    const TraceInfo info = {.model = "m", .num_ranks = 2, .orders = &OrderTable::builtin()};
    EXPECT_TRUE(write_trace(path, info, std::span(&tape, 1)).has_value());
    return path;
  }
  static StepTrace read(const std::vector<std::string>& paths) {
    auto trace = read_traces(paths);
    EXPECT_TRUE(trace.has_value()) << trace.error().message;
    return trace ? *std::move(trace) : StepTrace();
  }

  const std::string dir_;
};

TEST_F(TraceView, AStepIsDrawn) {
  const StepTrace trace = read({write("a", tape(0)), write("b", tape(1))});
  EXPECT_EQ(*draw_step(trace, {.width = 50}),
            "step 7 | decode, 64 rows | none | 100.0 us, 1 character = 2.00 us\n"
            "rank 0   compute  |-..--aaaaaaaaaadAAAAAAAAA.....!!!wwXXXXXXXXXXXXXXX|\n"
            "         dispatch |                    0000000000+++4444444          |\n"
            "         combine  |                                        00000     |\n"
            "rank 1   compute  |-..--aaaaaaaaaadAAAAAAAAA.....!!!wwXXXXXXXXXXXXXXX|\n"
            "         dispatch |                    0000000000+++4444444          |\n"
            "         combine  |                                        00000     |\n");
  EXPECT_EQ(*draw_step(trace, {.layers = std::pair(1, 1), .width = 10}),
            "step 7 | decode, 64 rows | none | 30.0 us, 1 character = 3.00 us\n"
            "rank 0   compute  |XXXXXXXXXX|\n"
            "         dispatch |4444      |\n"
            "         combine  |   0000   |\n"
            "rank 1   compute  |XXXXXXXXXX|\n"
            "         dispatch |4444      |\n"
            "         combine  |   0000   |\n");
  EXPECT_THAT(draw_totals(trace), HasSubstr("0           1       0.100       0.060"));
  EXPECT_THAT(draw_totals(trace), HasSubstr("75.0%"));
}

TEST_F(TraceView, ArrowsBetweenProcessesAreWholeOnceTheirFilesAreTogether) {
  const auto count = [](const StepTrace& trace, const char* ph) {
    return std::ranges::count_if(trace.file["traceEvents"],
                                 [&](const json& event) { return event["ph"] == ph; });
  };
  const std::string a = write("a", tape(0)), b = write("b", tape(1));
  const StepTrace alone = read({a}), both = read({a, b});
  EXPECT_EQ(count(alone, "s") + count(alone, "f"), 0);
  EXPECT_EQ(count(both, "s"), 2);
  EXPECT_EQ(count(both, "f"), 2);
}

TEST_F(TraceView, HostsAreComparedByTheTimeOfDay) {
  const std::string a = write("a", tape(0)), b = write("b", tape(1));
  json other = json::parse(std::ifstream(b));
  other["otherData"]["boot_id"] = "another";
  other["otherData"]["unix_at_zero_us"] =
      json::parse(std::ifstream(a))["otherData"]["unix_at_zero_us"].get<double>() + 250;
  std::ofstream(b) << other;
  const StepTrace both = read({a, b});
  ASSERT_EQ(both.steps.size(), 2u);
  EXPECT_EQ(both.steps[1].begin - both.steps[0].begin, 250us);
}

TEST_F(TraceView, WhatIsNoTraceIsRefusedByName) {
  const std::string a = write("a", tape(0)), bad = dir_ + "/bad";
  const auto refused = [](const std::vector<std::string>& paths) {
    return read_traces(paths).error().message;
  };
  EXPECT_THAT(refused({dir_ + "/nowhere"}), HasSubstr("cannot read " + dir_ + "/nowhere"));
  for (const char* text : {"", "[]", "{}", R"({"traceEvents": []})"}) {
    std::ofstream(bad) << text;
    EXPECT_THAT(refused({bad}), HasSubstr("/bad is not a trace of hocket")) << text;
  }
  std::ofstream(bad) << R"({"otherData": {"producer": "hocket"}, "traceEvents": [{"ph": "X"}]})";
  EXPECT_THAT(refused({bad}), HasSubstr("/bad is damaged: "));
  EXPECT_THAT(refused({a, a}), HasSubstr("rank 0 of " + a + " is in an earlier file"));
  const StepTrace trace = read({a});
  EXPECT_THAT(draw_step(trace, {.step = 9}).error().message, HasSubstr("no step 9, but 7 to 7"));
  EXPECT_THAT(draw_step(trace, {.layers = std::pair(5, 6)}).error().message,
              HasSubstr("layers 0 to 1"));
}

}  // namespace
}  // namespace hocket
