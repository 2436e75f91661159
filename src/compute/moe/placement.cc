#include "compute/moe/placement.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "core/bounded_json.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMapKey = "physical_to_logical_map", kCountKey = "logical_count";
constexpr uint64_t kMaxCount = uint64_t{1} << 53;  // sums of 1,024 fit 64 bits
// A file of 1,000 layers with 1,000 experts has half of that.
constexpr int64_t kMaxFileBytes = 16 << 20;

Result<void> check_ranks(int num_groups, std::string_view of, int num_ranks) {
  if (num_ranks >= 1 && num_ranks <= num_groups) return {};
  return fail(
      error(ErrorCode::bad_value, "{} {} cannot be spread over {} ranks", num_groups, of, num_ranks)
          .with_param("ep-size")
          .with_fix(fmt::format("a number of ranks in 1 to {}", num_groups)));
}

// Returns the rank that has a place, if the ranks have neighbouring places, as even as possible.
int rank_of_place(int place, int num_places, int num_ranks) {
  return static_cast<int>((int64_t{place + 1} * num_ranks - 1) / num_places);
}

Error refusal(const std::filesystem::path& file, std::string_view what) {
  return error(ErrorCode::bad_value, "--init-expert-location {}: {}", file.string(), what)
      .with_param("init-expert-location")
      .with_fix(fmt::format("{{\"{}\": [[the expert of each place], one list a layer]}}, or "
                            "{{\"{}\": [[the rows of each expert], one list a layer]}}",
                            kMapKey, kCountKey));
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::error_code ec;
  if (std::filesystem::is_regular_file(file, ec)) {
    if (static_cast<int64_t>(std::filesystem::file_size(file, ec)) > kMaxFileBytes)
      return fail(refusal(file, fmt::format("it is larger than {} MB", kMaxFileBytes >> 20)));
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (in.is_open() && !in.bad()) return text;
  }
  return fail(error(ErrorCode::io, "--init-expert-location: cannot read {}", file.string())
                  .with_param("init-expert-location")
                  .with_fix("a file that this user may read, or trivial"));
}

// Returns the expert of every place, or the reason of a refusal as a sentence.
std::expected<std::vector<int>, std::string> read_places(const Json& list, int num_experts,
                                                         int num_ranks) {
  if (!list.is_array()) return std::unexpected("its places are no list");
  if (const int64_t most = std::min<int64_t>(int64_t{num_experts} * num_ranks, kMaxPlaces);
      std::ssize(list) > most)
    return std::unexpected(fmt::format("{} places for {} experts on {} ranks, more than {}",
                                       list.size(), num_experts, num_ranks, most));
  std::vector<int> experts;
  std::vector<bool> seen(num_experts);
  for (const Json& item : list) {
    const int64_t expert = item.is_number_integer() ? item.get<int64_t>() : -1;
    if (expert < 0 || expert >= num_experts)
      return std::unexpected(fmt::format("place {} has {}, which is no expert in 0 to {}",
                                         experts.size(), item.dump().substr(0, 40),
                                         num_experts - 1));
    seen[expert] = true;
    experts.push_back(static_cast<int>(expert));
  }
  if (const auto nowhere = std::ranges::find(seen, false); nowhere != seen.end())
    return std::unexpected(fmt::format("{} places for {} experts: expert {} is nowhere",
                                       experts.size(), num_experts, nowhere - seen.begin()));
  return experts;
}

using PlacesOfLayers = std::vector<std::vector<int>>;

