#include "compute/moe/placement.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "core/bounded_json.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMapKey = "physical_to_logical_map";
// A file of 1,000 layers with 1,000 experts has half of that.
constexpr int64_t kMostFileBytes = 16 << 20;

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
      .with_fix(fmt::format("{{\"{}\": [[the expert of each place], one list a layer, all alike]}}",
                            kMapKey));
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::error_code ec;
  if (std::filesystem::is_regular_file(file, ec)) {
    if (static_cast<int64_t>(std::filesystem::file_size(file, ec)) > kMostFileBytes)
      return fail(refusal(file, fmt::format("it is larger than {} MB", kMostFileBytes >> 20)));
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (in.is_open() && !in.bad()) return text;
  }
  return fail(error(ErrorCode::io, "--init-expert-location: cannot read {}", file.string())
                  .with_param("init-expert-location")
                  .with_fix("a file that this user may read, or trivial"));
}

// Returns the expert of every place, or the reason of a refusal as a sentence.
std::expected<std::vector<int>, std::string> read_places(const Json& list, int num_experts) {
  if (!list.is_array()) return std::unexpected("its places are no list");
  if (std::ssize(list) > num_experts)
    return std::unexpected(
        fmt::format("{} places for {} experts: several places for an expert are not possible yet",
                    list.size(), num_experts));
  std::vector<int> experts;
  std::vector<bool> seen(num_experts);
  for (const Json& item : list) {
    const int64_t expert = item.is_number_integer() ? item.get<int64_t>() : -1;
    if (expert < 0 || expert >= num_experts)
      return std::unexpected(fmt::format("place {} has {}, which is no expert in 0 to {}",
                                         experts.size(), item.dump().substr(0, 40),
                                         num_experts - 1));
    if (seen[expert]) return std::unexpected(fmt::format("expert {} is at two places", expert));
    seen[expert] = true;
    experts.push_back(static_cast<int>(expert));
  }
  if (std::ssize(experts) < num_experts)
    return std::unexpected(fmt::format("{} places for {} experts: expert {} is nowhere",
                                       experts.size(), num_experts,
                                       std::ranges::find(seen, false) - seen.begin()));
  return experts;
}

// Returns the expert of every place, which must be the same in all layers, or the reason of a
// refusal.
std::expected<std::vector<int>, std::string> read_layers(const std::string& text, int num_experts) {
  Json root = parse_bounded_json<Json>(text);
  if (root.is_discarded())
    return std::unexpected(
        fmt::format("it is not JSON, or is nested deeper than {} levels", kJsonDepthMax));
  if (root.is_object()) {
    const auto map = root.find(kMapKey);
    if (map == root.end()) return std::unexpected(fmt::format("it has no \"{}\"", kMapKey));
    root = Json(*map);
  }
  if (!root.is_array() || root.empty() || !root[0].is_array())
    return read_places(root, num_experts);
  auto experts = read_places(root[0], num_experts);
  for (size_t layer = 1; experts && layer < root.size(); ++layer)
    if (root[layer] != root[0])
      return std::unexpected(
          fmt::format("layers 0 and {} differ; a placement per layer is not possible yet", layer));
  return experts;
}

}  // namespace

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
  for (const int rank : ranks)
    fingerprint_ = (fingerprint_ ^ static_cast<uint32_t>(rank)) * 16777619u;
}

Result<Placement> Placement::contiguous(int num_experts, int num_ranks, int num_groups) {
  HOCKET_CHECK(num_experts >= 0);
  HOCKET_CHECK(num_groups >= 1 && num_experts % num_groups == 0);
  if (num_experts > 0) {
    HOCKET_TRY_VOID(check_ranks(num_groups, "groups of experts", num_ranks));
  }
  std::vector<int> ranks(num_experts);
  for (int expert = 0; expert < num_experts; ++expert)
    ranks[expert] = rank_of_place(expert / (num_experts / num_groups), num_groups, num_ranks);
  return Placement(ranks, num_ranks);
}

Result<Placement> Placement::from_file(const std::filesystem::path& file, int num_experts,
                                       int num_ranks) {
  HOCKET_TRY_VOID(check_ranks(num_experts, "experts", num_ranks));
  HOCKET_TRY(const std::string text, read_file(file));
  const auto experts = read_layers(text, num_experts);
  if (!experts) return fail(refusal(file, experts.error()));
  std::vector<int> ranks(num_experts);
  for (int place = 0; place < num_experts; ++place)
    ranks[(*experts)[place]] = rank_of_place(place, num_experts, num_ranks);
  return Placement(ranks, num_ranks);
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
    for (int expert = 1; expert < num_experts(); ++expert)
      if (expert % size != 0 && rank_of(expert) != rank_of(expert - 1)) return false;
    return true;
  };
  if (whole(combine_groups)) return {};
  int least = 1;
  while (least < num_experts() && !whole(least)) ++least;
  return fail(error(ErrorCode::bad_value,
                    "--combine-groups {} does not cut {} experts into groups of which each is on "
                    "one of {} ranks",
                    combine_groups, num_experts(), num_ranks())
                  .with_param("combine-groups")
                  .with_fix(fmt::format(
                      "--combine-groups {}, or a multiple that divides the experts", least)));
}

}  // namespace hocket
