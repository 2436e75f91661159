#include "compute/overlap/plan.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace hocket {
namespace {

constexpr uint32_t kOrderBits = 16, kPartsBits = 2, kShareBits = 6;
constexpr uint32_t kPartsAt = kOrderBits, kShareAt = kPartsAt + kPartsBits;
constexpr uint32_t kWavesAt = kShareAt + kShareBits;
constexpr uint32_t kIdBits = kWavesAt + kPartsBits;
static_assert(kWholeShare == 1 << kShareBits);

bool is_power(int n) {
  return n >= 1 && n <= kMaxParts && std::has_single_bit(static_cast<uint32_t>(n));
}

bool is_sound(const Plan& plan) {
  return plan.order >= 0 && plan.order < 1 << kOrderBits && is_power(plan.parts) &&
         is_power(plan.waves) && plan.parts * plan.waves <= kMaxParts && plan.share >= 1 &&
         plan.share < kWholeShare;
}

// Returns the transfer during which the first half's shared expert runs; empty if nothing travels
// then.
std::string_view shared_under(const Order& order) {
  const auto place = [&](Op op) {
    const auto is_op = [&](const Slot& s) { return s.half == 0 && s.op == op; };
    const auto found = std::ranges::find_if(order.slots, is_op);
    return (found->lag << 16) + (found - order.slots.begin());
  };
  const auto shared = place(Op::shared);
  if (place(Op::dispatch_start) < shared && shared < place(Op::dispatch_wait)) return "dispatch";
  if (place(Op::combine_start) < shared && shared < place(Op::combine_wait)) return "combine";
  return {};
}

}  // namespace

PlanId id_of(const Plan& plan) {
  HOCKET_CHECK(is_sound(plan));
  const uint32_t parts = std::countr_zero(static_cast<uint32_t>(plan.parts));
  const uint32_t share = static_cast<uint32_t>(plan.share ^ kEvenShare);
  const uint32_t waves = std::countr_zero(static_cast<uint32_t>(plan.waves));
  return PlanId{static_cast<uint32_t>(plan.order) | parts << kPartsAt | share << kShareAt |
                waves << kWavesAt};
}

std::optional<Plan> plan_of(PlanId id, const OrderTable& orders) {
  const auto bits = static_cast<uint32_t>(id);
  if (bits >> kIdBits != 0) return std::nullopt;
  const auto field = [&](uint32_t at, uint32_t width) {
    return static_cast<int>(bits >> at & ((1u << width) - 1));
  };
  const Plan plan = {.order = field(0, kOrderBits),
                     .parts = 1 << field(kPartsAt, kPartsBits),
                     .waves = 1 << field(kWavesAt, kPartsBits),
                     .share = field(kShareAt, kShareBits) ^ kEvenShare};
  if (!is_sound(plan) || plan.order >= orders.size()) return std::nullopt;
  if (orders.at(plan.order).num_halves == 1 && plan.share != kEvenShare) return std::nullopt;
  return plan;
}

PlanKind kind_of(const Plan& plan, const OrderTable& orders) {
  if (orders.at(plan.order).num_halves > 1) return PlanKind::two_batch;
  const bool is_whole = plan.grain().num_waves() == 1;
  return plan.order == 0 && is_whole ? PlanKind::none : PlanKind::single_batch;
}

bool allows(const OverlapChoice& choice, PlanKind kind) {
  using enum OverlapChoice::Mode;
  return choice.mode == automatic ||
         (choice.mode == single_batch && kind == PlanKind::single_batch) ||
         (choice.mode == two_batch && kind == PlanKind::two_batch);
}

Plan first_plan(const OverlapChoice& choice, Phase phase, const OrderTable& orders) {
  switch (choice.mode) {
    case OverlapChoice::Mode::single_batch:
      return {.order = orders.find("single-batch-combine")};
    case OverlapChoice::Mode::two_batch:
      return {.order = orders.find(phase == Phase::prefill ? "sglang-prefill" : "sglang-decode")};
    case OverlapChoice::Mode::order:
      return {.order = choice.order};
    default:
      return {};
  }
}

std::string_view plan_kind_name(PlanKind kind) {
  static constexpr std::array<std::string_view, kNumPlanKinds> kNames = {"none", "single-batch",
                                                                         "two-batch"};
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const Plan& plan, const OrderTable& orders) {
  const PlanKind kind = kind_of(plan, orders);
  const Order& order = orders.at(plan.order);
  std::string text(plan_kind_name(kind));
  if (kind == PlanKind::none) return text;
  if (kind == PlanKind::two_batch || plan.order >= orders.user_begin())
    text += fmt::format(", {}", order.name);
  else if (const std::string_view under = shared_under(order); !under.empty())
    text += fmt::format(", shared under {}", under);
  if (plan.parts > 1) text += fmt::format(", {} parts", plan.parts);
  if (plan.waves > 1)
    text += fmt::format("{} {} waves{}", plan.parts > 1 ? " in" : ",", plan.waves,
                        plan.parts > 1 ? " each" : "");
  if (kind == PlanKind::two_batch && plan.share != kEvenShare)
    text += fmt::format(", {} of {} first", plan.share, kWholeShare);
  return text;
}

}  // namespace hocket
