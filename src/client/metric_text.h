// Parses the text of /metrics: samples by name and labels, and differences between two moments.
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

// Parses Prometheus' text format 0.0.4. Errors: bad_value, with the line.
Result<std::vector<MetricSample>> parse_metrics(std::string_view text);

// The samples of one moment. Names are given without the prefix "hocket:".
class MetricView {
 public:
  explicit MetricView(std::vector<MetricSample> samples) : samples_(std::move(samples)) {}

  // Both return the sum of all samples of that name, or of those whose label has `value`; 0 if
  // there are none.
  double sum(std::string_view name) const;
  double sum(std::string_view name, const std::string& label, std::string_view value) const;
  double largest(std::string_view name) const;
  // Returns the distinct values of a label, shorter ones first.
  std::vector<std::string> values(std::string_view name, const std::string& label) const;
  // Returns the value below which a share q of a histogram's observations since `before` lies, all
  // series together, interpolated in its bucket; 0 if there are no observations.
  double quantile(std::string_view name, double q, const MetricView& before) const;

 private:
  std::vector<const MetricSample*> all(std::string_view name) const;

  std::vector<MetricSample> samples_;
};

}  // namespace hocket
