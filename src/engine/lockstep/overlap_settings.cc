#include "engine/lockstep/overlap_settings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/nearest_name.h"
#include "compute/overlap/plan.h"

namespace hocket {
namespace {

using Mode = OverlapChoice::Mode;

Error bad(const char* flag, std::string why, std::string fix) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag).with_fix(std::move(fix));
}

// Reads the value of `flag`, which is --overlap or one of its flags for a phase.
Result<OverlapChoice> named(const char* flag, const std::string& name, const OrderTable& orders) {
  OverlapChoice choice{.flag = fmt::format("--{} {}", flag, name)};
  if (name == "auto") return choice;
  choice.order = orders.find(name);
  if (choice.order >= 0) {
    choice.mode = Mode::order;
    return choice;
  }
  choice.order = 0;
  choice.mode = name == "none"           ? Mode::none
                : name == "single-batch" ? Mode::single_batch
                : name == "two-batch"    ? Mode::two_batch
                                         : Mode::automatic;
  if (choice.mode != Mode::automatic) return choice;
  std::vector<std::string_view> known = {"auto", "none", "single-batch", "two-batch"};
  for (int i = 0; i < orders.size(); ++i) known.push_back(orders.at(i).name);
  const auto near = nearest_name(name, known);
  return fail(bad(flag,
                  fmt::format("--{} {} is not auto, none, single-batch, two-batch or one of the "
                              "orders {}",
                              flag, name, orders.names()),
                  fmt::format("--{} {}", flag, near ? *near : "auto")));
}

PlanKind kind_forced_by(const OverlapChoice& choice, const OrderTable& orders) {
  switch (choice.mode) {
    case Mode::single_batch:
      return PlanKind::single_batch;
    case Mode::two_batch:
      return PlanKind::two_batch;
    case Mode::order:
      return kind_of({.order = choice.order}, orders);
    default:
      return PlanKind::none;
  }
}

// Applies --enable-two-batch-overlap or --enable-single-batch-overlap to --overlap.
// Errors: bad_value: it names another kind.
Result<void> force_kind(OverlapChoice& choice, PlanKind kind, const OrderTable& orders) {
  const std::string_view wanted = plan_kind_name(kind);
  if (choice.mode == Mode::automatic) {
    choice.mode = kind == PlanKind::two_batch ? Mode::two_batch : Mode::single_batch;
    choice.flag = fmt::format("--enable-{}-overlap", wanted);
    return {};
  }
  if (kind_forced_by(choice, orders) == kind) return {};
  return fail(
      bad("overlap",
          fmt::format("{} and --enable-{}-overlap contradict each other", choice.flag, wanted),
          fmt::format("--overlap {}", wanted)));
}

std::string name_of(const OverlapChoice& choice, const OrderTable& orders) {
  switch (choice.mode) {
    case Mode::automatic:
      return "auto";
    case Mode::order:
      return orders.at(choice.order).name;
    default:
      return std::string(plan_kind_name(kind_forced_by(choice, orders)));
  }
}

std::string name_of(const OverlapChoices& choices, const OrderTable& orders) {
  const std::string prefill = name_of(choices[0], orders), decode = name_of(choices[1], orders);
  return prefill == decode ? prefill : fmt::format("prefill {}, decode {}", prefill, decode);
}

// Drops the choices of overlap, because a single rank sends no rows.
void drop(OverlapSettings& overlap) {
  for (OverlapChoice& choice : overlap.choices) {
    const size_t space = choice.flag.find(' ');  // "--overlap four-phase", "--enable-..-overlap"
    const bool has_value = space != std::string::npos;
    SettingChange change{.flag = choice.flag.substr(0, space),
                         .from = has_value ? choice.flag.substr(space + 1) : "on",
                         .to = has_value ? "none" : "off",
                         .why =
                             "one rank sends nothing that could be hidden; --ep-size 2 or more "
                             "has an exchange"};
    const bool is_said = std::ranges::find(overlap.changes, change.flag, &SettingChange::flag) !=
                         overlap.changes.end();
    const bool forces = choice.mode != Mode::automatic && choice.mode != Mode::none;
    if (forces && !is_said) overlap.changes.push_back(std::move(change));
    choice = {.mode = Mode::none};
  }
  overlap.name = "none";
}

}  // namespace

Result<OverlapSettings> choose_overlap(const ParallelSettings& s) {
  const bool single = s.enable_single_batch_overlap, two = s.enable_two_batch_overlap;
  if (single && two)
    return fail(bad("enable-two-batch-overlap",
                    "--enable-two-batch-overlap and --enable-single-batch-overlap each force "
                    "their kind",
                    "one of the two, or --overlap auto, which may play both in one step"));
  if (!(s.tbo_token_distribution_threshold >= 0 && s.tbo_token_distribution_threshold <= 0.5))
    return fail(bad("tbo-token-distribution-threshold",
                    fmt::format("--tbo-token-distribution-threshold {:g} is not in 0 to 0.5",
                                s.tbo_token_distribution_threshold),
                    "--tbo-token-distribution-threshold 0.48"));
  OverlapSettings overlap;
  if (s.overlap_plan.empty()) {
    overlap.orders = {&OrderTable::builtin(), [](const OrderTable*) {}};
  } else {
    HOCKET_TRY(OrderTable orders, OrderTable::with_file(s.overlap_plan));
    overlap.orders = std::make_shared<const OrderTable>(std::move(orders));
  }
  const OrderTable& orders = *overlap.orders;
  std::string both = s.overlap;
  if (both.empty())
    both = orders.user_begin() < orders.size() ? orders.at(orders.user_begin()).name : "auto";
  const std::array own = {std::pair{"overlap-order-prefill", &s.overlap_order_prefill},
                          std::pair{"overlap-order-decode", &s.overlap_order_decode}};
  HOCKET_TRY(OverlapChoice of_both, named("overlap", both, orders));
  if (single || two)
    HOCKET_TRY_VOID(
        force_kind(of_both, two ? PlanKind::two_batch : PlanKind::single_batch, orders));
  for (size_t phase = 0; phase < own.size(); ++phase) {
    const auto [flag, name] = own[phase];
    overlap.choices[phase] = of_both;
    if (name->empty()) continue;
    HOCKET_TRY(overlap.choices[phase], named(flag, *name, orders));
  }
  overlap.name = name_of(overlap.choices, orders);
  const bool forces = std::ranges::any_of(overlap.choices, [](const OverlapChoice& choice) {
    return choice.mode != Mode::automatic && choice.mode != Mode::none;
  });
  if (s.ep_size == 1 && forces) drop(overlap);
  return overlap;
}

}  // namespace hocket
