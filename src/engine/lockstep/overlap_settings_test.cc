#include "engine/lockstep/overlap_settings.h"
#include "compute/overlap/order_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>

namespace hocket {
namespace {

using Mode = OverlapChoice::Mode;
using ::testing::HasSubstr;

ParallelSettings two_ranks(const std::function<void(ParallelSettings&)>& change) {
  ParallelSettings settings{.ep_size = 2};
  change(settings);
  return settings;
}

OverlapSettings chosen(const std::function<void(ParallelSettings&)>& change) {
  auto made = choose_overlap(two_ranks(change));
  EXPECT_TRUE(made) << describe(made.error());
  return made ? *std::move(made) : OverlapSettings{.orders = {}, .choices = {}, .name = "error"};
}

void expect_refused(const std::function<void(ParallelSettings&)>& change, const std::string& why,
                    const std::string& fix) {
  const auto made = choose_overlap(two_ranks(change));
  ASSERT_FALSE(made) << "for " << why;
  EXPECT_EQ(made.error().code, ErrorCode::bad_value);
  EXPECT_THAT(describe(made.error()), HasSubstr(why));
  EXPECT_THAT(describe(made.error()), HasSubstr(fix));
}

// A file with two orders besides the built-in ones.
class UserFile {
 public:
  UserFile() {
    const OrderTable& known = OrderTable::builtin();
    Order one = known.at(known.find("four-phase")), two = known.at(known.find("sglang-decode"));
    one.name = "one", two.name = "two";
    std::ofstream(path_) << to_yaml(one) << "---\n" << to_yaml(two);
  }
  ~UserFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = ::testing::TempDir() + "/overlap_settings_test.yaml";
};

TEST(OverlapSettings, NothingSaidIsAuto) {
  const OverlapSettings all = chosen([](auto&) {});
  EXPECT_EQ(all.choices[0].mode, Mode::automatic);
  EXPECT_EQ(all.name, "auto");
  EXPECT_EQ(all.orders->size(), OrderTable::builtin().size());
  EXPECT_TRUE(all.changes.empty());
}

TEST(OverlapSettings, EachWayToSayIt) {
  const auto mode = [](const char* name) {
    return chosen([&](auto& s) { s.overlap = name; }).choices[1].mode;
  };
  EXPECT_EQ(mode("auto"), Mode::automatic);
  EXPECT_EQ(mode("none"), Mode::none);
  EXPECT_EQ(mode("single-batch"), Mode::single_batch);
  EXPECT_EQ(mode("two-batch"), Mode::two_batch);
  const OverlapSettings order = chosen([](auto& s) { s.overlap = "four-phase"; });
  EXPECT_EQ(order.choices[0].mode, Mode::order);
  EXPECT_EQ(order.orders->at(order.choices[0].order).name, "four-phase");
  const OverlapSettings two = chosen([](auto& s) { s.enable_two_batch_overlap = true; });
  EXPECT_EQ(two.choices[0].mode, Mode::two_batch);
  EXPECT_EQ(two.name, "two-batch");
  const OverlapSettings one = chosen([](auto& s) { s.enable_single_batch_overlap = true; });
  EXPECT_EQ(one.choices[0].mode, Mode::single_batch);
  // Both flags name the same kind.
  EXPECT_EQ(chosen([](auto& s) {
              s.overlap = "sglang-decode";
              s.enable_two_batch_overlap = true;
            }).name,
            "sglang-decode");
}

TEST(OverlapSettings, TheFirstOrderOfAFileIsPlayedUnlessAnotherIsNamed) {
  const UserFile file;
  const OverlapSettings first = chosen([&](auto& s) { s.overlap_plan = file.path(); });
  EXPECT_EQ(first.name, "one");
  EXPECT_EQ(first.choices[1].mode, Mode::order);
  EXPECT_EQ(first.choices[1].order, first.orders->user_begin());
  EXPECT_NE(first.orders->fingerprint(), OrderTable::builtin().fingerprint());
  for (const char* name : {"two", "four-phase", "auto", "none"})
    EXPECT_EQ(chosen([&](auto& s) {
                s.overlap_plan = file.path();
                s.overlap = name;
              }).name,
              name);
}

TEST(OverlapSettings, EachPhaseMayHaveItsOwn) {
  const OverlapSettings both = chosen([](auto& s) {
    s.overlap = "none";
    s.overlap_order_decode = "lightllm-decode";
  });
  EXPECT_EQ(both.choices[0].mode, Mode::none);
  EXPECT_EQ(both.choices[1].mode, Mode::order);
  EXPECT_EQ(both.choices[1].flag, "--overlap-order-decode lightllm-decode");
  EXPECT_EQ(both.name, "prefill none, decode lightllm-decode");
  // The flag of a kind holds for the phase that has no order of its own.
  const OverlapSettings two = chosen([](auto& s) {
    s.enable_two_batch_overlap = true;
    s.overlap_order_prefill = "lightllm-prefill";
  });
  EXPECT_EQ(two.choices[0].mode, Mode::order);
  EXPECT_EQ(two.choices[1].mode, Mode::two_batch);
  EXPECT_EQ(two.choices[1].flag, "--enable-two-batch-overlap");
  EXPECT_EQ(
      chosen([](auto& s) { s.overlap_order_prefill = s.overlap_order_decode = "two-batch"; }).name,
      "two-batch");
  expect_refused([](auto& s) { s.overlap_order_decode = "lightllm-decod"; },
                 "--overlap-order-decode lightllm-decod is not",
                 "--overlap-order-decode lightllm-decode");
  // A phase's own flag comes before those of both, `auto` and `none` too.
  const OverlapSettings own = chosen([](auto& s) {
    s.overlap_order_prefill = "none";
    s.overlap_order_decode = "auto";
    s.enable_two_batch_overlap = true;
  });
  EXPECT_EQ(own.choices[0].mode, Mode::none);
  EXPECT_EQ(own.choices[1].mode, Mode::automatic);
  expect_refused(
      [](auto& s) {
        s.overlap = "four-fase";
        s.overlap_order_prefill = s.overlap_order_decode = "none";
      },
      "--overlap four-fase", "four-phase");
}

TEST(OverlapSettings, WhatContradictsIsRefused) {
  expect_refused([](auto& s) { s.enable_two_batch_overlap = s.enable_single_batch_overlap = true; },
                 "each force their kind", "--overlap auto");
  expect_refused(
      [](auto& s) {
        s.overlap = "none";
        s.enable_two_batch_overlap = true;
      },
      "--overlap none and --enable-two-batch-overlap", "--overlap two-batch");
  expect_refused(
      [](auto& s) {
        s.overlap = "four-phase";
        s.enable_single_batch_overlap = true;
      },
      "--overlap four-phase and --enable-single-batch-overlap", "--overlap single-batch");
  expect_refused([](auto& s) { s.overlap = "four-fase"; }, "sglang-decode", "four-phase");
  expect_refused([](auto& s) { s.tbo_token_distribution_threshold = 0.6; }, "0.6 is not in 0 to",
                 "0.48");
  expect_refused([](auto& s) { s.tbo_token_distribution_threshold = -0.1; }, "-0.1", "0.48");
  const auto missing = choose_overlap(two_ranks([](auto& s) { s.overlap_plan = "/none.yaml"; }));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::io);
}

TEST(OverlapSettings, OneRankHidesNothingAndSaysSo) {
  for (const char* name : {"two-batch", "four-phase"}) {
    const auto made = choose_overlap({.ep_size = 1, .overlap = name});
    ASSERT_TRUE(made);
    EXPECT_EQ(made->choices[0].mode, Mode::none);
    ASSERT_EQ(made->changes.size(), 1u);
    EXPECT_EQ(made->changes[0].from, name);
    EXPECT_EQ(made->changes[0].to, "none");
  }
  const auto decode = choose_overlap({.ep_size = 1, .overlap_order_decode = "four-phase"});
  ASSERT_EQ(decode->changes.size(), 1u);
  EXPECT_EQ(decode->changes[0].flag, "--overlap-order-decode");
  EXPECT_EQ(decode->changes[0].from, "four-phase");
  const auto flag = choose_overlap({.ep_size = 1, .enable_two_batch_overlap = true});
  ASSERT_EQ(flag->changes.size(), 1u);
  EXPECT_EQ(flag->changes[0].flag, "--enable-two-batch-overlap");
  EXPECT_TRUE(choose_overlap({.ep_size = 1})->changes.empty());
  EXPECT_TRUE(choose_overlap({.ep_size = 1, .overlap = "none"})->changes.empty());
  // A wrong name is refused anyway.
  EXPECT_FALSE(choose_overlap({.ep_size = 1, .overlap = "nine"}));
}

}  // namespace
}  // namespace hocket
