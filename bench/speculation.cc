#include "bench/speculation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
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
#include "bench/paused_clock.h"
#include "engine/engine.h"
#include "policy/speculation/drafter.h"

namespace hocket {
namespace {

constexpr size_t kSpeculationOutbox = 1 << 16;
constexpr int kBlockSteps = 16;   // steps that are timed together, at least
constexpr int kFirstSteps = 200;  // in which the gate may still learn

// The right tokens of every answer, and the drafts that the bench wants.
struct Imposed {
  int most = 0;     // drafts of an answer; 0: none are made
  int percent = 0;  // chance that a draft holds
  int vocab_size = 0, prompt_len = 0;
  std::unordered_map<int, std::vector<TokenId>> texts;  // prompt and answer, by id_of()

  // The last token of a prompt identifies it: all others are equal.
  int id_of(std::span<const TokenId> tokens) const {
    return value(tokens[static_cast<size_t>(prompt_len) - 1]);
  }
  // Returns the draft for a position; by this chance it is the right token, the same each time.
  TokenId draft(const std::vector<TokenId>& text, size_t position) const {
    const auto key = static_cast<uint64_t>(id_of(text)) << 32 | position;
    if (mix64(key * kMixStep) % 100 < static_cast<uint64_t>(percent)) return text[position];
    return TokenId{(value(text[position]) + 1) % vocab_size};
  }
};

class ImposedDrafter final : public Drafter {
 public:
  // `imposed` outlives it.
  ImposedDrafter(const Imposed& imposed, int num_seats)
      : imposed_(imposed), drafts_(static_cast<size_t>(num_seats)) {}

  void begin(int /*seat*/, int /*max_len*/) override {}
  void end(int /*seat*/) override {}
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      task.drafts = {};
      const auto text = imposed_.texts.find(imposed_.id_of(task.tokens));
      if (text == imposed_.texts.end()) continue;
      auto& drafts = drafts_[static_cast<size_t>(task.seat)];
      const size_t begin = task.tokens.size();
      const size_t rest = text->second.size() - std::min(text->second.size(), begin);
      const size_t num = std::min(rest, static_cast<size_t>(std::min(task.most, imposed_.most)));
      for (size_t i = 0; i < num; ++i) drafts[i] = imposed_.draft(text->second, begin + i);
      task.drafts = std::span(drafts).first(num);
    }
  }
  bool is_free() const override { return true; }

 private:
  const Imposed& imposed_;
  std::vector<std::array<TokenId, kMaxDrafts>> drafts_;
};

// An engine whose drafts the bench imposes.
struct DraftRig {
  Imposed imposed;
  PausedClock clock;  // runs while the engine does a step
  std::unique_ptr<Engine> engine;
};

// drafts: the fixed number; 0: the gate chooses.
Result<std::unique_ptr<DraftRig>> make_rig(ServerSettings settings, int drafts) {
  settings.speculation.algorithm = "NGRAM";
  settings.speculation.num_steps = drafts;
  auto rig = std::make_unique<DraftRig>();
  const Imposed& imposed = rig->imposed;
  HOCKET_TRY(rig->engine, Engine::create({.settings = std::move(settings),
                                          .clock = &rig->clock,
                                          .drafter = [&imposed](int /*rank*/, int num_seats) {
                                            return std::make_unique<ImposedDrafter>(imposed,
                                                                                    num_seats);
                                          }}));
  rig->imposed.vocab_size = rig->engine->info().model.vocab_size;
  return rig;
}

// Steps of a size: so many answers to prompts of so many tokens.
struct SpeculationGroup {
  int answers = 1, context = 512;
};

RequestInput input_of(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                      int index, int vocab_size) {
  RequestInput input{.id = Engine::next_request_id()};
  std::mt19937 random(static_cast<uint32_t>(group.context));
  while (std::ssize(input.prompt) < group.context - 1)
    input.prompt.push_back(TokenId{static_cast<int>(random() % static_cast<uint32_t>(vocab_size))});
  input.prompt.push_back(TokenId{index});
  input.sampling.max_new_tokens = options.output_len;
  input.sampling.ignore_eos = true;
  input.sampling.temperature = 1;
  input.sampling.seed = static_cast<uint64_t>(index);
  return input;
}