// Returns the expert of every place, in one list for all layers or one for each of them, or the
// reason of a refusal.
std::expected<PlacesOfLayers, std::string> read_layers(const Json& root, int num_experts,
                                                       int num_ranks, int num_layers) {
  PlacesOfLayers layers;
  if (!root.is_array() || root.empty() || !root[0].is_array()) {
    auto all = read_places(root, num_experts, num_ranks);
    if (!all) return std::unexpected(all.error());
    layers.push_back(*std::move(all));
    return layers;
  }
  const bool differ = std::ranges::any_of(root, [&](const Json& list) { return list != root[0]; });
  if (differ && std::ssize(root) != num_layers)
    return std::unexpected(
        fmt::format("{} lists of places that differ, for {} layers", root.size(), num_layers));
  for (size_t layer = 0; layer < (differ ? root.size() : 1); ++layer) {
    auto places = read_places(root[layer], num_experts, num_ranks);
    if (!places) return std::unexpected(fmt::format("layer {}: {}", layer, places.error()));
    if (places->size() != root[0].size())
      return std::unexpected(fmt::format("layer {} has {} places, layer 0 has {}", layer,
                                         places->size(), root[0].size()));
    layers.push_back(*std::move(places));
  }
  return layers;
}

// Returns the rows that chose each expert of a layer.
std::expected<std::vector<uint64_t>, std::string> read_counts(const Json& list, int num_experts) {
  if (!list.is_array() || std::ssize(list) != num_experts)
    return std::unexpected(fmt::format("its counts are no list of {} experts", num_experts));
  std::vector<uint64_t> counts;
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > kMaxCount)
      return std::unexpected(
          fmt::format("{} is no count in 0 to {}", item.dump().substr(0, 40), kMaxCount));
    counts.push_back(item.get<uint64_t>());
  }
  return counts;
}

std::expected<std::vector<std::vector<uint64_t>>, std::string> read_layer_counts(const Json& root,
                                                                                 int num_experts,
                                                                                 int num_layers) {
  if (!root.is_array() || std::ssize(root) != num_layers)
    return std::unexpected(
        fmt::format("\"{}\" has no list for each of {} layers", kCountKey, num_layers));
  std::vector<std::vector<uint64_t>> layers;
  for (const Json& list : root) {
    auto counts = read_counts(list, num_experts);
    if (!counts) return std::unexpected(fmt::format("layer {}: {}", layers.size(), counts.error()));
    layers.push_back(*std::move(counts));
  }
  return layers;
}

uint32_t mix_in(uint32_t hash, uint32_t number) {
  return (hash ^ number) * 16777619u;
}

}  // namespace

Placement::Placement(std::vector<std::vector<int>> experts, int num_experts)
    : first_place_(num_experts + 1) {
  first_.push_back(0);
  for (int rank = 0; rank < std::ssize(experts); ++rank) {
    std::ranges::sort(experts[rank]);
    for (const int expert : experts[rank]) {
      experts_.push_back(expert);
      ranks_.push_back(rank);
      ++first_place_[expert + 1];
      fingerprint_ =
          mix_in(mix_in(fingerprint_, static_cast<uint32_t>(expert)), static_cast<uint32_t>(rank));
    }
    first_.push_back(num_places());
  }
  for (int expert = 0; expert < num_experts; ++expert) {
    HOCKET_CHECK(first_place_[expert + 1] > 0);
    first_place_[expert + 1] += first_place_[expert];
  }
  places_.resize(experts_.size());
  std::vector<int> next(first_place_.begin(), first_place_.end() - 1);
  for (int place = 0; place < num_places(); ++place) places_[next[experts_[place]]++] = place;
}

Result<Placement> Placement::contiguous(int num_experts, int num_ranks, int num_groups) {
  HOCKET_CHECK(num_experts >= 0);
  HOCKET_CHECK(num_groups >= 1 && num_experts % num_groups == 0);
  if (num_experts > 0) {
    HOCKET_TRY_VOID(check_ranks(num_groups, "groups of experts", num_ranks));
  }
  std::vector<std::vector<int>> experts(num_ranks);
  for (int expert = 0; expert < num_experts; ++expert)
    experts[rank_of_place(expert / (num_experts / num_groups), num_groups, num_ranks)].push_back(
        expert);
  return Placement(std::move(experts), num_experts);
}

Placement Placement::with_replicas(int replicas, int ranks_per_host) const {
  HOCKET_CHECK((replicas >= 0 && replicas <= num_experts() - max_experts()));
  return filled(ranks_per_host,
                [&](int rank) { return static_cast<int>(experts_of(rank).size()) + replicas; });
}

