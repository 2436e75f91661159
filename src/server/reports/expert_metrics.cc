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
  out.counters<ExpertMoveCounters>(kExpertMoveCounters, s);
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
