#include "compute/moe/placement.h"

#include <algorithm>

#include "base/check.h"

namespace hocket {

Placement::Placement(std::span<const int> ranks, int num_ranks) {
  first_.push_back(0);
  home_.resize(ranks.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int expert = 0; expert < std::ssize(ranks); ++expert) {
      if (ranks[expert] != rank) continue;
      home_[expert] = {rank, static_cast<int>(by_rank_.size()) - first_[rank]};
      by_rank_.push_back(expert);
    }
    first_.push_back(static_cast<int>(by_rank_.size()));
  }
}

Result<Placement> Placement::contiguous(int num_experts, int num_ranks) {
  HOCKET_CHECK(num_experts >= 0);
  if (num_ranks < 1 || num_experts % num_ranks != 0)
    return fail(
        error(ErrorCode::bad_value, "{} ranks do not divide {} experts", num_ranks, num_experts)
            .with_param("ep-size")
            .with_fix("a number of ranks that divides the experts"));
  std::vector<int> ranks(num_experts);
  for (int expert = 0; expert < num_experts; ++expert)
    ranks[expert] = expert / (num_experts / num_ranks);
  return Placement(ranks, num_ranks);
}

int Placement::most_experts() const {
  int most = 0;
  for (int rank = 0; rank < num_ranks(); ++rank)
    most = std::max(most, static_cast<int>(experts_of(rank).size()));
  return most;
}

Result<void> Placement::check_groups(int combine_groups) const {
  const bool divides = combine_groups >= 1 && num_experts() % combine_groups == 0;
  bool whole = divides;
  for (int expert = 1; whole && expert < num_experts(); ++expert) {
    const int size = num_experts() / combine_groups;
    whole = expert % size == 0 || rank_of(expert) == rank_of(expert - 1);
  }
  if (whole) return {};
  return fail(error(ErrorCode::bad_value,
                    "--combine-groups {} does not cut {} experts into groups of which each is on "
                    "one of {} ranks",
                    combine_groups, num_experts(), num_ranks())
                  .with_param("combine-groups")
                  .with_fix(fmt::format(
                      "--combine-groups {}, or a multiple that divides the experts", num_ranks())));
}

}  // namespace hocket
