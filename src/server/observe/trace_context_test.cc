#include "server/observe/trace_context.h"

#include <gtest/gtest.h>

#include <set>

#include "server/observe/trace_context_testing.h"

namespace hocket {
namespace {

TEST(TraceContext, ReadsAndWritesAHeader) {
  const auto context = parse_traceparent(kSampledTraceparent);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_high, 0x4bf92f3577b34da6u);
  EXPECT_EQ(context->span, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(to_traceparent(*context), kSampledTraceparent);
}

TEST(TraceContext, KnowsWhoDoesNotWantASpan) {
  const auto context = parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  ASSERT_TRUE(context);
  EXPECT_FALSE(context->sampled);
  EXPECT_TRUE(to_traceparent(*context).ends_with("-00"));
}

TEST(TraceContext, TakesWhatItKnowsOfLaterVersions) {
  EXPECT_TRUE(
      parse_traceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes"));
}

TEST(TraceContext, RefusesWhatIsNone) {
  for (const char* header : {"", "00", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                             "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                             "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01"})
    EXPECT_FALSE(parse_traceparent(header)) << header;
}

TEST(TraceContext, SpansOfATraceDiffer) {
  const TraceContext trace = begin_trace();
  std::set<uint64_t> spans = {trace.span};
  for (int i = 0; i < 100; ++i) {
    const TraceContext child = span_under(trace);
    EXPECT_EQ(trace_id_text(child), trace_id_text(trace));
    spans.insert(child.span);
  }
  EXPECT_EQ(spans.size(), 101u);
  EXPECT_EQ(span_id_text(0xab).size(), 16u);
}

}  // namespace
}  // namespace hocket
