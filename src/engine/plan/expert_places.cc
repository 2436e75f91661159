#include "engine/plan/expert_places.h"

#include <algorithm>
#include <charconv>

#include "base/show_bytes.h"
#include "compute/moe/balancer.h"
#include "compute/moe/exchange_message.h"

namespace hocket {
namespace {

constexpr int kMaxIterations = 1'000'000'000;
constexpr std::string_view kRedundant = "ep-num-redundant-experts";

Error bad_number(std::string_view what, std::string fix) {
  return error(ErrorCode::bad_value, "--{} {}", kRedundant, what)
      .with_param(std::string(kRedundant))
      .with_fix(std::move(fix));
}

// Returns the number of replicas that the settings name; -1: auto; -2: no number.
int redundant_experts(const ParallelSettings& settings) {
  const std::string& text = settings.ep_num_redundant_experts;
  if (text == "auto") return -1;
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end && number >= 0 && number <= kMaxPlaces ? number
                                                                                          : -2;
}

Result<int64_t> bytes_held(ModelChoice choice, const Placement& placement) {
  choice.experts = Placements(placement).held_by(placement.fullest_rank());
  HOCKET_TRY(const MeasuredWeights weights, measure_weights(choice, nullptr));
  return weights.bytes;
}

// Returns the replicas of each rank for `auto`.
Result<int> replicas_that_fit(const ModelChoice& choice, const Placement& plain, int64_t bytes) {
  const int most = std::min(plain.num_experts() - plain.max_experts(),
                            kMaxPlaces / plain.num_ranks() - plain.max_experts());
  if (most <= 0 || choice.combine_groups != plain.num_experts()) return 0;
  HOCKET_TRY(const int64_t without, bytes_held(choice, plain));
  HOCKET_TRY(const int64_t with_one, bytes_held(choice, plain.with_replicas(1)));
  const int64_t room = std::max<int64_t>(bytes - without, 0) / 8;
  return static_cast<int>(std::min<int64_t>(most, room / std::max<int64_t>(1, with_one - without)));
}

// Returns the change to `each` replicas on every rank, on which the ranks agreed, or that this
// process chose for all of its own.
Result<SettingChange> change_of_auto(int each, bool is_agreed, const ModelChoice& choice,
                                     const Placement& plain, int64_t bytes) {
  const std::string number = std::to_string(each * plain.num_ranks());
  SettingChange change{.flag = fmt::format("--{}", kRedundant),
                       .from = "auto",
                       .to = number,
                       .why = "replicas take up to an eighth of the memory that the weights leave"};
  if (!is_agreed) return change;
  change.why += ", on the rank that has least";
  if (each > plain.num_experts() - plain.max_experts()) return change;  // refused by the caller
  HOCKET_TRY(const int64_t held, bytes_held(choice, plain.with_replicas(each)));
  if (held <= bytes) return change;
  return fail(
      error(ErrorCode::out_of_memory,
            "the ranks of this service hold {} replicas of experts together, with which the "
            "weights of a rank take {}; this one has {}",
            number, show_bytes(held), show_bytes(bytes))
          .with_param(std::string(kRedundant))
          .with_fix("free memory of this host, or restart all ranks, which then agree on "
                    "fewer"));
}

// Returns why --eplb-algorithm hierarchical places as global does; empty if it does not.
std::string why_not_hierarchical(const ParallelSettings& settings, const MoeConfig& moe) {
  if (settings.eplb_algorithm != "hierarchical") return {};
  if (settings.nnodes <= 1) return "all ranks are on one host";
  if (moe.num_groups <= 1) return "this model has no expert groups";
  if (moe.num_groups % settings.nnodes == 0) return {};
  return fmt::format("{} groups of experts cannot be spread evenly over {} hosts", moe.num_groups,
                     settings.nnodes);
}

// Returns what to use instead of a value of SGLang for --eplb-algorithm.
std::string_view eplb_algorithm_here(std::string_view theirs) {
  if (theirs == "deepseek" || theirs == "deepseek_vec") return "global";
  if (theirs == "deepseek_hierarchical" || theirs == "deepseek_vec_hierarchical")
    return "hierarchical";
  if (theirs.starts_with("elasticity_aware"))
    return "auto; --tolerate-ranks K places experts for ranks that are missing";
  return "auto";
}

// Returns what to use instead of a value of SGLang for --expert-distribution-recorder-mode.
std::string_view recorder_mode_here(std::string_view theirs) {
  if (theirs == "stat_approx") return "stat, which counts every row here";
  if (theirs == "per_token")
    return "per_pass; return_routed_experts of /generate has the experts of each token";
  return "stat";
}

// Returns how --eplb-algorithm places a layer's experts, from where they would be without counts.
Result<Balance> balance_by(const ParallelSettings& settings, const ModelChoice& choice,
                           const Placement& start) {
  BalanceShape shape = {.num_ranks = start.num_ranks(), .num_places = start.num_places()};
  if (settings.eplb_algorithm == "hierarchical") {
    shape.num_groups = std::max(1, choice.model.moe.num_groups);
    shape.num_nodes = std::max(1, settings.nnodes);
  }
  if (settings.eplb_algorithm == "auto") {
    const bool even = shape.num_places % shape.num_ranks == 0;
    return [start, shape, even](std::span<const uint64_t> loads) {
      return improved_placement(loads, even ? published_placement(loads, shape) : start);
    };
  }
  if (shape.num_places % shape.num_ranks != 0 || shape.num_ranks % shape.num_nodes != 0)
    return fail(error(ErrorCode::bad_value,
                      "--eplb-algorithm {} needs as many of {} places on each of {} ranks and {} "
                      "nodes",
                      settings.eplb_algorithm, shape.num_places, shape.num_ranks, shape.num_nodes)
                    .with_param("eplb-algorithm")
                    .with_fix("auto"));
  return [shape](std::span<const uint64_t> loads) { return published_placement(loads, shape); };
}

// Checks that any ranks that are left can take over the experts of `tolerate_ranks` others.
Result<void> check_tolerance(int tolerate_ranks, const ModelChoice& choice, const Placement& any) {
  const auto refused = [&](std::string_view why, std::string fix) {
    return fail(error(ErrorCode::bad_value, "--tolerate-ranks {}: {}", tolerate_ranks, why)
                    .with_param("tolerate-ranks")
                    .with_fix(std::move(fix)));
  };
  if (tolerate_ranks >= any.num_ranks())
    return refused(fmt::format("there are {} ranks, of which one must be left", any.num_ranks()),
                   fmt::format("--tolerate-ranks {}", any.num_ranks() - 1));
  if (choice.combine_groups != any.num_experts())
    return refused(fmt::format("experts are taken over one by one, but --combine-groups {} sums "
                               "{} of them on one rank",
                               choice.combine_groups, any.num_experts() / choice.combine_groups),
                   "--combine-groups 0");
  if (any.num_places() > kMaxPlaces)
    return refused(fmt::format("a layer would have {} places for experts, more than {}",
                               any.num_places(), kMaxPlaces),
                   "a smaller --tolerate-ranks");
  if (any.max_experts() > kMaxRankExperts)
    return refused(fmt::format("a rank would have {} places for experts, more than {}",
                               any.max_experts(), kMaxRankExperts),
                   "a smaller --tolerate-ranks");
  const int num_present = any.num_ranks() - tolerate_ranks;
  if (any.fewest_places(num_present) < any.num_experts())
    return refused(fmt::format("some {} ranks have only {} places, but there are {} experts",
                               num_present, any.fewest_places(num_present), any.num_experts()),
                   "--init-expert-location with more places on each rank, or trivial");
  return {};
}

// Returns the most experts of a layer that a rank takes over while up to `tolerate_ranks` are
// missing. If the ranks can be missing in more than `max_sets` ways, it may be any expert that a
// rank has.
int max_taken_over(const Placement& home, int tolerate_ranks, int max_sets) {
  const auto num_ranks = static_cast<size_t>(home.num_ranks());
  int most = 0, num_sets = 0;
  for (int num_absent = 1; num_absent <= tolerate_ranks; ++num_absent) {
    std::vector<char> absent(num_ranks);
    std::fill(absent.end() - num_absent, absent.end(), 1);
    do {
      if (++num_sets > max_sets) return home.max_experts();
      RankSet present;
      for (size_t rank = 0; rank < num_ranks; ++rank)
        if (absent[rank] == 0) present.add(static_cast<int>(rank));
      const Placement then = home.among(present);
      for (size_t rank = 0; rank < num_ranks; ++rank) {
        const std::span<const int> own = home.experts_of(static_cast<int>(rank));
        most = std::max(most, static_cast<int>(std::ranges::count_if(
                                  then.experts_of(static_cast<int>(rank)), [&](int expert) {
                                    return !std::ranges::binary_search(own, expert);
                                  })));
      }
    } while (std::ranges::next_permutation(absent).found);
  }
  return most;
}

// Checks that each group of experts is on one rank, also when experts move.
Result<void> check_groups(const ParallelSettings& settings, const ModelChoice& choice,
                          const Placements& placements) {
  HOCKET_TRY_VOID(placements.check_groups(choice.combine_groups));
  const int experts = choice.model.moe.num_experts;
  if (!settings.enable_eplb || choice.combine_groups == experts) return {};
  return fail(error(ErrorCode::bad_value,
                    "--enable-eplb moves experts one by one, but --combine-groups {} sums {} of "
                    "them on one rank",
                    choice.combine_groups, experts / choice.combine_groups)
                  .with_param("combine-groups")
                  .with_fix("--combine-groups 0"));
}

}  // namespace

Result<MovingMemory> moving_memory(const ServerSettings& settings, const ModelChoice& choice,
                                   const Placements& placements, const WeightSource* source) {
  const ModelConfig& model = choice.model;
  HOCKET_TRY(const ExpertBytes largest, largest_expert_bytes(choice, source));
  const int64_t at_once = placements.first().max_experts();
  MovingMemory memory{.of_layers = {at_once, largest.of_layers}, .of_modules = {}};
  const int tolerate_ranks = settings.parallel.tolerate_ranks;
  const bool apart = tolerate_ranks > 0 && largest.of_modules > largest.of_layers;
  if (apart) memory.of_modules = {at_once, largest.of_modules};
  if (tolerate_ranks == 0 || settings.model.weight_cache.empty()) return memory;
  constexpr int kMaxSets = 4096;  // sets of ranks that are looked at, in all layers together
  const int num_layers = model.num_layers + model.num_mtp_loaded;
  const bool differ = placements.differ();
  const int max_sets = differ ? std::max(1, kMaxSets / num_layers) : kMaxSets;
  const int of_first = differ ? 0 : max_taken_over(placements.first(), tolerate_ranks, max_sets);
  for (int layer = 0; layer < num_layers; ++layer) {
    const bool of_module = layer >= model.num_layers;
    if (!(of_module ? model.mtp_module().layer_is_moe[0] : model.layer_is_moe[layer])) continue;
    (of_module && apart ? memory.of_modules : memory.of_layers).num +=
        differ ? max_taken_over(placements.at(layer), tolerate_ranks, max_sets) : of_first;
  }
  return memory;
}

Result<Rebalancer> rebalancer_of(const ParallelSettings& settings, const ModelChoice& choice,
                                 const Placement& any) {
  if (settings.eplb_algorithm == "auto") return improved_placement;
  HOCKET_TRY(Balance balance, balance_by(settings, choice, any));
  return [balance = std::move(balance)](std::span<const uint64_t> work, const Placement&,
                                        const std::function<bool()>&) { return balance(work); };
}

Result<void> check_places(const ParallelSettings& s) {
  if (redundant_experts(s) == -2)
    return fail(bad_number(fmt::format("{} is no number from 0 to {}, nor auto",
                                       s.ep_num_redundant_experts, kMaxPlaces),
                           "0, or a multiple of the ranks"));
  const bool replicates = s.ep_num_redundant_experts != "0";
  if (s.ep_size == 1 && (s.init_expert_location != "trivial" || replicates))
    return fail(error(ErrorCode::bad_value, "--{} {} places experts on ranks, but there is one",
                      replicates ? kRedundant : "init-expert-location",
                      replicates ? s.ep_num_redundant_experts : s.init_expert_location)
                    .with_param(std::string(replicates ? kRedundant : "init-expert-location"))
                    .with_fix(replicates ? "0, or an --ep-size above 1"
                                         : "trivial, or an --ep-size above 1"));
  if (const std::string& by = s.eplb_algorithm;
      by != "auto" && by != "global" && by != "hierarchical")
    return fail(error(ErrorCode::bad_value,
                      "--eplb-algorithm {} is not one of auto, global, hierarchical", by)
                    .with_param("eplb-algorithm")
                    .with_fix(std::string(eplb_algorithm_here(by))));
  if (s.enable_eplb && s.ep_size == 1)
    return fail(
        error(ErrorCode::bad_value, "--enable-eplb moves experts between ranks, but there is one")
            .with_param("enable-eplb")
            .with_fix("an --ep-size above 1"));
  if (s.eplb_rebalance_num_iterations < 1 || s.eplb_rebalance_num_iterations > kMaxIterations)
    return fail(error(ErrorCode::bad_value, "--eplb-rebalance-num-iterations {} is not in 1 to {}",
                      s.eplb_rebalance_num_iterations, kMaxIterations)
                    .with_param("eplb-rebalance-num-iterations")
                    .with_fix("1000"));
  if (!s.enable_eplb &&
      s.eplb_rebalance_num_iterations != ParallelSettings().eplb_rebalance_num_iterations)
    return fail(error(ErrorCode::bad_value,
                      "--eplb-rebalance-num-iterations {} has no effect without --enable-eplb",
                      s.eplb_rebalance_num_iterations)
                    .with_param("eplb-rebalance-num-iterations")
                    .with_fix("--enable-eplb, or leave it out"));
  const std::string& mode = s.expert_distribution_recorder_mode;
  if (!mode.empty() && mode != "stat" && mode != "per_pass")
    return fail(error(ErrorCode::bad_value,
                      "--expert-distribution-recorder-mode {} is not one of stat, per_pass", mode)
                    .with_param("expert-distribution-recorder-mode")
                    .with_fix(std::string(recorder_mode_here(mode))));
  return {};
}

Result<std::optional<int>> auto_replicas(const ParallelSettings& settings,
                                         const ModelChoice& choice, int num_ranks,
                                         int64_t available_bytes) {
  if (redundant_experts(settings) != -1) return std::nullopt;
  HOCKET_TRY(const Placement plain,
             Placement::contiguous(choice.model.moe.num_experts, num_ranks, choice.combine_groups));
  return replicas_that_fit(choice, plain, available_bytes);
}

Result<ExpertPlaces> place_experts(const ParallelSettings& settings, const ModelChoice& choice,
                                   int num_ranks, int64_t available_bytes,
                                   std::optional<int> agreed) {
  const int experts = choice.model.moe.num_experts;
  HOCKET_TRY(const Placement plain,
             Placement::contiguous(experts, num_ranks, choice.combine_groups));
  int number = redundant_experts(settings);
  std::optional<SettingChange> change;
  if (number == -1) {
    int each = agreed.value_or(0);
    if (!agreed) {
      HOCKET_TRY(each, replicas_that_fit(choice, plain, available_bytes));
    }
    // Another rank says it, so it may be any number.
    number = std::min(each, kMaxPlaces) * num_ranks;
    HOCKET_TRY(change, change_of_auto(each, agreed.has_value(), choice, plain, available_bytes));
  }
  const int most = experts - plain.max_experts();
  if (number % num_ranks != 0 || number / num_ranks > most || experts + number > kMaxPlaces)
    return fail(bad_number(
        fmt::format("cannot be spread over {} ranks that hold up to {} of {} experts each",
                    num_ranks, plain.max_experts(), experts),
        fmt::format("a multiple of {}, up to {}", num_ranks,
                    std::min(most * num_ranks, (kMaxPlaces - experts) / num_ranks * num_ranks))));
  const int per_host = settings.nnodes > 1 ? num_ranks / settings.nnodes : num_ranks;
  Placement filled = plain.with_replicas(number / num_ranks, per_host);
  if (settings.tolerate_ranks > 0 && settings.tolerate_ranks < num_ranks) {
    const int num_present = num_ranks - settings.tolerate_ranks;
    const int least = (experts + num_present - 1) / num_present;
    if (const int max_there = filled.max_experts(); filled.fewest_places(num_present) < experts) {
      filled = plain.filled_to(std::max(max_there, least), per_host);
      change = {.flag = "--ep-num-redundant-experts",
                .from = settings.ep_num_redundant_experts,
                .to = std::to_string(filled.num_places() - experts),
                .why = fmt::format("--tolerate-ranks {}: the ranks that are left need places for "
                                   "all {} experts",
                                   settings.tolerate_ranks, experts)};
    }
  }
  Placements placements = std::move(filled);
  if (settings.init_expert_location != "trivial") {
    HOCKET_TRY(const Balance balance, balance_by(settings, choice, placements.first()));
    HOCKET_TRY(Placements named,
               Placements::from_file(settings.init_expert_location, experts, num_ranks,
                                     choice.model.num_layers, balance));
    const int places = named.first().num_places();
    const bool as_named = places == experts + number || places == placements.first().num_places();
    if (settings.ep_num_redundant_experts != "0" && !as_named)
      return fail(bad_number(
          fmt::format("{} and {} experts are not the {} places of --init-expert-location {}",
                      number, experts, places, settings.init_expert_location),
          "0, for a file that names the expert of every place"));
    if (change && places != placements.first().num_places()) change.reset();  // the file says it
    placements = std::move(named);
  }
  if (settings.tolerate_ranks > 0)
    HOCKET_TRY_VOID(check_tolerance(settings.tolerate_ranks, choice, placements.first()));
  HOCKET_TRY_VOID(check_groups(settings, choice, placements));
  ExpertPlaces places{std::move(placements), {}};
  if (change) places.changes.push_back(*std::move(change));
  if (auto why = why_not_hierarchical(settings, choice.model.moe); !why.empty())
    places.changes.push_back({.flag = "--eplb-algorithm",
                              .from = "hierarchical",
                              .to = "global",
                              .why = std::move(why)});
  return places;
}

}  // namespace hocket
