// Repeats the metrics under the names of other servers, so that dashboards made for those work.
// Thread: any.
#pragma once

#include <prometheus/metric_family.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

struct MetricCompat {
  bool sglang = false, vllm = false;
};
// Parses "", "sglang", "vllm" or both with a comma between. Errors: bad_value.
Result<MetricCompat> parse_metric_compat(std::string_view names);

// Adds an alias of each metric that the other server has too. Values and buckets stay the same.
// Labels are those of the other server, as far as they are known: for vLLM `model_name` and
// `engine`, the rank.
void add_aliases(std::vector<prometheus::MetricFamily>& families, MetricCompat compat);

}  // namespace hocket
