#include "bench/found_orders.h"

#include <fmt/core.h>

#include <array>
#include <bit>

namespace hocket {
namespace {

// The work of a half in a layer. Starts are placed right behind what they send, waits right before
// the work that needs the rows.
enum class Work : uint8_t { attend_in, attend, shared, experts };
constexpr int kNumWorks = 4;

struct Turn {
  uint8_t half;
  Work work;
  auto operator<=>(const Turn&) const = default;
};
using Circle = std::array<Turn, 2 * kNumWorks>;

// The sequence of work of one half in one layer: the shared expert before or behind the routed
// ones.
using Sequence = std::array<Work, kNumWorks>;
constexpr std::array<Sequence, 2> kSequences = {
    {{Work::attend_in, Work::attend, Work::shared, Work::experts},
     {Work::attend_in, Work::attend, Work::experts, Work::shared}}};

int place_of(const Circle& circle, Turn turn) {
  int place = 0;
  while (circle[place] != turn) ++place;
  return place;
}
// Returns the place at which half b begins its layer; half a begins at place 0.
int lead_of(const Circle& circle) {
  return place_of(circle, {1, Work::attend_in});
}

// Returns how many layers half b is behind, beside the one that it has not ended when half a begins
// the next: 1 if its attend would come before half a's of the same layer.
int layers_behind(const Circle& circle) {
  const int place = place_of(circle, {1, Work::attend});
  return place > lead_of(circle) && place < place_of(circle, {0, Work::attend}) ? 1 : 0;
}

// Returns by how many places half a leads.
int distance_of(const Circle& circle) {
  return lead_of(circle) + layers_behind(circle) * static_cast<int>(circle.size());
}

// Returns the same circle with the halves' names exchanged, beginning where the other half begins.
Circle mirror(const Circle& circle) {
  Circle other;
  const int lead = lead_of(circle);
  for (int i = 0; i < std::ssize(circle); ++i) {
    const Turn& turn = circle[(lead + i) % circle.size()];
    other[i] = {static_cast<uint8_t>(1 - turn.half), turn.work};
  }
  return other;
}

// True if this circle is used. A circle and its mirror are the same order with the halves' names
// exchanged; the one in which half a leads by less is used:
//
//   place   0 1 2 3 4 5 6 7        half a leads to the place of b's attend_in (here 1); in the
//   half    a b a b a b a b        mirror image by 7 places
bool is_taken(const Circle& circle) {
  const Circle mirrored = mirror(circle);
  const int distance = distance_of(circle), other = distance_of(mirrored);
  return distance != other ? distance < other : circle <= mirrored;
}

Order order_of(const Circle& circle) {
  Order order{{}, 2, {}};
  const int lead = lead_of(circle), behind = layers_behind(circle);
  const auto add = [&](uint8_t half, int lag, std::initializer_list<Op> ops) {
    for (const Op op : ops) order.slots.push_back({half, op, static_cast<uint8_t>(lag)});
  };
  for (int i = 0; i < std::ssize(circle); ++i) {
    const auto [half, work] = circle[i];
    // Before `lead`, b is still in the layer before.
    const int lag = half == 0 ? 0 : behind + (i < lead ? 1 : 0);
    switch (work) {
      case Work::attend_in:
        if (half == 1) add(half, behind + 1, {Op::combine_wait});
        add(half, lag, {Op::attn_in});
        break;
      case Work::attend:
        add(half, lag, {Op::attn_core, Op::mlp, Op::gate, Op::dispatch_start});
        break;
      case Work::shared:
        add(half, lag, {Op::shared});
        break;
      case Work::experts:
        add(half, lag, {Op::dispatch_wait, Op::experts, Op::combine_start});
        break;
    }
  }
  add(0, 0, {Op::combine_wait});
  return order;
}

// Makes a circle: half a has the places that are set in `mask`, half b the others. The work at b's
// first place is b[turn], so `turn` says how far b is in its layer when a begins.
Circle circle_of(unsigned mask, const Sequence& a, const Sequence& b, int turn) {
  Circle circle;
  int next_a = 0, next_b = turn;
  for (int place = 0; place < std::ssize(circle); ++place)
    circle[place] =
        (mask >> place & 1) != 0 ? Turn{0, a[next_a++]} : Turn{1, b[next_b++ % kNumWorks]};
  return circle;
}

}  // namespace

std::vector<Order> all_two_half_orders() {
  std::vector<Order> orders;
  for (unsigned mask = 1; mask < 1u << 2 * kNumWorks; mask += 2) {  // a.attn_in is at place 0
    if (std::popcount(mask) != kNumWorks) continue;
    for (const Sequence& a : kSequences)
      for (const Sequence& b : kSequences)
        for (int turn = 0; turn < kNumWorks; ++turn) {
          const Circle circle = circle_of(mask, a, b, turn);
          if (!is_taken(circle)) continue;
          orders.push_back(order_of(circle));
          orders.back().name = fmt::format("found-{:04}", orders.size() - 1);
        }
  }
  return orders;
}

}  // namespace hocket
