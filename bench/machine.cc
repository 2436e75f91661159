#include "bench/machine.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/machine.h"
#include "bench/bench_error.h"
#include "bench/child_program.h"
#include "bench/peers_figures.h"

namespace hocket {
namespace {

using Object = nlohmann::json;
using Words = std::vector<std::string>;

struct Form {
  std::string_view title, flag;  // flag: the value of --quantization
};
constexpr std::array<Form, 3> kForms = {{{"bf16", "none"}, {"int8", "int8"}, {"int4", "int4"}}};

// Returns the lines of `text` that are objects with this key.
std::vector<Object> objects_with(std::string_view text, const char* key) {
  std::vector<Object> objects;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    Object object = Object::parse(line, nullptr, false);
    if (object.is_object() && object.contains(key)) objects.push_back(std::move(object));
  }
  return objects;
}

double figure(const Object& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
std::string word(const Object& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string row_of(const Words& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}
std::string head_of(const Words& columns) {
  return row_of(columns) + row_of(Words(columns.size(), "---"));
}

// Returns a rate as 1,234, or with a decimal below 100.
std::string rate_text(double rate) {
  if (rate < 100) return fmt::format("{:.1f}", rate);
  std::string digits = fmt::format("{:.0f}", rate);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

Error nothing_from(const char* bench) {
  return error(ErrorCode::bad_value, "hocket bench {} printed no figures", bench);
}

// Runs one of this program's benches and returns what it printed.
Result<std::string> run_bench(Words words) {
  HOCKET_TRY(std::string program, own_path());
  Words command = {std::move(program), "bench"};
  command.insert(command.end(), words.begin(), words.end());
  command.push_back("--json");
  HOCKET_TRY(ProgramRun ran, run_program(command));
  return std::move(ran.out);
}

void print_section(const Words& words, const std::string& table) {
  fmt::print("\n    ./hocket bench {}\n\n{}", fmt::join(words, " "), table);
  std::fflush(stdout);
}

// Runs a bench and prints its table.
Result<void> run_section(const Words& words, Result<std::string> (*table_of)(std::string_view)) {
  HOCKET_TRY(const std::string text, run_bench(words));
  HOCKET_TRY(const std::string table, table_of(text));
  print_section(words, table);
  return {};
}

Words passes_words(const BenchMachineOptions& o, std::string_view form) {
  Words words = {"one-batch",
                 "--shape",
                 o.shape,
                 "--quantization",
                 std::string(form),
                 "--rounds",
                 fmt::format("{}", o.rounds)};
  if (o.quick)
    for (const char* word : {"--input-len", "64", "--batch", "1", "--output-len", "4"})
      words.emplace_back(word);
  return words;
}

Result<void> run_passes(const BenchMachineOptions& o) {
  std::array<std::string, kForms.size()> texts;
  for (size_t i = 0; i < kForms.size(); ++i) {
    HOCKET_TRY(texts[i], run_bench(passes_words(o, kForms[i].flag)));
  }
  HOCKET_TRY(const std::string table, passes_table(texts));
  Words words = passes_words(o, kForms[0].flag);
  words.push_back(fmt::format(" # once each with --quantization {}, {}, {}", kForms[0].flag,
                              kForms[1].flag, kForms[2].flag));
  print_section(words, table);
  return {};
}

Result<void> run(const BenchMachineOptions& o) {
  fmt::print("- Machine: {}.\n", describe(inspect_machine()));
  HOCKET_TRY_VOID(run_section({"kernels", "--quick"}, kernels_table));
  HOCKET_TRY_VOID(run_passes(o));
  HOCKET_TRY_VOID(run_section({"scheduler", "--quick"}, scheduler_table));
  if (!o.quick) HOCKET_TRY_VOID(run_section({"overlap", "--quick"}, overlap_table));
  return {};
}

}  // namespace

Result<std::string> kernels_table(std::string_view text) {
  const std::vector<Object> limits = objects_with(text, "read_gb_s");
  const std::vector<Object> cases = objects_with(text, "case");
  if (limits.empty() || cases.empty()) return fail(nothing_from("kernels"));
  std::string table = fmt::format(
      "Limits ({}, {:.0f} threads): read {:.1f} GB/s, {} {} GFLOP/s, int8 {} Gop/s.\n\n",
      word(limits[0], "isa"), figure(limits[0], "threads"), figure(limits[0], "read_gb_s"),
      word(limits[0], "peak"), rate_text(figure(limits[0], "peak_gflop_s")),
      rate_text(figure(limits[0], "int8_gop_s")));
  table += head_of(
      {"Case", "Time (p10-p90)", "Speed against ref", "against bf16", "Share of the limit"});
  for (const Object& c : cases) {
    const double bf16 = figure(c, "bf16_ratio");
    table += row_of({word(c, "case"),
                     fmt::format("{} us ({}-{})", rate_text(figure(c, "us")),
                                 rate_text(figure(c, "us_p10")), rate_text(figure(c, "us_p90"))),
                     fmt::format("{:.1f} x", figure(c, "ref_ratio")),
                     bf16 > 0 ? fmt::format("{:.2f} x", bf16) : "",
                     fmt::format("{:.2f} of {}", figure(c, "fraction"), word(c, "limit"))});
  }
  return table;
}

Result<std::string> passes_table(const std::array<std::string, 3>& forms) {
  Words columns = {"Pass"};
  std::map<std::string, Words> rows;  // by pass: its name, and a cell for each form
  Words passes;                       // in the order in which they first appear
  for (size_t i = 0; i < forms.size(); ++i) {
    HOCKET_TRY(const OwnRun run, parse_one_batch(forms[i]));
    columns.push_back(fmt::format("{} (read {:.1f} GB/s)", kForms[i].title, run.read_gb_s));
    for (const Object& c : objects_with(forms[i], "tokens_per_s")) {
      const bool decodes = c.contains("batch");
      const int size = static_cast<int>(figure(c, decodes ? "batch" : "input_len"));
      const std::string name = name_of({decodes ? Pass::Kind::decode : Pass::Kind::prefill, size});
      Words& row = rows[name];
      if (row.empty()) {
        passes.push_back(name);
        row.resize(forms.size() + 1);
        row[0] = name;
      }
      row[i + 1] = fmt::format("{} ({}-{}) [{:.2f}]", rate_text(figure(c, "tokens_per_s")),
                               rate_text(figure(c, "tokens_per_s_min")),
                               rate_text(figure(c, "tokens_per_s_max")),
                               std::max(figure(c, "read_fraction"), figure(c, "peak_fraction")));
    }
  }
  std::string table = head_of(columns);
  for (const std::string& pass : passes) table += row_of(rows[pass]);
  return table;
}

Result<std::string> scheduler_table(std::string_view text) {
  const std::vector<Object> cases = objects_with(text, "us_p50");
  if (cases.empty()) return fail(nothing_from("scheduler"));
  std::string table = head_of({"Case", "p50 (p99)", "Share of the goal"});
  for (const Object& c : cases) {
    const double ratio = figure(c, "ratio");
    table += row_of({word(c, "name"),
                     fmt::format("{:.2f} us ({:.2f})", figure(c, "us_p50"), figure(c, "us_p99")),
                     ratio > 0 ? fmt::format("{:.2f}", ratio) : ""});
  }
  return table;
}

Result<std::string> overlap_table(std::string_view text) {
  std::string table;
  for (const Object& c : objects_with(text, "order")) {
    if (word(c, "order") != "auto" || word(c, "clock") != "real") continue;
    table += row_of({fmt::format("{} {:.0f} rows, {:g} Gbit/s, {:.0f} ranks", word(c, "phase"),
                                 figure(c, "rows"), figure(c, "link_gbit"), figure(c, "ranks")),
                     word(c, "plan"), fmt::format("{} us", rate_text(figure(c, "step_us"))),
                     fmt::format("{:.2f}", figure(c, "eta")),
                     fmt::format("{:.3f}", figure(c, "auto_over_serial")),
                     fmt::format("{:.3f}", figure(c, "auto_over_best"))});
  }
  if (table.empty()) return fail(nothing_from("overlap"));
  return head_of({"Step", "Chosen plan", "Time", "Overlap efficiency (eta)", "Speed against serial",
                  "Speed against the fastest order"}) +
         table;
}

int bench_machine(const BenchMachineOptions& options) {
  const Result<void> done = run(options);
  return done ? 0 : end_with(done.error());
}

}  // namespace hocket