struct PlayedSteps {
  int num_steps = 0;
  double seconds = 0;
  double tokens = 0;  // those that the steps are expected to bring
};

// Answers the prompts of a group again and again.
class SpeculationPlayer {
 public:
  SpeculationPlayer(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                    DraftRig& rig)
      : options_(options), group_(group), rig_(rig), outbox_(kSpeculationOutbox) {
    rig_.imposed.prompt_len = group.context;
    rig_.imposed.texts.clear();
  }
  ~SpeculationPlayer() { end(); }
  SpeculationPlayer(const SpeculationPlayer&) = delete;
  SpeculationPlayer& operator=(const SpeculationPlayer&) = delete;

  // Answers all prompts once; their texts are the right ones from now on. Errors: an answer's.
  Result<void> learn_texts() {
    rig_.imposed.most = 0;
    HOCKET_TRY_VOID(begin());
    while (num_running_ > 0) HOCKET_TRY_VOID(step());
    for (const auto& [id, text] : texts_) rig_.imposed.texts[rig_.imposed.id_of(text)] = text;
    return {};
  }
  const std::unordered_map<int, std::vector<TokenId>>& texts() const { return rig_.imposed.texts; }
  void set_texts(const std::unordered_map<int, std::vector<TokenId>>& texts) {
    rig_.imposed.texts = texts;
  }
  // Plays at least `num_steps` steps in which all answers run, and for `seconds`; each draft holds
  // by chance. Errors: an answer's.
  Result<PlayedSteps> play(int most, int percent, int num_steps, double seconds) {
    rig_.imposed.most = most, rig_.imposed.percent = percent;
    PlayedSteps played;
    while (played.num_steps < num_steps || played.seconds < seconds) {
      if (num_running_ < group_.answers) HOCKET_TRY_VOID(begin());
      const double expected_before = expected_held(percent);
      const TimePoint from = RealClock().now();
      HOCKET_TRY_VOID(step());
      played.seconds += to_seconds(RealClock().now() - from);
      ++played.num_steps;
      played.tokens += group_.answers + expected_held(percent) - expected_before;
    }
    return played;
  }
  bool is_equal() const { return is_equal_; }

 private:
  // Begins all answers anew and computes their prompts, most of which the prefix cache has.
  Result<void> begin() {
    end();
    for (int i = 0; i < group_.answers; ++i) {
      RequestInput input = input_of(options_, group_, i, rig_.imposed.vocab_size);
      texts_[input.id] = input.prompt;
      HOCKET_TRY_VOID(rig_.engine->submit(std::move(input)));
    }
    num_running_ = group_.answers, num_begun_ = 0;
    while (num_begun_ < group_.answers && num_running_ == group_.answers) HOCKET_TRY_VOID(step());
    return {};
  }
  void end() {
    rig_.engine->abort_all();
    while (rig_.engine->step(outbox_))
      while (outbox_.pop()) {
      }
    while (outbox_.pop()) {
    }
    texts_.clear();
    num_running_ = 0;
  }
  Result<void> step() {
    rig_.clock.resume();
    rig_.engine->step(outbox_);
    rig_.clock.pause();
    while (auto output = outbox_.pop()) {
      std::vector<TokenId>& text = texts_[output->id];
      if (value(output->token) >= 0) {
        num_begun_ += std::ssize(text) == group_.context ? 1 : 0;
        text.push_back(output->token);
        compare(text);
      }
      if (output->summary == nullptr) continue;
      --num_running_;
      if (output->summary->finish == FinishReason::error)
        return std::unexpected(std::move(output->summary->error));
    }
    return {};
  }
  void compare(const std::vector<TokenId>& text) {
    const auto right = rig_.imposed.texts.find(rig_.imposed.id_of(text));
    if (right == rig_.imposed.texts.end()) return;
    is_equal_ &= right->second[text.size() - 1] == text.back();
  }
  // Returns how many of the drafts verified so far are expected to hold: luck is no part of ratios.
  double expected_held(int percent) const {
    double held = 0;
    for (const SpeculationView::OfRank& rank : rig_.engine->speculation().ranks)
      for (size_t i = 0; i < rank.counts.drafted_total.size(); ++i)
        held += static_cast<double>(rank.counts.drafted_total[i]) *
                std::pow(percent / 100.0, static_cast<double>(i + 1));
    return held;
  }

