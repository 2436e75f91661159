#include "compute/moe/gate.h"

#include <gmock/gmock.h>

#include <array>

namespace hocket {
namespace {

using ::testing::ElementsAre;

TEST(CountChoices, AddsUpEveryChoiceOfEveryRow) {
  // Rows have a stride of 4: the numbers between them are not choices.
  std::array<int32_t, 12> ids = {4, 0, 2, 9,  //
                                 2, 4, 1, 9,  //
                                 4, 2, 5, 9};
  std::array<uint32_t, 6> counts{};
  const View<const int32_t> rows(ids.data(), 3, 3, 4);
  count_choices(rows, counts);
  EXPECT_THAT(counts, ElementsAre(1, 1, 3, 0, 3, 1));
  count_choices(rows.slice_rows(1, 1), counts);  // the other half of a batch
  EXPECT_THAT(counts, ElementsAre(1, 2, 4, 0, 4, 1));
  count_choices(rows.slice_rows(0, 0), counts);
  EXPECT_THAT(counts, ElementsAre(1, 2, 4, 0, 4, 1));
}

}  // namespace
}  // namespace hocket
