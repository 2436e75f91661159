#include "bench/peers_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/quantile.h"

namespace hocket {
namespace {

constexpr Pass prefill_of(int tokens) {
  return {Pass::Kind::prefill, tokens};
}
constexpr Pass decode_of(int sequences) {
  return {Pass::Kind::decode, sequences};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

double number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// Returns the numbers of "|   128 |     32 |   16 | ...", and an empty list for any other line.
std::vector<double> table_row(std::string_view line) {
  std::vector<double> row;
  if (!line.starts_with('|')) return row;
  for (size_t at = 1; at < line.size();) {
    size_t end = line.find('|', at);
    if (end == std::string_view::npos) break;
    std::string_view cell = line.substr(at, end - at);
    cell.remove_prefix(std::min(cell.find_first_not_of(' '), cell.size()));
    double value = 0;
    const auto [stop, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (code != std::errc()) return {};
    row.push_back(value);
    at = end + 1;
  }
  return row;
}

EngineSide side_of(const std::vector<double>& rates, const std::vector<double>& roof) {
  std::vector<double> fractions;
  for (size_t i = 0; i < rates.size(); ++i)
    fractions.push_back(roof[i] > 0 ? rates[i] / roof[i] : 0);
  return {spread_of(rates), quantile(fractions, 0.5)};
}

}  // namespace

std::string name_of(Pass pass) {
  return pass.kind == Pass::Kind::prefill ? fmt::format("prefill {}", pass.size)
                                          : fmt::format("decode b={}", pass.size);
}

Result<PeerRun> parse_llama_bench(std::string_view text) {
  const size_t begin = text.starts_with('[') ? 0 : text.find("\n[");
  const size_t end = text.rfind(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin)
    return fail(ErrorCode::bad_value, "llama-bench printed no JSON");
  const nlohmann::json tests =
      nlohmann::json::parse(text.substr(begin, end + 1 - begin), nullptr, false);
  if (!tests.is_array() || tests.empty())
    return fail(ErrorCode::bad_value, "llama-bench printed no list of tests");
  PeerRun run;
  for (const nlohmann::json& test : tests) {
    std::vector<double> samples;
    if (const auto found = test.find("samples_ts"); found != test.end() && found->is_array())
      for (const nlohmann::json& sample : *found)
        if (sample.is_number()) samples.push_back(sample.get<double>());
    if (samples.empty())
      return fail(ErrorCode::bad_value, "a test of llama-bench has no samples_ts");
    if (samples.size() > 1) samples.erase(samples.begin());
    run.build =
        fmt::format("{} ({})", text_of(test, "build_commit"), text_of(test, "build_number"));
    const Pass pass = number_of(test, "n_gen") > 0
                          ? decode_of(1)
                          : prefill_of(static_cast<int>(number_of(test, "n_prompt")));
    run.tokens_per_s[pass] = quantile(samples, 0.5);
  }
  return run;
}

Result<PeerRun> parse_batched_bench(std::string_view text) {
  // Columns of the table: PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S.
  constexpr size_t kBatch = 2, kRate = 7, kColumns = 10;
  PeerRun run;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with('{')) {
      const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
      if (object.is_object() && object.contains("speed_tg"))
        run.tokens_per_s[decode_of(static_cast<int>(number_of(object, "pl")))] =
            number_of(object, "speed_tg");
    } else if (const auto row = table_row(line); row.size() == kColumns) {
      run.tokens_per_s[decode_of(static_cast<int>(row[kBatch]))] = row[kRate];
    }
  }
  if (run.tokens_per_s.empty())
    return fail(ErrorCode::bad_value, "llama-batched-bench printed neither JSON lines nor a table");
  return run;
}

Result<OwnRun> parse_one_batch(std::string_view text) {
  OwnRun run;
  for (const std::string_view line : lines_of(text)) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    if (object.contains("read_gb_s")) {
      run.cpu = text_of(object, "cpu");
      run.isa = text_of(object, "isa");
      run.peak_name = text_of(object, "peak");
      run.threads = static_cast<int>(number_of(object, "threads"));
      run.weight_bytes = number_of(object, "weight_bytes");
      run.peak_resident_bytes = static_cast<int64_t>(number_of(object, "peak_resident_bytes"));
      run.read_gb_s = number_of(object, "read_gb_s");
      run.peak_gflop_s = number_of(object, "peak_gflop_s");
      run.integer_gop_s = number_of(object, "integer_gop_s");
    } else if (object.contains("tokens_per_s")) {
      const Pass pass = object.contains("batch")
                            ? decode_of(static_cast<int>(number_of(object, "batch")))
                            : prefill_of(static_cast<int>(number_of(object, "input_len")));
      const double rate = number_of(object, "tokens_per_s");
      const double fraction =
          std::max(number_of(object, "read_fraction"), number_of(object, "peak_fraction"));
      run.tokens_per_s[pass] = rate;
      run.roof[pass] = fraction > 0 ? rate / fraction : 0;
    }
  }
  if (run.threads == 0 || run.tokens_per_s.empty())
    return fail(ErrorCode::bad_value, "bench one-batch printed no figures");
  return run;
}

Spread spread_of(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0), quantile(values, 1)};
}

Comparison compare(const std::vector<double>& own, const std::vector<double>& roof,
                   const std::vector<std::vector<double>>& peers) {
  HOCKET_CHECK(own.size() == roof.size());
  Comparison c{.own = side_of(own, roof), .peers = {}, .better = -1, .ratio = {}};
  for (const std::vector<double>& peer : peers) {
    HOCKET_CHECK((peer.empty() || peer.size() == own.size()));
    c.peers.push_back(peer.empty() ? std::nullopt : std::optional(side_of(peer, roof)));
    const bool best =
        c.peers.back() && (c.better < 0 || c.peers.back()->tokens_per_s.median >
                                               c.peers[c.better]->tokens_per_s.median);
    if (best) c.better = static_cast<int>(c.peers.size()) - 1;
  }
  if (c.better < 0) return c;
  std::vector<double> ratios;
  for (size_t i = 0; i < own.size(); ++i) {
    const double theirs = peers[c.better][i];
    ratios.push_back(theirs > 0 ? own[i] / theirs : 0);
  }
  c.ratio = spread_of(ratios);
  return c;
}

}  // namespace hocket
