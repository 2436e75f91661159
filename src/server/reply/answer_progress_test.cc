#include "server/reply/answer_progress.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

std::vector<TokenId> ids(std::initializer_list<int> numbers) {
  std::vector<TokenId> all;
  for (const int number : numbers) all.push_back(TokenId{number});
  return all;
}

// Feeds the stream in pieces of `size` bytes and returns the events.
std::string read(ProgressReader& reader, std::string_view stream, size_t size) {
  std::string held, events;
  for (size_t at = 0; at < stream.size() && !reader.failed(); at += size) {
    held += stream.substr(at, size);
    held.erase(0, reader.take(held, events));
  }
  return events;
}

TEST(AnswerProgressTest, LinesAreTakenOutOfAStreamThatComesInPiecesOfAnySize) {
  std::string stream = ": ping\n\n";
  append_progress(stream, 1, ids({7, 2041}), "event: a\ndata: 1\n\nevent: b\ndata: 2\n\n");
  append_progress(stream, 0, {}, "data: 3\n\n");
  append_progress(stream, 1, ids({9}), "data: 4\n\n");
  append_progress(stream, 1, {}, "data: 5\n\n");
  stream += ": ping\n\n";
  append_progress(stream, kClosingBlock, {}, "data: usage\n\n");
  stream += "data: [DONE]\n\n";
  const std::string events =
      ": ping\n\nevent: a\ndata: 1\n\nevent: b\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: 5\n\n"
      ": ping\n\ndata: usage\n\ndata: [DONE]\n\n";
  for (size_t size = 1; size <= stream.size(); ++size) {
    ProgressReader reader;
    ASSERT_EQ(read(reader, stream, size), events) << size;
    const AnswerProgress& progress = reader.progress();
    ASSERT_EQ(progress.choices.size(), 2u);
    EXPECT_EQ(progress.choices[0].ids, ids({}));
    EXPECT_EQ(progress.choices[0].num_blocks, 1);
    EXPECT_EQ(progress.choices[1].ids, ids({7, 2041, 9}));
    EXPECT_EQ(progress.choices[1].num_blocks, 2);
    EXPECT_TRUE(progress.closed);
    EXPECT_EQ(reader.num_ids(), 3u);
  }
}

TEST(AnswerProgressTest, AHalfBlockCountsForNothing) {
  std::string stream;
  append_progress(stream, 0, ids({1}), "data: 1\n\n");
  append_progress(stream, 0, ids({2}), "data: 2\n\n");
  ProgressReader reader;
  EXPECT_EQ(read(reader, std::string_view(stream).substr(0, stream.size() - 1), 1000),
            "data: 1\n\n");
  EXPECT_EQ(reader.progress().choices[0].ids, ids({1}));
}

TEST(AnswerProgressTest, WrongLinesAreFound) {
  for (const char* wrong : {"x", "1", "-2 4", "1 -4", "1 4 -5", "1 4 5 x", "99999 4", "1 4  5",
                            "1 99999999999999999999", "1 4 5555555555"}) {
    ProgressReader reader;
    read(reader, std::string(": progress ") + wrong + "\nabcd\n\n", 3);
    EXPECT_TRUE(reader.failed()) << wrong;
    EXPECT_TRUE(reader.progress().choices.empty());
  }
}

}  // namespace
}  // namespace hocket
