// Metrics at one moment, in Prometheus' form.   Thread: one.
#pragma once

#include <fmt/format.h>
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
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

  // Returns the help of a metric that is also added under the name that it had before.
  static std::string old_help(const char* new_name, const char* help) {
    return fmt::format("Old name of {}, which the next version lacks. {}", new_name, help);
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
    for (const NamedCounter<Counts>& row : table)
      add_named(
          row, counts,
          row.label == nullptr ? std::nullopt : std::optional(Label{row.label, row.label_value}));
  }
  // Adds the counts of several things, each by a value of the label. counts_of(i) returns those of
  // the i-th. No row may have an old name, whose metrics would stand between those of the new one.
  template <class Counts, size_t num_rows, class CountsOf>
  void counters_by(const char* label, std::span<const std::string_view> values,
                   const std::array<NamedCounter<Counts>, num_rows>& table,
                   const CountsOf& counts_of) {
    for (const NamedCounter<Counts>& row : table) {
      HOCKET_CHECK(row.old_name == nullptr);
      for (size_t i = 0; i < values.size(); ++i)
        add_named<Counts>(row, counts_of(i), Label{label, std::string(values[i])});
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
  // Adds the counter of a row, and the same under its old name.
  template <class Counts>
  void add_named(const NamedCounter<Counts>& row, const Counts& counts,
                 const std::optional<Label>& label) {
    if (row.name == nullptr) return;
    const double value =
        std::visit([&](auto member) { return static_cast<double>(counts.*member); }, row.value);
    const auto add_as = [&](const char* name, const char* help) {
      if (label)
        counter(name, help, value, *label);
      else
        counter(name, help, value);
    };
    add_as(row.name, row.help);
    if (row.old_name == nullptr) return;
    add_as(row.old_name, old_help(row.name, row.help).c_str());
  }
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
