#include "bench/speculation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/mix.h"
#include "base/quantile.h"
#include "bench/ending.h"
#include "engine/engine.h"
#include "policy/speculation/drafter.h"

namespace hocket {
namespace {

constexpr size_t kSpeculationOutbox = 1 << 16;

// The right tokens of every answer, and the drafts that the bench wants.
struct Imposed {
  int most = 0;     // drafts of an answer; 0: none are made
  int percent = 0;  // chance that a draft holds
  int vocab_size = 0;
  std::unordered_map<int, std::vector<TokenId>> texts;  // prompt and answer, by first token

  // Returns the draft for a position; by this chance it is the right token, the same each time.
  TokenId draft(const std::vector<TokenId>& text, size_t position) const {
    const auto key = static_cast<uint64_t>(value(text[0])) << 32 | position;
    if (mix64(key * kMixStep) % 100 < static_cast<uint64_t>(percent)) return text[position];
    return TokenId{(value(text[position]) + 1) % vocab_size};
  }
};

class ImposedDrafter final : public Drafter {
 public:
  // `imposed` outlives it.
  ImposedDrafter(const Imposed& imposed, int num_seats)
      : imposed_(imposed), drafts_(static_cast<size_t>(num_seats)) {}

  void begin(int /*seat*/, int /*most_len*/) override {}
  void end(int /*seat*/) override {}
  void draft(std::span<DraftAsk> asks) override {
    for (DraftAsk& ask : asks) {
      ask.drafts = {};
      const auto text = imposed_.texts.find(value(ask.tokens[0]));
      if (text == imposed_.texts.end()) continue;
      auto& drafts = drafts_[static_cast<size_t>(ask.seat)];
      const size_t begin = ask.tokens.size();
      const size_t left = text->second.size() - std::min(text->second.size(), begin);
      const size_t num = std::min(left, static_cast<size_t>(std::min(ask.most, imposed_.most)));
      for (size_t i = 0; i < num; ++i) drafts[i] = imposed_.draft(text->second, begin + i);
      ask.drafts = std::span(drafts).first(num);
    }
  }
  bool is_free() const override { return true; }

