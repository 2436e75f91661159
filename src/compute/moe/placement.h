// Says which rank holds which experts. A rank has a number of places, and each holds an expert; an
// expert has at least one place, and further ones are its replicas. Places are numbered rank by
// rank, on a rank in ascending order of their experts:
//
//   places    0 1 2 3 | 4 5 6 7          6 experts on 2 ranks, with 2 replicas
//   experts   0 1 2 3 | 0 3 4 5          experts 0 and 3 have two places each
//
// Placement is that of one layer, Placements that of all. A Placement never changes; a layer of
// Placements may be given another.   Thread: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/rank_set.h"

namespace hocket {

inline constexpr int kMaxPlaces = 1 << 14;  // in a layer, on all ranks together

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
  // Returns this placement with `replicas` further places on each rank, which hold the experts that
  // the next host's rank has, and those that follow: so the loss of a host takes no expert with its
  // replica. Without other hosts they hold the experts that follow its own. ranks_per_host
  // neighbours are on one host. replicas <= num_experts() - max_experts().
  Placement with_replicas(int replicas, int ranks_per_host = 1) const;
  // Returns this placement with `places` places on each rank, filled as by with_replicas().
  // max_experts() <= places <= num_experts().
  Placement filled_to(int places, int ranks_per_host = 1) const;
  // Returns the placement while only the ranks of `present` serve. Absent ranks have no places.
  // Each expert that only absent ranks had replaces a replica, on the rank that has replaced fewest
  // so far. It is the same on all ranks. Precondition: the present ranks together have a place for
  // each expert.
  Placement among(const RankSet& present) const;
  // Returns the fewest places that `num_present` ranks have together.
  int fewest_places(int num_present) const;
  // Rank r has the places [r P / R, (r + 1) P / R), rounded down, of P = experts.size(). Every
  // expert in 0 to num_experts - 1 is there.
  static Placement of_places(std::span<const int> experts, int num_experts, int num_ranks);
  // experts[rank] are those of its places, in any sequence.
  static Placement of_ranks(std::vector<std::vector<int>> experts, int num_experts) {
    return {std::move(experts), num_experts};
  }

  int num_experts() const { return static_cast<int>(first_place_.size()) - 1; }
  int num_ranks() const { return static_cast<int>(first_.size()) - 1; }
  int num_places() const { return static_cast<int>(experts_.size()); }
  bool has_replicas() const { return num_places() > num_experts(); }

  // Returns the places of an expert, ascending.
  std::span<const int> places_of(int expert) const {
    return std::span(places_).subspan(first_place_[expert],
                                      first_place_[expert + 1] - first_place_[expert]);
  }
  // Return the rank of a place, its number there, and its expert.
  int rank_at(int place) const { return ranks_[place]; }
  int local_at(int place) const { return place - first_[ranks_[place]]; }
  int expert_at(int place) const { return experts_[place]; }
  int place_at(int rank, int local) const { return first_[rank] + local; }
  // Return the first place of an expert, and its rank.
  int place_of(int expert) const { return places_[first_place_[expert]]; }
  int rank_of(int expert) const { return rank_at(place_of(expert)); }
  // Returns the experts of a rank's places, ascending.
  std::span<const int> experts_of(int rank) const {
    return std::span(experts_).subspan(first_[rank], first_[rank + 1] - first_[rank]);
  }
  // Returns the first rank that has most places, and their number.
  int fullest_rank() const;
  int max_experts() const { return static_cast<int>(experts_of(fullest_rank()).size()); }
  // Equal for equal placements; different placements hardly ever have the same.
  uint32_t fingerprint() const { return fingerprint_; }

  // Checks that every combine group is on one rank, because partial sums are made at the experts.
  // Only groups of one expert may have replicas. Errors: bad_value, naming --combine-groups.
  Result<void> check_groups(int combine_groups) const;

 private:
  Placement(std::vector<std::vector<int>> experts, int num_experts);
  // Returns this placement with further places on each rank, places_of(rank) in all.
  template <class PlacesOf>
  Placement filled(int ranks_per_host, PlacesOf places_of) const;
  // Returns the first expert whose replica a rank holds.
  int first_replica_of(int rank, int ranks_per_host) const;

  std::vector<int> experts_, ranks_;    // [places]
  std::vector<int> first_;              // [ranks + 1] first place
  std::vector<int> first_place_;        // [experts + 1]
  std::vector<int> places_;             // [places] the places of each expert
  uint32_t fingerprint_ = 2166136261u;  // FNV-1a hash of the expert and rank of every place
};

// The experts of one rank's places, ascending: a list for all layers, or one for each. Layers
// behind the last, which modules have, are as the last.
using HeldExperts = std::vector<std::vector<int>>;
inline std::span<const int> held_in(const HeldExperts& held, int layer) {
  return held[std::min(static_cast<size_t>(layer), held.size() - 1)];
}

// Returns the placement of a layer for the rows that chose each expert; the same sizes always.
using Balance = std::function<Placement(std::span<const uint64_t> loads)>;

// The placements of a model's layers: one for all, or one each. In all of them a rank has the same
// number of places.
class Placements {
 public:
  // Layers without experts have a placement too, which nothing reads.
  Placements(Placement all) : layers_{std::move(all)} {}  // NOLINT(google-explicit-constructor)
  explicit Placements(std::vector<Placement> layers);
  // Reads a list of the expert of every place; or, as SGLang writes it,
  // {"physical_to_logical_map": [one such list a layer]}, with num_layers lists or equal ones; or
  // {"logical_count": [a list a layer]} of how many rows chose each expert, which `balance` places.
  // Errors: io (cannot be read), bad_value (anything else, saying what and where).
  static Result<Placements> from_file(const std::filesystem::path& file, int num_experts,
                                      int num_ranks, int num_layers, const Balance& balance);

  // Returns the placement of a layer. Layers behind the last, which modules have, are as the last.
  const Placement& at(int layer) const {
    return layers_[std::min(static_cast<size_t>(layer), layers_.size() - 1)];
  }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  // Returns the same placements as a list of `num_layers`, so that each can change by itself.
  Placements by_layer(int num_layers) const;
  // Returns Placement::among() of each layer.
  Placements among(const RankSet& present) const;
  // Exchanges the placement of a layer of the list for another, in which each rank has as many
  // places, or none while it is absent. Allocates nothing.
  void swap(int layer, Placement& other);
  bool differ() const;
  const Placement& first() const { return layers_.front(); }
  std::span<const Placement> layers() const { return layers_; }
  HeldExperts held_by(int rank) const;
  uint32_t fingerprint() const;
  // Checks every layer as Placement::check_groups().
  Result<void> check_groups(int combine_groups) const;

 private:
  std::vector<Placement> layers_;
};

}  // namespace hocket