  const BenchSpeculationOptions& options_;
  const SpeculationGroup group_;
  DraftRig& rig_;
  Outbox outbox_;
  std::unordered_map<RequestId, std::vector<TokenId>> texts_;
  int num_begun_ = 0, num_running_ = 0;
  bool is_equal_ = true;
};

// The times of steps by the number of drafts of each answer.
struct DraftStepTimes {
  std::vector<double> off_us;               // a value a round
  std::vector<std::vector<double>> ratios;  // to steps without, by number and round
};

// The time of a step depends on its rows, not on which of them hold. So it is measured once for all
// acceptances; without acceptance the texts last longest.
Result<DraftStepTimes> measure_steps(const BenchSpeculationOptions& options,
                                     SpeculationPlayer& fixed) {
  DraftStepTimes times{.off_us = {},
                       .ratios = std::vector<std::vector<double>>(options.drafts.size())};
  for (int round = 0; round <= options.rounds; ++round)
    for (size_t i = 0; i < options.drafts.size(); ++i) {
      HOCKET_TRY(const PlayedSteps off, fixed.play(0, 0, kBlockSteps, options.seconds));
      HOCKET_TRY(const PlayedSteps with,
                 fixed.play(options.drafts[i], 0, kBlockSteps, options.seconds));
      if (round == 0) continue;
      const double off_us = off.seconds / off.num_steps * 1e6;
      times.off_us.push_back(off_us);
      times.ratios[i].push_back(with.seconds / with.num_steps * 1e6 / off_us);
    }
  return times;
}

// Returns the tokens of an answer with so many drafts in a step.
double tokens_of(int drafts, int percent) {
  double tokens = 0;
  for (int i = 0; i <= drafts; ++i) tokens += std::pow(percent / 100.0, i);
  return tokens;
}

struct GateFigures {
  std::vector<double> first, later;  // ratios of tokens/s to no drafts, by block
  std::string text;                  // the gate's choice and its reason
};

// Plays blocks of steps as the gate chooses, each between two without drafts of the other engine.
Result<GateFigures> measure_gate(const BenchSpeculationOptions& options, SpeculationPlayer& fixed,
                                 SpeculationPlayer& gated, int percent) {
  GateFigures out;
  const auto off_rate = [&]() -> Result<double> {
    HOCKET_TRY(const PlayedSteps off, fixed.play(0, 0, kBlockSteps / 2, options.seconds / 2));
    return off.tokens / off.seconds;
  };
  HOCKET_TRY(double before, off_rate());
  int num_steps = 0;
  while (std::ssize(out.later) < 2 * options.rounds) {
    HOCKET_TRY(const PlayedSteps played,
               gated.play(kMaxDrafts, percent, kBlockSteps, options.seconds));
    HOCKET_TRY(const double after, off_rate());
    (num_steps < kFirstSteps ? out.first : out.later)
        .push_back(played.tokens / played.seconds * 2 / (before + after));
    num_steps += played.num_steps;
    before = after;
  }
  return out;
}

struct MeanRatio {
  double ratio = 0, error = 0;  // the geometric mean of ratios; its relative standard error
};
MeanRatio mean_of(const std::vector<double>& ratios) {
  if (ratios.empty()) return {};
  const auto num = static_cast<double>(ratios.size());
  double sum = 0, squares = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  for (const double ratio : ratios) squares += std::pow(std::log(ratio) - sum / num, 2);
  return {std::exp(sum / num), std::sqrt(squares / std::max(num - 1, 1.0) / num)};
}

