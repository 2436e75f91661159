// Metrics at one moment, in Prometheus' form.   Thread: one.
#pragma once

#include <prometheus/labels.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/named_counter.h"

namespace hocket {

// Returns part / whole; 0 if there is none.
inline double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// All metrics carry the labels; names are given without their prefix. It needs no registry.
class MetricSnapshot {
 public:
  using Label = prometheus::ClientMetric::Label;
  explicit MetricSnapshot(const prometheus::Labels& labels) {
    for (const auto& [name, value] : labels) labels_.push_back({name, value});
  }

  void gauge(const char* name, const char* help, double value) {
    add(name, help, prometheus::MetricType::Gauge).gauge.value = value;
  }
  void gauge(const char* name, const char* help, double value, Label label) {
    prometheus::ClientMetric& metric = add(name, help, prometheus::MetricType::Gauge);
    metric.gauge.value = value;
    metric.label.push_back(std::move(label));
  }
  void counter(const char* name, const char* help, uint64_t value) {
    counter(name, help, static_cast<double>(value));
  }
  void counter(const char* name, const char* help, double value) {
    add(name, help, prometheus::MetricType::Counter).counter.value = value;
  }
  void counter(const char* name, const char* help, uint64_t value, Label label) {
    counter(name, help, static_cast<double>(value), std::move(label));
  }
  void counter(const char* name, const char* help, double value, Label label) {
    prometheus::ClientMetric& metric = add(name, help, prometheus::MetricType::Counter);
    metric.counter.value = value;
    metric.label.push_back(std::move(label));
  }
  template <class Counts, size_t num_rows>
  void counters(const std::array<NamedCounter<Counts>, num_rows>& table, const Counts& counts) {
    static_assert(sizeof(Counts) == num_rows * sizeof(uint64_t), "each member needs one row");
    for (const NamedCounter<Counts>& row : table) {
      const auto value = static_cast<double>(counts.*row.value);
      if (row.label == nullptr)
        counter(row.name, row.help, value);
      else
        counter(row.name, row.help, value, Label{row.label, row.label_value});
    }
  }
  void move_to(std::vector<prometheus::MetricFamily>& families) {
    std::ranges::move(families_, std::back_inserter(families));
  }
  // Appends the metrics of another rank, which has the same families.
  void append(MetricSnapshot&& other) {
    for (size_t i = 0; i < families_.size(); ++i)
      std::ranges::move(other.families_[i].metric, std::back_inserter(families_[i].metric));
  }

 private:
  // Adds a metric. Metrics of one family must be added one after the other.
  prometheus::ClientMetric& add(const char* name, const char* help, prometheus::MetricType type) {
    std::string full = std::string("hocket:") + name;
    if (families_.empty() || families_.back().name != full)
      families_.push_back({std::move(full), help, type, {}});
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = labels_;
    return metric;
  }

  std::vector<Label> labels_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace hocket
