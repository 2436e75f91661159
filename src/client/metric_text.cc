#include "client/metric_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

namespace hocket {
namespace {

constexpr std::string_view kPrefix = "hocket:";

std::optional<double> number_of(std::string_view text) {
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN" || text == "Nan") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads `name="value",...}` and removes it from `text`. Returns false if it is malformed.
bool read_labels(std::string_view& text, std::map<std::string, std::string>& labels) {
  while (!text.starts_with('}')) {
    const size_t equals = text.find("=\"");
    if (equals == text.npos) return false;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 2);
    std::string value;
    for (; !text.starts_with('"'); text.remove_prefix(1)) {
      if (text.empty()) return false;
      if (text.front() == '\\') {
        text.remove_prefix(1);
        if (text.empty()) return false;
        value += text.front() == 'n' ? '\n' : text.front();
      } else {
        value += text.front();
      }
    }
    text.remove_prefix(1);
    labels[name] = std::move(value);
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  text.remove_prefix(1);
  return true;
}

std::optional<MetricSample> read_sample(std::string_view line) {
  const size_t end = line.find_first_of("{ ");
  if (end == line.npos || end == 0) return std::nullopt;
  MetricSample sample{.name = std::string(line.substr(0, end))};
  line.remove_prefix(end);
  if (line.starts_with('{')) {
    line.remove_prefix(1);
    if (!read_labels(line, sample.labels)) return std::nullopt;
  }
  if (!line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  const auto value = number_of(line.substr(0, line.find(' ')));  // a timestamp may follow
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

}  // namespace

Result<std::vector<MetricSample>> parse_metrics(std::string_view text) {
  std::vector<MetricSample> samples;
  for (int row = 1; !text.empty(); ++row) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    auto sample = read_sample(line);
    if (!sample)
      return fail(ErrorCode::bad_value, "line {} of /metrics is no sample: {}", row,
                  line.substr(0, 120));
    samples.push_back(*std::move(sample));
  }
  return samples;
}

std::vector<const MetricSample*> MetricView::all(std::string_view name) const {
  std::vector<const MetricSample*> found;
  for (const MetricSample& sample : samples_)
    if (sample.name.starts_with(kPrefix) &&
        std::string_view(sample.name).substr(kPrefix.size()) == name)
      found.push_back(&sample);
  return found;
}

double MetricView::sum(std::string_view name) const {
  double total = 0;
  for (const MetricSample* sample : all(name)) total += sample->value;
  return total;
}

double MetricView::sum(std::string_view name, const std::string& label,
                       std::string_view value) const {
  double total = 0;
  for (const MetricSample* sample : all(name))
    if (sample->label(label) == value) total += sample->value;
  return total;
}

double MetricView::largest(std::string_view name) const {
  double most = 0;
  for (const MetricSample* sample : all(name)) most = std::max(most, sample->value);
  return most;
}

std::vector<std::string> MetricView::values(std::string_view name, const std::string& label) const {
  std::set<std::string> found;
  for (const MetricSample* sample : all(name)) found.insert(sample->label(label));
  std::vector<std::string> sorted(found.begin(), found.end());
  // Labels of ranks are numbers, so shorter texts come first.
  std::ranges::stable_sort(sorted, {}, [](const std::string& text) { return text.size(); });
  return sorted;
}

double MetricView::quantile(std::string_view name, double q, const MetricView& before) const {
  const std::string bucket = std::string(name) + "_bucket";
  std::map<double, double> counts;  // upper bound: number of observations up to it
  for (const MetricSample* sample : all(bucket))
    counts[number_of(sample->label("le")).value_or(0)] += sample->value;
  for (const MetricSample* sample : before.all(bucket))
    counts[number_of(sample->label("le")).value_or(0)] -= sample->value;
  if (counts.empty() || counts.rbegin()->second <= 0) return 0;
  const double wanted = q * counts.rbegin()->second;
  double bound = 0, below = 0;
  for (const auto& [le, count] : counts) {
    if (count >= wanted) {
      if (std::isinf(le)) return bound;  // the last bucket has no upper bound
      return count > below ? bound + (le - bound) * (wanted - below) / (count - below) : le;
    }
    bound = le;
    below = count;
  }
  return bound;
}

}  // namespace hocket