Placement Placement::filled_to(int places, int ranks_per_host) const {
  HOCKET_CHECK((places >= max_experts() && places <= num_experts()));
  return filled(ranks_per_host, [&](int) { return places; });
}

int Placement::first_replica_of(int rank, int ranks_per_host) const {
  const std::span<const int> own = experts_of(rank);
  const std::span<const int> next = experts_of((rank + ranks_per_host) % num_ranks());
  if (ranks_per_host % num_ranks() != 0 && !next.empty()) return next.front();
  return own.empty() ? 0 : own.back() + 1;
}

template <class PlacesOf>
Placement Placement::filled(int ranks_per_host, PlacesOf places_of) const {
  std::vector<std::vector<int>> experts;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const std::span<const int> own = experts_of(rank);
    experts.emplace_back(own.begin(), own.end());
    int next = first_replica_of(rank, ranks_per_host);
    while (std::ssize(experts[rank]) < places_of(rank)) {
      next %= num_experts();
      if (std::ranges::find(own, next) == own.end()) experts[rank].push_back(next);
      ++next;
    }
  }
  return Placement(std::move(experts), num_experts());
}

Placement Placement::among(const RankSet& present) const {
  std::vector<std::vector<int>> experts(num_ranks());
  std::vector<int> num_places_of(num_experts()), num_changed(num_ranks());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (!present.has(rank)) continue;
    const std::span<const int> own = experts_of(rank);
    experts[rank].assign(own.begin(), own.end());
    for (const int expert : own) ++num_places_of[expert];
  }
  // The expert with most places gives up the one on this rank, if it has another.
  const auto spare_at = [&](int rank) {
    const auto found = std::ranges::max_element(experts[rank], {},
                                                [&](int expert) { return num_places_of[expert]; });
    return found != experts[rank].end() && num_places_of[*found] > 1 ? found : experts[rank].end();
  };
  for (int expert = 0; expert < num_experts(); ++expert) {
    if (num_places_of[expert] > 0) continue;
    int chosen = -1;
    for (int rank = 0; rank < num_ranks(); ++rank)
      if (spare_at(rank) != experts[rank].end() &&
          (chosen < 0 || num_changed[rank] < num_changed[chosen]))
        chosen = rank;
    HOCKET_CHECK(chosen >= 0);
    int& place = *spare_at(chosen);
    --num_places_of[place];
    ++num_places_of[expert];
    ++num_changed[chosen];
    place = expert;
  }
  return Placement(std::move(experts), num_experts());
}

int Placement::fewest_places(int num_present) const {
  std::vector<int> places;
  for (int rank = 0; rank < num_ranks(); ++rank)
    places.push_back(static_cast<int>(experts_of(rank).size()));
  std::ranges::sort(places);
  return std::accumulate(places.begin(), places.begin() + num_present, 0);
}

Placement Placement::of_places(std::span<const int> experts, int num_experts, int num_ranks) {
  const auto num_places = static_cast<int>(experts.size());
  std::vector<std::vector<int>> by_rank(num_ranks);
  for (int place = 0; place < num_places; ++place)
    by_rank[rank_of_place(place, num_places, num_ranks)].push_back(experts[place]);
  return Placement(std::move(by_rank), num_experts);
}

int Placement::fullest_rank() const {
  int fullest = 0;
  for (int rank = 1; rank < num_ranks(); ++rank)
    if (experts_of(rank).size() > experts_of(fullest).size()) fullest = rank;
  return fullest;
}

