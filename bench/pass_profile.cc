#include "bench/pass_profile.h"

#include <fmt/core.h>

#include <utility>

namespace hocket {
namespace {

void add(PassProfile::OpWork& to, const PassProfile::OpWork& from) {
  to.seconds += from.seconds;
  to.bytes += from.bytes;
  to.operations += from.operations;
}

double read_share(const PassProfile::OpWork& stage, const MachineSpeed& speed) {
  return stage.bytes / stage.seconds / speed.read_bytes_per_s;
}
double peak_share(const PassProfile::OpWork& stage, const MachineSpeed& speed) {
  const auto& [floats, fp8, integers, probabilities] = stage.operations;
  return ((floats + fp8) / speed.operations_per_s + integers / speed.integer_operations_per_s) /
         stage.seconds;
}

template <class Visit>
void for_each_stage(const PassProfile& profile, Visit&& visit) {
  for (int op = 0; op < kNumOps; ++op)
    if (const auto& stage = profile.stages[static_cast<size_t>(op)]; stage.seconds > 0)
      visit(op_name(static_cast<Op>(op)), stage);
  if (profile.delta_net.seconds > 0) visit("delta_net", profile.delta_net);
  if (profile.delta_out.seconds > 0) visit("delta_out", profile.delta_out);
  visit("head", profile.head);
}

}  // namespace

void PassProfile::add(const PassProfile& other) {
  for (size_t op = 0; op < stages.size(); ++op) hocket::add(stages[op], other.stages[op]);
  hocket::add(delta_net, other.delta_net);
  hocket::add(delta_out, other.delta_out);
  hocket::add(head, other.head);
}

void PassProfile::add_work(const PassShape& pass, const ModelCost& cost, int experts_all) {
  const auto add_weights = [&](OpWork& stage, const StageSize& size, double share) {
    hocket::add(stage, {.bytes = share * size.bytes,
                        .operations = {.floats = pass.rows * size.of_row.floats,
                                       .fp8 = pass.rows * size.of_row.fp8,
                                       .integers = pass.rows * size.of_row.integers}});
  };
  for (int op = 0; op < kNumOps; ++op) {
    const bool some = static_cast<Op>(op) == Op::experts && experts_all > 0;
    add_weights(stages[static_cast<size_t>(op)], cost.stage(static_cast<Op>(op)),
                some ? pass.experts_hit / experts_all : 1);
  }
  // Layers with delta nets leave attn_core.
  const StageSize& nets = cost.attention(Op::attn_core, AttentionKind::linear);
  const Operations of_nets = cost.attention_operations(pass, AttentionKind::linear);
  const double states = cost.state_bytes(pass);
  Operations of_attention = cost.attention_operations(pass);
  of_attention.floats -= of_nets.floats + pass.rows * nets.of_row.floats;
  of_attention.fp8 -= pass.rows * nets.of_row.fp8;
  of_attention.integers -= pass.rows * nets.of_row.integers;
  hocket::add(of(Op::attn_core),
              {.bytes = cost.kv_bytes(pass) - states - nets.bytes, .operations = of_attention});
  hocket::add(delta_net, {.bytes = states, .operations = of_nets});
  add_weights(delta_out, nets, 1);
  const int64_t head_bytes = pass.outputs > 0 ? cost.part(WeightPart::head).bytes : 0;
  hocket::add(head,
              {.bytes = static_cast<double>(head_bytes), .operations = cost.head_operations(pass)});
}

void PassProbe::book(PassProfile::OpWork& stage) {
  const TimePoint now = RealClock().now();
  stage.seconds += to_seconds(now - std::exchange(at_, now));
}

void PassProbe::after(int layer, Op op, const Half& half) {
  PassProfile& profile = found_.profile;
  book(op == Op::attn_core && model_.is_linear(layer) ? profile.delta_out : profile.of(op));
  if (op != Op::dispatch_wait) return;
  const std::span<const int32_t> offsets = half.state.arrived.peek().offsets;
  for (size_t e = 1; e < offsets.size(); ++e)
    found_.experts_hit += offsets[e] > offsets[e - 1] ? 1 : 0;
}

PassProbe::PassRecord PassProbe::end() {
  book(found_.profile.head);
  return std::exchange(found_, {});
}

std::string by_operation(const PassProfile& profile, int passes, const MachineSpeed& speed) {
  double all = 0;
  for_each_stage(profile, [&](std::string_view, const auto& stage) { all += stage.seconds; });
  std::string lines;
  for_each_stage(profile, [&](std::string_view name, const PassProfile::OpWork& stage) {
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
  for_each_stage(profile, [&](std::string_view name, const PassProfile::OpWork& stage) {
    if (stage.seconds > 0)
      all[std::string(name)] = {{"us_per_step", stage.seconds / passes * 1e6},
                                {"read_fraction", read_share(stage, speed)},
                                {"peak_fraction", peak_share(stage, speed)}};
  });
  return all;
}

}  // namespace hocket