 private:
  const Imposed& imposed_;
  std::vector<std::array<TokenId, kMostDrafts>> drafts_;
};

// An engine whose drafts the bench imposes.
struct DraftRig {
  Imposed imposed;
  std::unique_ptr<Engine> engine;
};

// drafts: the fixed number; 0: the gate chooses.
Result<std::unique_ptr<DraftRig>> make_rig(ServerSettings settings, int drafts) {
  settings.speculation.algorithm = "NGRAM";
  settings.speculation.num_steps = drafts;
  auto rig = std::make_unique<DraftRig>();
  const Imposed& imposed = rig->imposed;
  HOCKET_TRY(rig->engine, Engine::create({.settings = std::move(settings),
                                          .drafter = [&imposed](int /*rank*/, int num_seats) {
                                            return std::make_unique<ImposedDrafter>(imposed,
                                                                                    num_seats);
                                          }}));
  rig->imposed.vocab_size = rig->engine->info().model.vocab_size;
  return rig;
}

struct SpeculationPoint {
  int answers = 1, context = 512, percent = 0;
};

RequestInput input_of(const BenchSpeculationOptions& options, const SpeculationPoint& point,
                      int index, int vocab_size) {
  RequestInput input{.id = Engine::next_request_id()};
  std::mt19937 random(static_cast<uint32_t>(index));
  input.prompt.push_back(TokenId{index});  // identifies the text
  while (std::ssize(input.prompt) < point.context)
    input.prompt.push_back(TokenId{static_cast<int>(random() % static_cast<uint32_t>(vocab_size))});
  input.sampling.max_new_tokens = options.output_len;
  input.sampling.ignore_eos = true;
  input.sampling.temperature = 1;
  input.sampling.seed = static_cast<uint64_t>(index);
  return input;
}

struct SpeculationRun {
  double tokens_per_s = 0;
  bool is_equal = true;  // all tokens are those of the first run
};

// Answers all prompts at once. The time counts from when all have a token until the first has all,
// so that the same number of answers runs throughout. A text that is not known yet is remembered.
Result<SpeculationRun> run_point(const BenchSpeculationOptions& options,
                                 const SpeculationPoint& point, DraftRig& rig) {
  Outbox outbox(kSpeculationOutbox);
  std::unordered_map<RequestId, std::vector<TokenId>> texts;
  for (int i = 0; i < point.answers; ++i) {
    RequestInput input = input_of(options, point, i, rig.imposed.vocab_size);
    texts[input.id] = input.prompt;
    HOCKET_TRY_VOID(rig.engine->submit(std::move(input)));
  }
  int num_begun = 0, num_running = point.answers;
  int64_t num_tokens = 0;
  TimePoint begin{};
  SpeculationRun run;
  while (num_running > 0) {
    const bool counts = num_begun == point.answers && num_running == point.answers;
    if (counts && begin == TimePoint{}) begin = RealClock().now();
    rig.engine->step(outbox);
    while (auto output = outbox.pop()) {
      std::vector<TokenId>& text = texts[output->id];
      if (value(output->token) >= 0) {
        num_begun += std::ssize(text) == point.context ? 1 : 0;
        num_tokens += counts ? 1 : 0;
        text.push_back(output->token);
      }
      if (output->summary == nullptr) continue;
      --num_running;
      if (output->summary->finish == FinishReason::error)
        return std::unexpected(std::move(output->summary->error));
    }
    if (counts && num_running < point.answers)
      run.tokens_per_s = static_cast<double>(num_tokens) / to_seconds(RealClock().now() - begin);
  }
  for (auto& [id, text] : texts) {
    const auto [known, is_new] = rig.imposed.texts.try_emplace(value(text[0]), text);
    run.is_equal &= known->second == text;
  }
  return run;
}

// One way to draft: a fixed number, or as the gate chooses.
struct SpeculationWay {
  std::string name;
  DraftRig* rig = nullptr;
  int most = 0;                     // drafts of an answer
  std::vector<double> ratios = {};  // to the run without drafts of the same rig and round
};

struct SpeculationResult {
  std::vector<double> off;  // tokens/s
  std::vector<SpeculationWay> ways;
  bool is_equal = true;
};

Result<SpeculationResult> measure_point(const BenchSpeculationOptions& options,
                                        const SpeculationPoint& point, DraftRig& fixed,
                                        DraftRig& gated) {
  SpeculationResult result;
  for (const int drafts : options.drafts)
    result.ways.push_back({fmt::format("{} drafts", drafts), &fixed, drafts});
  result.ways.push_back({"auto", &gated, kMostDrafts});
  for (DraftRig* rig : {&fixed, &gated}) rig->imposed.percent = point.percent;
  for (int round = 0; round <= options.rounds; ++round) {
    double off = 0;
    const DraftRig* rig = nullptr;
    for (SpeculationWay& way : result.ways) {
      if (std::exchange(rig, way.rig) != way.rig) {
        way.rig->imposed.most = 0;
        HOCKET_TRY(const SpeculationRun plain, run_point(options, point, *way.rig));
        result.is_equal &= plain.is_equal;
        off = plain.tokens_per_s;
        if (round > 0) result.off.push_back(off);
      }
      way.rig->imposed.most = way.most;
      HOCKET_TRY(const SpeculationRun run, run_point(options, point, *way.rig));
      result.is_equal &= run.is_equal;
      if (round > 0) way.ratios.push_back(run.tokens_per_s / off);
    }
  }
  return result;
}

void print_point(const BenchSpeculationOptions& options, const SpeculationPoint& point,
                 const SpeculationResult& result) {
  double best = 1;
  for (const SpeculationWay& way : result.ways)
    if (way.name != "auto") best = std::max(best, quantile(way.ratios, 0.5));
  const double chosen = quantile(result.ways.back().ratios, 0.5);
  if (options.json) {
    nlohmann::ordered_json line = {{"answers", point.answers},
                                   {"context_len", point.context},
                                   {"acceptance", point.percent / 100.0},
                                   {"tokens_per_s", quantile(result.off, 0.5)},
                                   {"equal", result.is_equal}};
    for (const SpeculationWay& way : result.ways)
      line[way.name] = {{"ratio", quantile(way.ratios, 0.5)},
                        {"least", quantile(way.ratios, 0)},
                        {"most", quantile(way.ratios, 1)}};
    line["auto_of_best"] = chosen / best;
    return fmt::print("{}\n", line.dump());
  }
  fmt::print("{:>3} answers at {:<5} acceptance {:.1f} | {:>7.1f} tok/s", point.answers,
             point.context, point.percent / 100.0, quantile(result.off, 0.5));
  for (const SpeculationWay& way : result.ways)
    fmt::print(" | {} {:.2f} ({:.2f}-{:.2f})", way.name, quantile(way.ratios, 0.5),
               quantile(way.ratios, 0), quantile(way.ratios, 1));
  fmt::print(" | auto {:.2f} of the best{}\n", chosen / best,
             result.is_equal ? "" : ": TOKENS DIFFER");
}

Result<bool> measure_all(const BenchSpeculationOptions& options) {
  const auto in_range = [](const std::vector<int>& values, int least, int most) {
    return !values.empty() &&
           std::ranges::all_of(values, [=](int value) { return value >= least && value <= most; });
  };
  if (!in_range(options.answers, 1, 256)) return bad_flag("answers", "is 1 to 256");
  if (!in_range(options.contexts, 2, 1 << 20)) return bad_flag("contexts", "is 2 to 1048576");
  if (!in_range(options.acceptances, 0, 100)) return bad_flag("acceptances", "is 0 to 100");
  if (!in_range(options.drafts, 1, kMostDrafts)) return bad_flag("drafts", "is 1 to 8");
  if (options.output_len < 16 || options.rounds < 1)
    return bad_flag("output-len", "is 16 or more, --rounds 1 or more");
  ServerSettings settings = options.settings;
  if (settings.memory.max_running_requests == 0)  // room for all drafts of all answers
    settings.memory.max_running_requests = std::ranges::max(options.answers) * (1 + kMostDrafts);
  HOCKET_TRY(const auto fixed, make_rig(settings, kMostDrafts));
  HOCKET_TRY(const auto gated, make_rig(settings, 0));
  bool is_equal = true;
  for (const int answers : options.answers)
    for (const int context : options.contexts) {
      for (DraftRig* rig : {fixed.get(), gated.get()}) rig->imposed.texts.clear();
      for (const int percent : options.acceptances) {
        const SpeculationPoint point{answers, context, percent};
        HOCKET_TRY(const SpeculationResult result, measure_point(options, point, *fixed, *gated));
        print_point(options, point, result);
        std::fflush(stdout);  // points take long, and a pipe holds lines back
        is_equal &= result.is_equal;
      }
    }
  return is_equal;
}

}  // namespace

int bench_speculation(const BenchSpeculationOptions& options) {
  const Result<bool> is_equal = measure_all(options);
  if (!is_equal) return end_with(is_equal.error());
  return *is_equal ? 0 : 1;
}

}  // namespace hocket
