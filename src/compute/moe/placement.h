// Says which rank holds which experts. The experts of a rank are numbered from 0 in ascending order
// of their ids, the same in all layers. Immutable.   Thread: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"

namespace hocket {

class Placement {
 public:
  // Cuts the experts into neighbours: rank r gets groups [r G / R, (r + 1) G / R), rounded down, of
  // E / G experts each. num_groups divides num_experts. A dense model has 0 experts.
  // Errors: bad_value, if there are more ranks than groups.
  static Result<Placement> contiguous(int num_experts, int num_ranks, int num_groups);
  // The same with groups of one expert.
  static Result<Placement> contiguous(int num_experts, int num_ranks) {
    return contiguous(num_experts, num_ranks, std::max(num_experts, 1));
  }
  // Reads a list of the expert of every place, of which rank r has places [r E / R, (r + 1) E / R),
  // rounded down; or, as SGLang writes it, {"physical_to_logical_map": [one such list a layer]},
  // with equal lists.
  // Errors: io (cannot be read), bad_value (anything else, saying what and where).
  static Result<Placement> from_file(const std::filesystem::path& file, int num_experts,
                                     int num_ranks);

  int num_experts() const { return static_cast<int>(home_.size()); }
  int num_ranks() const { return static_cast<int>(first_.size()) - 1; }
  int rank_of(int expert) const { return home_[expert].rank; }
  // Returns the expert's number on its rank.
  int local_of(int expert) const { return home_[expert].local; }
  // Returns the ids of a rank's experts, ascending.
  std::span<const int> experts_of(int rank) const {
    return std::span(by_rank_).subspan(first_[rank], first_[rank + 1] - first_[rank]);
  }
  // Returns the expert's number if all are counted rank by rank.
  int place_of(int expert) const { return first_[rank_of(expert)] + local_of(expert); }
  // Returns the first rank that holds most experts, and their number.
  int fullest_rank() const;
  int most_experts() const { return static_cast<int>(experts_of(fullest_rank()).size()); }
  // Equal for equal placements; different placements hardly ever have the same.
  uint32_t fingerprint() const { return fingerprint_; }

  // Checks that every combine group is on one rank, because partial sums are made at the experts.
  // Errors: bad_value, naming --combine-groups.
  Result<void> check_groups(int combine_groups) const;

 private:
  struct Home {
    int rank = 0, local = 0;
  };
  Placement(std::span<const int> ranks, int num_ranks);

  std::vector<Home> home_;              // [experts]
  std::vector<int> by_rank_;            // [experts] ids, rank by rank
  std::vector<int> first_;              // [ranks + 1]
  uint32_t fingerprint_ = 2166136261u;  // FNV-1a hash of the rank of every expert
};

}  // namespace hocket