struct SpeculationPoint {
  SpeculationGroup group;
  int percent = 0;
};
void print_point(const BenchSpeculationOptions& options, const SpeculationPoint& point,
                 const DraftStepTimes& times, const GateFigures& gate) {
  const MeanRatio chosen = mean_of(gate.later), first = mean_of(gate.first);
  std::vector<double> ratios;
  double best = 1;
  for (size_t i = 0; i < options.drafts.size(); ++i) {
    ratios.push_back(tokens_of(options.drafts[i], point.percent) / quantile(times.ratios[i], 0.5));
    best = std::max(best, ratios.back());
  }
  if (options.json) {
    nlohmann::ordered_json line = {{"answers", point.group.answers},
                                   {"context_len", point.group.context},
                                   {"acceptance", point.percent / 100.0},
                                   {"off_step_us", quantile(times.off_us, 0.5)}};
    for (size_t i = 0; i < options.drafts.size(); ++i)
      line[fmt::format("{} drafts", options.drafts[i])] = {
          {"ratio", ratios[i]}, {"step_time_ratio", quantile(times.ratios[i], 0.5)}};
    line["auto"] = {{"ratio", chosen.ratio},
                    {"error", chosen.error},
                    {"least", quantile(gate.later, 0)},
                    {"most", quantile(gate.later, 1)},
                    {"first", first.ratio},
                    {"of_best", chosen.ratio / best},
                    {"why", gate.text}};
    return fmt::print("{}\n", line.dump());
  }
  fmt::print("{:>3} answers at {:<5} acceptance {:.1f} | {:>8.0f} us", point.group.answers,
             point.group.context, point.percent / 100.0, quantile(times.off_us, 0.5));
  for (size_t i = 0; i < options.drafts.size(); ++i)
    fmt::print(" | {} drafts {:.2f}", options.drafts[i], ratios[i]);
  fmt::print(" | auto {:.3f} +- {:.3f} ({:.2f}-{:.2f}), first {:.3f} | {:.2f} of the best\n",
             chosen.ratio, chosen.error, quantile(gate.later, 0), quantile(gate.later, 1),
             first.ratio, chosen.ratio / best);
}

// Returns false if a token differed.
Result<bool> measure_group(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                           DraftRig& fixed_rig, DraftRig& gated_rig) {
  SpeculationPlayer fixed(options, group, fixed_rig), gated(options, group, gated_rig);
  HOCKET_TRY_VOID(fixed.learn_texts());
  gated.set_texts(fixed.texts());
  HOCKET_TRY(const DraftStepTimes times, measure_steps(options, fixed));
  for (const int percent : options.acceptances) {
    HOCKET_TRY(GateFigures gate, measure_gate(options, fixed, gated, percent));
    uint64_t max_steps = 0;
    for (const SpeculationView::OfRank& rank : gated_rig.engine->speculation().ranks)
      for (const GateState::Bucket& bucket : rank.gate.buckets)
        if (bucket.num_answers >= group.answers && bucket.num_steps >= max_steps &&
            bucket.num_answers < 2 * group.answers && bucket.answer_keys >= group.context)
          max_steps = bucket.num_steps, gate.text = bucket.text;
    print_point(options, {group, percent}, times, gate);
    std::fflush(stdout);  // points take long, and a pipe holds lines back
  }
  if (!fixed.is_equal() || !gated.is_equal())
    fmt::print("{} answers at {}: TOKENS DIFFER\n", group.answers, group.context);
  return fixed.is_equal() && gated.is_equal();
}

Result<bool> measure_all(const BenchSpeculationOptions& options) {
  const auto in_range = [](const std::vector<int>& values, int least, int most) {
    return !values.empty() &&
           std::ranges::all_of(values, [=](int value) { return value >= least && value <= most; });
  };
  if (!in_range(options.answers, 1, 256)) return bad_flag("answers", "is 1 to 256");
  if (!in_range(options.contexts, 2, 1 << 20)) return bad_flag("contexts", "is 2 to 1048576");
  if (!in_range(options.acceptances, 0, 100)) return bad_flag("acceptances", "is 0 to 100");
  if (!in_range(options.drafts, 1, kMaxDrafts)) return bad_flag("drafts", "is 1 to 8");
  if (options.output_len < 64 || options.rounds < 1)
    return bad_flag("output-len", "is 64 or more, --rounds 1 or more");
  ServerSettings settings = options.settings;
  if (settings.memory.max_running_requests == 0)  // room for all drafts of all answers
    settings.memory.max_running_requests = std::ranges::max(options.answers) * (1 + kMaxDrafts);
  HOCKET_TRY(const auto fixed, make_rig(settings, kMaxDrafts));
  HOCKET_TRY(const auto gated, make_rig(settings, 0));
  bool is_equal = true;
  for (const int context : options.contexts)
    for (const int answers : options.answers) {
      HOCKET_TRY(const bool equal, measure_group(options, {answers, context}, *fixed, *gated));
      is_equal &= equal;
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
