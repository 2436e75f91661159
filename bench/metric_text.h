// What /metrics said, read back: samples by name and labels, and what lies between two moments.
// Thread: any one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hocket {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;

  std::string label(const std::string& key) const {
    const auto found = labels.find(key);
    return found == labels.end() ? "" : found->second;
  }
};

// Source: Prometheus' text format 0.0.4. Errors: bad_value, with the line.
Result<std::vector<MetricSample>> parse_metrics(std::string_view text);

// Samples of one moment.
class MetricView {
 public:
  explicit MetricView(std::vector<MetricSample> samples) : samples_(std::move(samples)) {}

  // A name is given without its prefix. The sum of all samples of that name, of those that carry
  // the label where one is asked for; 0 where there are none.
  double sum(std::string_view name) const;
  double sum(std::string_view name, const std::string& label, std::string_view value) const;
  double largest(std::string_view name) const;
  // Values of a label, in order.
  std::vector<std::string> values(std::string_view name, const std::string& label) const;
  // Of a histogram's observations since `before`, all series together: the value below which a
  // share q lies, interpolated in its bucket; 0 without any.
  double quantile(std::string_view name, double q, const MetricView& before) const;

 private:
  std::vector<const MetricSample*> all(std::string_view name) const;

  std::vector<MetricSample> samples_;
};

}  // namespace hocket
