#include "bench/pass_profile.h"

#include <fmt/core.h>

#include <utility>

namespace hocket {
namespace {

void add(PassProfile::Stage& to, const PassProfile::Stage& from) {
  to.seconds += from.seconds;
  to.bytes += from.bytes;
  to.operations.floats += from.operations.floats;
  to.operations.fp8 += from.operations.fp8;
  to.operations.integers += from.operations.integers;
}

double read_share(const PassProfile::Stage& stage, const MachineSpeed& speed) {
  return stage.bytes / stage.seconds / speed.read_bytes_per_s;
}
double peak_share(const PassProfile::Stage& stage, const MachineSpeed& speed) {
  const auto& [floats, fp8, integers] = stage.operations;
  return ((floats + fp8) / speed.operations_per_s + integers / speed.integer_operations_per_s) /
         stage.seconds;
}

template <class Visit>
void for_each_stage(const PassProfile& profile, Visit&& visit) {
  for (int op = 0; op < kNumOps; ++op)
    if (const auto& stage = profile.stages[static_cast<size_t>(op)]; stage.seconds > 0)
      visit(op_name(static_cast<Op>(op)), stage);
  visit("head", profile.head);
}

}  // namespace

void PassProfile::add(const PassProfile& other) {
  for (size_t op = 0; op < stages.size(); ++op) hocket::add(stages[op], other.stages[op]);
  hocket::add(head, other.head);
}

void PassProfile::add_work(const PassShape& pass, const ModelCost& cost, int experts_all) {
  for (int op = 0; op < kNumOps; ++op) {
    const StageSize& size = cost.stage(static_cast<Op>(op));
    const double read =
        static_cast<Op>(op) == Op::experts && experts_all > 0 ? pass.experts_hit / experts_all : 1;
    hocket::add(stages[static_cast<size_t>(op)],
                {.bytes = read * size.bytes,
                 .operations = {.floats = pass.rows * size.of_row.floats,
                                .fp8 = pass.rows * size.of_row.fp8,
                                .integers = pass.rows * size.of_row.integers}});
  }
  hocket::add(of(Op::attn_core), {.bytes = cost.kv_bytes(pass),
                                  .operations = {.floats = cost.attention_operations(pass)}});
  const int64_t head_bytes = pass.outputs > 0 ? cost.part(WeightPart::head).bytes : 0;
  hocket::add(head,
              {.bytes = static_cast<double>(head_bytes), .operations = cost.head_operations(pass)});
}

void PassProbe::book(PassProfile::Stage& stage) {
  const TimePoint now = RealClock().now();
  stage.seconds += to_seconds(now - std::exchange(at_, now));
}

void PassProbe::after(int, Op op, const Half& half) {
  book(found_.profile.of(op));
  if (op != Op::dispatch_wait) return;
  const std::span<const int32_t> offsets = half.state.arrived.peek().offsets;
  for (size_t e = 1; e < offsets.size(); ++e)
    found_.experts_hit += offsets[e] > offsets[e - 1] ? 1 : 0;
}

PassProbe::Found PassProbe::end() {
  book(found_.profile.head);
  return std::exchange(found_, {});
}

std::string by_operation(const PassProfile& profile, int passes, const MachineSpeed& speed) {
  double all = 0;
  for_each_stage(profile, [&](std::string_view, const auto& stage) { all += stage.seconds; });
  std::string lines;
  for_each_stage(profile, [&](std::string_view name, const PassProfile::Stage& stage) {
    if (stage.seconds < 0.01 * all) return;
    lines += fmt::format("    {:<14} {:>9.0f} us {:>5.1f} %  [{:.2f} read, {:.2f} peak]\n", name,
                         stage.seconds / passes * 1e6, 100 * stage.seconds / all,
                         read_share(stage, speed), peak_share(stage, speed));
  });
  return lines;
}

nlohmann::ordered_json by_operation_json(const PassProfile& profile, int passes,
                                         const MachineSpeed& speed) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for_each_stage(profile, [&](std::string_view name, const PassProfile::Stage& stage) {
    if (stage.seconds > 0)
      all[std::string(name)] = {{"us_per_step", stage.seconds / passes * 1e6},
                                {"read_fraction", read_share(stage, speed)},
                                {"peak_fraction", peak_share(stage, speed)}};
  });
  return all;
}

}  // namespace hocket
