#include "server/http/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::ElementsAre;

TEST(Sse, WritesLinesThatReadBack) {
  std::string out;
  append_sse(out, "{\"a\":1}");
  EXPECT_EQ(out, "data: {\"a\":1}\n\n");
  append_sse(out, "two\nlines\r\nthree\rfour");
  append_sse(out, "");
  append_sse(out, " leading: colon\n");
  EXPECT_THAT(SseReader().feed(out),
              ElementsAre("{\"a\":1}", "two\nlines\nthree\nfour", "", " leading: colon\n"));
  for (size_t cut = 0; cut <= out.size(); ++cut) {
    SseReader reader;
    auto events = reader.feed(std::string_view(out).substr(0, cut));
    for (auto& e : reader.feed(std::string_view(out).substr(cut))) events.push_back(e);
    EXPECT_EQ(events, SseReader().feed(out)) << cut;
  }
}

TEST(Sse, ReaderSkipsWhatIsNotData) {
  EXPECT_THAT(
      SseReader().feed(": ping\n\nevent: x\nid: 1\n\ndata\n\ndata:a\r\ndata: b\r\n\r\ndata: c"),
      ElementsAre("", "a\nb"));
}

}  // namespace
}  // namespace hocket