Result<void> Placement::check_groups(int combine_groups) const {
  const auto whole = [&](int groups) {
    if (groups < 1 || num_experts() % groups != 0) return false;
    const int size = num_experts() / groups;
    if (size > 1 && has_replicas()) return false;
    for (int expert = 1; expert < num_experts(); ++expert)
      if (expert % size != 0 && rank_of(expert) != rank_of(expert - 1)) return false;
    return true;
  };
  if (whole(combine_groups)) return {};
  int least = 1;
  while (least < num_experts() && !whole(least)) ++least;
  return fail(error(ErrorCode::bad_value,
                    "--combine-groups {} does not cut {} experts into groups of which each is on "
                    "one of {} ranks{}",
                    combine_groups, num_experts(), num_ranks(),
                    has_replicas() ? "; some experts are on several" : "")
                  .with_param("combine-groups")
                  .with_fix(fmt::format(
                      "--combine-groups {}, or a multiple that divides the experts", least)));
}

Placements::Placements(std::vector<Placement> layers) : layers_(std::move(layers)) {
  HOCKET_CHECK(!layers_.empty());
  for (const Placement& layer : layers_)
    for (int rank = 0; rank < first().num_ranks(); ++rank)
      HOCKET_CHECK(layer.experts_of(rank).size() == first().experts_of(rank).size());
}

Result<Placements> Placements::from_file(const std::filesystem::path& file, int num_experts,
                                         int num_ranks, int num_layers, const Balance& balance) {
  HOCKET_TRY_VOID(check_ranks(num_experts, "experts", num_ranks));
  HOCKET_TRY(const std::string text, read_file(file));
  const Json root = parse_bounded_json<Json>(text);
  if (root.is_discarded())
    return fail(refusal(
        file, fmt::format("it is not JSON, or is nested deeper than {} levels", kMaxJsonDepth)));
  const bool has_map = !root.is_object() || root.contains(kMapKey);
  std::vector<Placement> placements;
  if (!has_map && root.contains(kCountKey)) {
    const auto counts = read_layer_counts(root.at(kCountKey), num_experts, num_layers);
    if (!counts) return fail(refusal(file, counts.error()));
    for (const std::vector<uint64_t>& loads : *counts) placements.push_back(balance(loads));
    return Placements(std::move(placements));
  }
  if (!has_map)
    return fail(refusal(file, fmt::format("it has no \"{}\", nor \"{}\"", kMapKey, kCountKey)));
  const auto layers =
      read_layers(root.is_object() ? root.at(kMapKey) : root, num_experts, num_ranks, num_layers);
  if (!layers) return fail(refusal(file, layers.error()));
  for (const std::vector<int>& places : *layers)
    placements.push_back(Placement::of_places(places, num_experts, num_ranks));
  return Placements(std::move(placements));
}

Placements Placements::by_layer(int num_layers) const {
  std::vector<Placement> layers;
  for (int layer = 0; layer < num_layers; ++layer) layers.push_back(at(layer));
  return Placements(std::move(layers));
}

Placements Placements::among(const RankSet& present) const {
  std::vector<Placement> layers;
  for (const Placement& layer : layers_) layers.push_back(layer.among(present));
  return Placements(std::move(layers));
}

void Placements::swap(int layer, Placement& other) {
  Placement& mine = layers_.at(static_cast<size_t>(layer));
  for (int rank = 0; rank < mine.num_ranks(); ++rank) {
    const size_t now = mine.experts_of(rank).size(), then = other.experts_of(rank).size();
    HOCKET_CHECK((now == then || now == 0 || then == 0));
  }
  std::swap(mine, other);
}

HeldExperts Placements::held_by(int rank) const {
  HeldExperts held;
  for (const Placement& layer : layers_) {
    const std::span<const int> experts = layer.experts_of(rank);
    held.emplace_back(experts.begin(), experts.end());
  }
  return held;
}

bool Placements::differ() const {
  return std::ranges::any_of(
      layers_, [&](const Placement& at) { return at.fingerprint() != first().fingerprint(); });
}

uint32_t Placements::fingerprint() const {
  if (!differ()) return first().fingerprint();
  uint32_t hash = 2166136261u;
  for (const Placement& layer : layers_) hash = mix_in(hash, layer.fingerprint());
  return hash;
}

Result<void> Placements::check_groups(int combine_groups) const {
  for (const Placement& layer : layers_) HOCKET_TRY_VOID(layer.check_groups(combine_groups));
  return {};
}

}  // namespace hocket
