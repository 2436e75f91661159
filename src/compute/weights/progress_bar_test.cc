#include "compute/weights/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::HasSubstr;

std::string written(ProgressBar::Style style, const std::vector<LoadProgress>& steps) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("weights", file, style);
    for (const LoadProgress& step : steps) bar.update(step);
  }
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(ProgressBar, TheLineSaysBytesRateAndTimeLeft) {
  EXPECT_EQ(progress_line("weights", {16'480'000'000, 41'200'000'000}, 8),
            "weights [########------------]  40 %  16.5 of 41.2 GB  2.06 GB/s  12 s left");
  EXPECT_EQ(progress_line("weights", {13'000'000, 13'000'000}, 0.5),
            "weights [####################] 100 %  13.0 of 13.0 MB  0.03 GB/s  in 0.5 s");
  EXPECT_EQ(progress_line("weights", {0, 13'000'000}, 0.5),
            "weights [--------------------]   0 %  0.0 of 13.0 MB");
}

TEST(ProgressBar, NothingToLoadIsDone) {
  EXPECT_THAT(progress_line("weights", {0, 0}, 0), HasSubstr("100 %"));
}

TEST(ProgressBar, AFileGetsOneLineEveryTenPercent) {
  std::vector<LoadProgress> steps;
  for (int i = 0; i <= 1000; ++i) steps.push_back({i * 1'000'000, 1'000'000'000});
  const std::string text = written(ProgressBar::Style::automatic, steps);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_THAT(text, HasSubstr(" 10 %"));
  EXPECT_THAT(text, HasSubstr("100 %"));
}

TEST(ProgressBar, ATerminalGetsOneLineDrawnOverItself) {
  const std::string text =
      written(ProgressBar::Style::bar, {{1'000'000, 10'000'000}, {10'000'000, 10'000'000}});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace hocket
