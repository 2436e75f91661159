#include "engine/ranks/overlap_settings.h"

#include <span>
#include <string_view>

#include "base/nearest.h"
#include "compute/overlap/plan.h"

namespace hocket {
namespace {

using Mode = OverlapChoice::Mode;

Error bad(const char* flag, std::string why, std::string fix) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag).with_fix(std::move(fix));
}

Result<OverlapChoice> named(const std::string& name, const OrderTable& orders) {
  if (name == "auto") return OverlapChoice{};
  if (name == "none") return OverlapChoice{.mode = Mode::none};
  if (name == "single-batch") return OverlapChoice{.mode = Mode::single_batch};
  if (name == "two-batch") return OverlapChoice{.mode = Mode::two_batch};
  const int order = orders.find(name);
  if (order >= 0) return OverlapChoice{.mode = Mode::order, .order = order};
  std::vector<std::string_view> known = {"auto", "none", "single-batch", "two-batch"};
  for (int i = 0; i < orders.size(); ++i) known.push_back(orders.at(i).name);
  const auto near = nearest_name(name, known);
  return fail(bad("overlap",
                  fmt::format("--overlap {} is not auto, none, single-batch, two-batch or one of "
                              "the orders {}",
                              name, orders.names()),
                  near ? fmt::format("--overlap {}", *near) : "--overlap auto"));
}

// Refuses --overlap if it names another kind than --enable-*-overlap.
Result<void> check_kind(const OverlapSettings& overlap, PlanKind kind) {
  const std::string_view wanted = plan_kind_name(kind);
  const OverlapChoice& choice = overlap.choice;
  bool fits = choice.mode == Mode::automatic;
  fits |= choice.mode == Mode::single_batch && kind == PlanKind::single_batch;
  fits |= choice.mode == Mode::two_batch && kind == PlanKind::two_batch;
  fits |= choice.mode == Mode::order && kind_of({.order = choice.order}, *overlap.orders) == kind;
  if (fits) return {};
  return fail(bad("overlap",
                  fmt::format("--overlap {} and --enable-{}-overlap contradict each other",
                              overlap.name, wanted),
                  fmt::format("--overlap {}", wanted)));
}

// Drops the choice of overlap, because a single rank sends no rows.
void drop(OverlapSettings& overlap) {
  overlap.changes.push_back({.flag = "--overlap",
                             .from = overlap.name,
                             .to = "none",
                             .why = "one rank sends nothing that could be hidden; --ep-size 2 or "
                                    "more has an exchange"});
  overlap.choice = {.mode = Mode::none};
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
  overlap.name = s.overlap;
  if (overlap.name.empty())
    overlap.name =
        orders.user_begin() < orders.size() ? orders.at(orders.user_begin()).name : "auto";
  HOCKET_TRY(overlap.choice, named(overlap.name, orders));
  if (single || two) {
    const PlanKind kind = two ? PlanKind::two_batch : PlanKind::single_batch;
    HOCKET_TRY_VOID(check_kind(overlap, kind));
    if (overlap.choice.mode == Mode::automatic) {
      overlap.name = plan_kind_name(kind);
      overlap.choice.mode = two ? Mode::two_batch : Mode::single_batch;
    }
  }
  const bool asked = overlap.choice.mode != Mode::automatic && overlap.choice.mode != Mode::none;
  if (s.ep_size == 1 && asked) drop(overlap);
  return overlap;
}

}  // namespace hocket
