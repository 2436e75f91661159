// The exchange of prefill, and of decode in one part: each row travels once to every rank that
// holds one of its experts. Each rank sends back one sum per tree node that it holds completely,
// usually one (combine_nodes.h). Parts are shares of the rows. The way of row t3 of rank 1, with 4
// experts a rank and 2 in a combine group; a sum is rounded wherever it closes a bracket:
//
//   chosen              experts 8 2 3 0, weights a b c d            8 is expert 0 of rank 2
//   to rank 0, once     ids -1 2 3 0,  weights 0 b c d, row t3      at its experts: y2, y3, y0
//   to rank 2, once     ids 0 -1 -1 -1, weights a 0 0 0, row t3     at its expert 0: y8
//   from rank 0         ((d y0) + (b y2 + c y3))                    the node of groups 0 and 1
//   from rank 2         (a y8)                                      that of groups 4 and 5
//   residual[t3]        += (((d y0) + (b y2 + c y3)) + (a y8))      the tree of both
//
// Waves are shares of the rows that came from each rank, or in decode of the experts here, so that
// each expert's weights are read once. Then a sum leaves with the wave of its last expert: of two
// waves the second has expert 3, so rank 0 sends t3's sum with it.
#pragma once

#include <array>

#include "compute/moe/row_exchange.h"

namespace hocket {

class PerRankExchange final : public RowExchange {
 public:
  enum class WavesOf : uint8_t { rows, experts };
  explicit PerRankExchange(const Config& config) : RowExchange(config, RowLayout::per_rank) {}

  // Says what the waves of the next pass are shares of. Those of experts belong to one part.
  void cut_waves_of(WavesOf of) { waves_of_ = of; }

  void begin_layer(const Half& half) override;
  int max_rows(int num_experts) const override;
  void list_dispatch(const Part& part, const MatrixView& normed) override;
  void expect_results(const Part& part, const Routing& routing, std::span<int> counts) override;
  // A part has all slots of its rows, but a wave of it may have some.
  bool can_sum(int num_pending) const override { return grain_.waves == 1 || num_pending == 0; }
  void sum_results(const Part& part, const CombineInputs& in) override;

 private:
  Range experts_of(int rank, int part) const override;
  bool waves_have_rows() const override { return waves_of_ == WavesOf::rows; }
  Range leaving(const Part& part, int rank) const override;
  SlotLists slots_of(const WorkBuffers& work, const Range& rows) const override;
  void count_by_wave(std::span<const ArrivedRows> arrived, int experts,
                     std::span<int32_t> segments) const override;
  void list_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                    std::span<int32_t> segments) override;
  void write_results(const Part& part, const ExpertRows& rows, MatrixView out,
                     Returned& returned) override;

  Range rows_of(const Part& part) const;
  int64_t first_sent(const Part& part) const;
  std::span<int32_t> offsets_of(const Part& part) const;

  // The sums that a wave sends back: of some arrived rows, whose ids and numbers of sums are listed
  // at another place if each row is listed for every wave. They are numbered from `first_sum` on.
  struct WaveLists {
    Range rows, listed;
    int32_t first_sum = 0;
  };

  // All rows that came with a part, where the lists of a half begin for them, and the experts here.
  struct ArrivedPart {
    int num_rows = 0;
    int64_t first_row = 0, first_listed = 0;
    int num_experts = 0;
    std::span<const int> experts;
  };

  // times_listed: how often each row is listed.
  ArrivedPart all_arrived(const Part& part, std::span<const ArrivedRows> arrived,
                          int times_listed) const;
  void list_slots(const Part& part, const ArrivedRows& from, int64_t i, int64_t row, int32_t* next);
  void list_by_rows(const Part& part, std::span<const ArrivedRows> arrived,
                    std::span<int32_t> segments);
  void list_by_experts(const Part& part, std::span<const ArrivedRows> arrived,
                       std::span<int32_t> segments);
  void number_results(const Part& part, const Routing& routing);
  int wave_of_node(const Part& part, int64_t row, const int32_t* nodes, int slot) const;

  WavesOf waves_of_ = WavesOf::rows;
  // The sums of a half's last part, by wave.
  std::array<std::array<WaveLists, kMaxParts>, kMaxHalves> arrived_;
  // The results that are sent back: [halves][messages][ranks].
  std::array<std::array<std::array<int, kMaxExpertRanks>, kMaxParts>, kMaxHalves> expected_{};
  // The parts of a half whose results are numbered, a bit for each.
  std::array<uint32_t, kMaxHalves> numbered_{};
};

}  // namespace hocket
