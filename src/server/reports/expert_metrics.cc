#include "server/reports/expert_metrics.h"

namespace hocket {

void add_experts(MetricSnapshot& out, const ExpertBalance& experts) {
  out.gauge("expert_balancedness",
            "Mean / largest load of the ranks' experts, mean of the record's layers; 0: no record",
            experts.balancedness);
  for (size_t rank = 0; rank < experts.rank_tokens.size(); ++rank)
    out.counter("expert_tokens_total", "Times an expert of this rank was chosen while recording",
                experts.rank_tokens[rank], {"expert_rank", std::to_string(rank)});
}

void add_moves(MetricSnapshot& out, const ExpertMoveStats& s) {
  const char* checks_help = "Checks whether experts should move";
  out.counter("expert_rebalance_checks_total", checks_help, s.checks_total);
  out.counter("expert_looks_total", checks_help, s.checks_total);  // its name before
  out.counter("expert_rebalances_total", "Checks after which experts moved", s.rebalances_total);
  out.counter("expert_layers_moved_total", "Layers whose experts got other places", s.layers_total);
  out.counter("expert_moves_total", "Experts that the ranks of this process loaded to move them",
              s.moves_total);
  out.counter("expert_moved_bytes_total", "Bytes of the experts loaded to move them",
              s.bytes_total);
  out.counter("expert_move_seconds_total",
              "Seconds of one core spent on loading experts to move them", s.load_seconds_total);
  out.counter("expert_move_failures_total", "Rebalances that were given up", s.failures_total);
  const auto of_check = [&](const char* when, double balancedness) {
    out.gauge("expert_work_balancedness",
              "Mean / largest work of ranks, mean of the layers, before and after the last "
              "check",
              balancedness, {"when", when});
  };
  of_check("before", s.balancedness_before);
  of_check("after", s.balancedness_after);
}

}  // namespace hocket
