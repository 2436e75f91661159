#include "bench/compare_builds.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "bench/bench_error.h"
#include "bench/child_program.h"
#include "bench/peers_figures.h"

namespace hocket {
namespace {

Result<Rates> run_build(const std::string& program, const std::string& form,
                        const CompareBuildsOptions& o) {
  const std::vector<std::string> command = {program,
                                            "bench",
                                            "one-batch",
                                            "--json",
                                            "--rounds=1",
                                            "--shape=" + o.shape,
                                            "--quantization=" + form,
                                            "--input-len",
                                            fmt::format("{}", fmt::join(o.input_lens, ",")),
                                            "--batch",
                                            fmt::format("{}", fmt::join(o.batches, ",")),
                                            fmt::format("--output-len={}", o.output_len)};
  HOCKET_TRY(const ProgramRun ran, run_program(command));
  HOCKET_TRY(OwnRun figures, parse_one_batch(ran.out));
  return std::move(figures.tokens_per_s);
}

void print(const std::string& form, Pass pass, const Comparison& c, bool json) {
  const Spread& after = c.own.tokens_per_s;
  const Spread& before = c.peers[0]->tokens_per_s;
  if (json) {
    const nlohmann::ordered_json line = {{"quantization", form},
                                         {"case", name_of(pass)},
                                         {"old_tokens_per_s", before.median},
                                         {"new_tokens_per_s", after.median},
                                         {"ratio", c.ratio.median},
                                         {"ratio_min", c.ratio.low},
                                         {"ratio_max", c.ratio.high}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print(
        "{:<4} {:<11} | old {:.1f} ({:.1f}-{:.1f}) | new {:.1f} ({:.1f}-{:.1f}) tok/s | "
        "new/old {:.3f} ({:.3f}-{:.3f})\n",
        form == "none" ? "bf16" : form, name_of(pass), before.median, before.low, before.high,
        after.median, after.low, after.high, c.ratio.median, c.ratio.low, c.ratio.high);
  }
  std::fflush(stdout);
}

// Returns true if no pass of this form is slower than o.min_ratio allows.
Result<bool> compare_form(const std::string& form, const CompareBuildsOptions& o) {
  std::array<Rounds, 2> sides;  // before, after
  for (int round = 0; round < o.rounds; ++round)
    for (int turn = 0; turn < 2; ++turn) {
      const int side = (round + turn) % 2;
      HOCKET_TRY(const Rates rates, run_build(side == 0 ? o.before : o.after, form, o));
      for (const auto& [pass, rate] : rates) sides[side][pass].push_back(rate);
    }
  bool good = true;
  for (const auto& [pass, after] : sides[1]) {
    const std::vector<double> no_roof(after.size(), 0);
    const Comparison c = compare(after, no_roof, {sides[0].at(pass)});
    print(form, pass, c, o.json);
    good = good && c.ratio.median >= o.min_ratio;
  }
  return good;
}

Result<bool> run(CompareBuildsOptions o) {
  if (o.before.empty())
    return fail(error(ErrorCode::usage, "--compare names no program to compare with")
                    .with_fix("hocket bench --compare OLD [NEW]"));
  HOCKET_TRY_VOID(check_number("rounds", o.rounds, {1, 1e6}));
  if (o.after.empty()) {
    HOCKET_TRY(o.after, own_path());
  }
  bool good = true;
  for (const std::string& form : o.forms) {
    HOCKET_TRY(const bool this_form, compare_form(form, o));
    good = good && this_form;
  }
  return good;
}

}  // namespace

int compare_builds(const CompareBuildsOptions& options) {
  const Result<bool> good = run(options);
  if (!good) return end_with(good.error());
  if (!*good)
    fmt::print(stderr, "a pass is slower than {} of what it was (--least-ratio)\n",
               options.min_ratio);
  return *good ? 0 : 1;
}

}  // namespace hocket
