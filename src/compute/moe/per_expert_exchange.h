// The exchange of decode in several parts: each row travels once for every one of its experts, and
// every expert's row is sent back as it is. Parts are shares of each rank's experts, so that each
// expert's weights are read once. The way of row t3 of rank 1, with 4 experts a rank and 2 in a
// combine group:
//
//   chosen         experts 8 2 3, weights a b c              8 is expert 0 of rank 2
//   to rank 0      rows of its expert 2: t3, of 3: t3        the bytes of t3 travel twice
//   to rank 2      rows of its expert 0: t3
//   from rank 0    y2, y3                                    in the order in which they were sent
//   from rank 2    y8
//   residual[t3]   += ((b y2 + c y3) + (a y8))               the tree of combine groups
#pragma once

#include <vector>

#include "compute/moe/row_exchange.h"

namespace hocket {

class PerExpertExchange final : public RowExchange {
 public:
  explicit PerExpertExchange(const Config& config);

  void begin_pass(const Grain& grain, int first_layer) override;
  int max_rows(int num_experts) const override;
  void list_dispatch(const Part& part, const MatrixView& normed) override;
  void expect_results(const Part& part, const Routing& routing, std::span<int> counts) override;
  // The sum of a row needs every part and wave.
  bool can_sum(int num_pending) const override { return num_pending == 0; }
  void sum_results(const Part& part, const CombineInputs& in) override;

 private:
  // The position of a place's rows among the leaving rows, which are sorted by part, leaving order
  // and place, and the message in which they are sent back: back_message() * num_ranks + rank.
  struct Leaving {
    int32_t turn = 0;
    int32_t message = 0;
  };

  Range experts_of(int rank, int part) const override;
  bool waves_have_rows() const override { return false; }
  Range leaving(const Part& part, int rank) const override;
  void list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                    std::span<int32_t> segments) override;
  void write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                     Returned& returned) override;

  void place_experts();
  int32_t* offsets_of(const Part& part) const;

  std::vector<Leaving> leaving_;  // [places]
  // [messages * ranks] position of the first place of a part, and of a wave.
  std::vector<int32_t> message_first_, back_first_;
  Grain placed_{0, 0};  // these hold for this grain
};

}  // namespace hocket
