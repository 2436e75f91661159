// A plan says how one step is played. A plan may change times only, never a bit
// (docs/contracts/overlap.md).
//
//   none          one half, one message, nothing computed while rows travel
//   single-batch  one half: the shared expert under an exchange, or rows in several messages
//                 (parts), each computed as soon as it is here and sent back as soon as it is done,
//                 perhaps in several messages (waves), while the rest of it is computed
//   two-batch     two halves in an order of the table; parts too, where that pays
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compute/overlap/order_table.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

inline constexpr int kMaxParts = 8;     // the most messages that the rows of a half travel in
inline constexpr int kWholeShare = 64;  // unit of Plan::share
inline constexpr int kEvenShare = kWholeShare / 2;

// Returns the lane of the exchange that a message of a half takes; agreements take lane 0. Part p
// of P takes the p-th lane of the half, and wave w of part p is sent back on the (w P + p)-th.
constexpr int lane_of(int half, int message) {
  return half * kMaxParts + message;
}

enum class PlanKind : uint8_t { none, single_batch, two_batch };
inline constexpr size_t kNumPlanKinds = 3;

struct Plan {
  int order = 0;  // index in the table; 0 is serial
  // Number of parts in which the rows of a half leave, and of waves in which the results of each
  // are sent back. Powers of two, together at most kMaxParts.
  int parts = 1, waves = 1;
  // The first half's part of the work, in 1 / kWholeShare: 1 .. kWholeShare - 1.
  int share = kEvenShare;

  Grain grain() const { return {parts, waves}; }
  // True if both are one candidate, which is predicted at its best share anew by each search.
  bool equals_but_for_share(const Plan& other) const {
    return order == other.order && grain() == other.grain();
  }
  bool operator==(const Plan&) const = default;
};

// A plan as ranks send it to each other. Id 0 is the plan `none`.
//
//   bits  0-15 order   16-17 log2(parts)   18-23 share xor kEvenShare   24-25 log2(waves)
//         26-31 zero
enum class PlanId : uint32_t { none = 0 };
// Returns the id. The plan must be sound: parts and waves as above, a share in its range.
PlanId id_of(const Plan& plan);
// Returns nothing for an id that this table cannot play; the step is then played by the plan
// `none`.
std::optional<Plan> plan_of(PlanId id, const OrderTable& orders);

// The value of --overlap, or of its flag for a phase: what the user allows or forces.
struct OverlapChoice {
  enum class Mode : uint8_t {
    automatic,     // auto
    none,          // none
    single_batch,  // --enable-single-batch-overlap: the best of its kind
    two_batch,     // --enable-two-batch-overlap: the best of its kind
    order,         // the name of an order, of the table or of --overlap-plan
  };
  Mode mode = Mode::automatic;
  int order = 0;          // only Mode::order: index in the table
  std::string flag = {};  // how the user forced it: "--overlap four-phase"
};
using OverlapChoices = std::array<OverlapChoice, kNumPhases>;  // by Phase

bool allows(const OverlapChoice& choice, PlanKind kind);
// Returns the plan that is played before anything is known. Two halves begin with SGLang's order of
// the phase.
Plan first_plan(const OverlapChoice& choice, Phase phase, const OrderTable& orders);

PlanKind kind_of(const Plan& plan, const OrderTable& orders);
std::string_view plan_kind_name(PlanKind kind);  // "none", "single-batch", "two-batch"
// Returns the plan in words: "none", "single-batch, shared under combine", "two-batch, four-phase,
// 4 parts, 31 of 64 first", "single-batch, 2 parts in 4 waves each".
std::string describe(const Plan& plan, const OrderTable& orders);

}  // namespace hocket
