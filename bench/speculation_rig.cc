#include "bench/speculation_rig.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mix.h"
#include "engine/stats/expert_stats.h"
#include "policy/speculation/drafter.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {
namespace {

constexpr size_t kSpeculationOutbox = 1 << 16;
constexpr auto kMaxStepTime = std::chrono::seconds(120);

class ImposedDrafter final : public Drafter {
 public:
  // `imposed` outlives it.
  ImposedDrafter(const ImposedDrafts& imposed, int num_seats)
      : imposed_(imposed),
        ngrams_(num_seats, NgramDrafter::kSpan),
        drafts_(static_cast<size_t>(num_seats)) {}

  void begin(int seat, int max_len) override { ngrams_.begin(seat, max_len); }
  void end(int seat) override { ngrams_.end(seat); }
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) draft(task);
  }
  bool is_free() const override { return true; }

 private:
  void draft(DraftTask& task) {
    task.drafts = {};
    const int id = imposed_.id_of(task.tokens);
    const auto text = imposed_.texts.find(id);
    if (text == imposed_.texts.end()) return;
    auto& drafts = drafts_[static_cast<size_t>(task.seat)];
    const size_t begin = task.tokens.size();
    const size_t left = text->second.size() - std::min(text->second.size(), begin);
    size_t num =
        std::min(left, static_cast<size_t>(std::min(task.max_drafts, imposed_.max_drafts)));
    if (const auto quote = imposed_.quotes.find(id); quote != imposed_.quotes.end()) {
      const std::span<const TokenId> known(quote->second);
      std::array<DraftTask, 1> found{
          {{.seat = task.seat, .tokens = known.first(begin), .max_drafts = static_cast<int>(num)}}};
      ngrams_.draft(found);
      num = std::min(num, found[0].drafts.size());
      task.kind = found[0].kind;
      for (size_t i = 0; i < num; ++i)
        drafts[i] = found[0].drafts[i] == known[begin + i]
                        ? text->second[begin + i]
                        : imposed_.wrong(text->second, begin + i);
    } else {
      for (size_t i = 0; i < num; ++i) drafts[i] = imposed_.draft(text->second, begin + i);
    }
    task.drafts = std::span(drafts).first(num);
  }

  const ImposedDrafts& imposed_;
  NgramDrafter ngrams_;
  std::vector<std::array<TokenId, kMaxDrafts>> drafts_;
};

RequestInput input_of(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                      int index, int vocab_size) {
  RequestInput input{.id = Engine::next_request_id()};
  std::mt19937 random(static_cast<uint32_t>(group.context));
  while (std::ssize(input.prompt) < group.context)
    input.prompt.push_back(TokenId{static_cast<int>(random() % static_cast<uint32_t>(vocab_size))});
  input.prompt.push_back(TokenId{index});
  input.sampling.max_new_tokens = options.output_len;
  input.sampling.ignore_eos = true;
  input.sampling.temperature = options.algorithm.empty() ? 1 : 0;
  input.sampling.seed = static_cast<uint64_t>(index);
  return input;
}

}  // namespace

int ImposedDrafts::id_of(std::span<const TokenId> tokens) const {
  return value(tokens[static_cast<size_t>(prompt_len) - 1]);
}

TokenId ImposedDrafts::draft(const std::vector<TokenId>& text, size_t position) const {
  const auto key = static_cast<uint64_t>(id_of(text)) << 32 | position;
  if (mix64(key * kMixStep) % 100 < static_cast<uint64_t>(percent)) return text[position];
  return wrong(text, position);
}

TokenId ImposedDrafts::wrong(const std::vector<TokenId>& text, size_t position) const {
  return TokenId{(value(text[position]) + 1) % vocab_size};
}

SpeculationRig::SpeculationRig() : outbox_(kSpeculationOutbox) {}

SpeculationRig::~SpeculationRig() {
  if (engine_ != nullptr) engine_->stop();
}

Result<std::unique_ptr<SpeculationRig>> SpeculationRig::create(ServerSettings settings,
                                                               Drafts drafts,
                                                               const OwnDrafts& own) {
  const bool imposes = own.algorithm.empty();
  settings.speculation.algorithm = drafts == Drafts::none ? "none"
                                   : imposes              ? "NGRAM"
                                                          : own.algorithm;
  settings.speculation.num_steps = drafts == Drafts::fixed ? own.num_steps : 0;
  std::unique_ptr<SpeculationRig> rig(new SpeculationRig());
  Engine::Options options{.settings = std::move(settings)};
  if (drafts != Drafts::none && imposes)
    options.drafter = [&imposed = rig->imposed_](int /*rank*/, int num_seats) {
      return std::make_unique<ImposedDrafter>(imposed, num_seats);
    };
  HOCKET_TRY(rig->engine_, Engine::create(std::move(options)));
  rig->imposed_.vocab_size = rig->engine_->info().model.vocab_size;
  rig->engine_->start(rig->outbox_);
  return rig;
}

SpeculationPlayer::SpeculationPlayer(const BenchSpeculationOptions& options,
                                     const SpeculationGroup& group, SpeculationRig& rig)
    : options_(options), group_(group), rig_(rig) {
  rig_.imposed().prompt_len = group.context + 1;
  rig_.imposed().texts.clear();
  rig_.imposed().quotes.clear();
}

SpeculationPlayer::~SpeculationPlayer() {
  (void)end();
}

Result<ImposedDrafts::Texts> SpeculationPlayer::learn_texts() {
  HOCKET_TRY_VOID(begin());
  while (num_running_ > 0) HOCKET_TRY_VOID(take_output());
  ImposedDrafts::Texts out;
  for (const auto& [id, text] : texts_) out[rig_.imposed().id_of(text)] = text;
  return out;
}

void SpeculationPlayer::set_texts(const ImposedDrafts::Texts& texts,
                                  const ImposedDrafts::Texts& quotes) {
  rig_.imposed().texts = texts;
  rig_.imposed().quotes = quotes;
}

Result<PlayedSteps> SpeculationPlayer::play(const ImposedChoice& choice, const BlockLength& block) {
  const RealClock clock;
  rig_.imposed().max_drafts = choice.max_drafts, rig_.imposed().percent = choice.percent;
  // A step gives each answer a token at least, so steps need not be counted before that many came.
  const double least = static_cast<double>(std::max(block.tokens, block.steps)) * group_.answers;
  PlayedSteps played;
  int64_t steps_left = block.steps;
  while (played.tokens < least || played.seconds < block.seconds || steps_left > 0) {
    HOCKET_TRY_VOID(begin());
    const double surplus_before = choice.counts_expected ? surplus_accepted(choice.percent) : 0;
    const int64_t tokens_before = num_tokens_, last_step = num_steps() + steps_left;
    const TimePoint from = clock.now();
    PlayedSteps part;
    while (num_running_ == group_.answers &&
           (played.tokens + part.tokens < least || played.seconds + part.seconds < block.seconds ||
            (block.steps > 0 && num_steps() < last_step))) {
      HOCKET_TRY_VOID(take_output());
      part = {.seconds = to_seconds(clock.now() - from),
              .tokens = static_cast<double>(num_tokens_ - tokens_before)};
    }
    if (part.tokens == 0)
      return fail(
          error(ErrorCode::bad_value, "answers end before all {} have begun", group_.answers)
              .with_fix("a larger --output-len or --max-running-requests, or fewer --answers")
              .with_param("output-len"));
    steps_left = block.steps > 0 ? std::max<int64_t>(0, last_step - num_steps()) : 0;
    if (choice.counts_expected) part.tokens -= surplus_accepted(choice.percent) - surplus_before;
    played.seconds += part.seconds;
    played.tokens += part.tokens;
  }
  HOCKET_TRY_VOID(end());
  return played;
}

Result<double> SpeculationPlayer::experts_touched(const ImposedChoice& choice) {
  ExpertStats* stats = rig_.engine().parts().expert_stats;
  if (stats == nullptr) return 0;
  rig_.imposed().max_drafts = choice.max_drafts, rig_.imposed().percent = choice.percent;
  HOCKET_TRY_VOID(begin());
  HOCKET_TRY_VOID(stats->start({.mode = ExpertRecordMode::per_pass, .buffer_size = 64}));
  for (int64_t until = num_tokens_ + 8 * group_.answers;
       num_tokens_ < until && num_running_ == group_.answers;)
    HOCKET_TRY_VOID(take_output());
  HOCKET_TRY(const ExpertRecord record, stats->take());
  HOCKET_TRY_VOID(end());
  HOCKET_TRY_VOID(stats->stop());
  double touched = 0, layers = 0;
  for (int i = 0; i < record.num_kept(); ++i) {
    const auto counts = record.counts_of_pass(i);
    for (int layer = 0; layer < record.num_layers; ++layer) {
      const auto num = static_cast<size_t>(record.num_experts);
      const auto of_layer = counts.subspan(static_cast<size_t>(layer) * num, num);
      const auto hit = std::ranges::count_if(of_layer, [](uint32_t rows) { return rows > 0; });
      touched += static_cast<double>(hit);
      layers += hit > 0 ? 1 : 0;
    }
  }
  return layers > 0 ? touched / layers : 0;
}

// Begins all answers and computes their prompts, most of which the prefix cache has.
Result<void> SpeculationPlayer::begin() {
  HOCKET_TRY_VOID(end());
  texts_.clear();
  num_running_ = group_.answers, num_begun_ = 0;
  for (int i = 0; i < group_.answers; ++i) {
    RequestInput input = input_of(options_, group_, i, rig_.imposed().vocab_size);
    texts_[input.id] = input.prompt;
    HOCKET_TRY_VOID(rig_.engine().submit(std::move(input)));
  }
  while (num_begun_ < group_.answers && num_running_ == group_.answers)
    HOCKET_TRY_VOID(take_output());
  return {};
}

Result<void> SpeculationPlayer::end() {
  if (num_running_ == 0) return {};
  is_ending_ = true;
  rig_.engine().abort_all();
  while (num_running_ > 0) HOCKET_TRY_VOID(take_output());
  is_ending_ = false;
  return {};
}

Result<void> SpeculationPlayer::take_output() {
  const auto output = rig_.outbox().wait_pop(kMaxStepTime);
  if (!output) {
    num_running_ = 0;
    return fail(ErrorCode::internal, "no token has come for 120 s");
  }
  std::vector<TokenId>& text = texts_[output->id];
  if (value(output->token) >= 0) {
    num_begun_ += std::ssize(text) == rig_.imposed().prompt_len ? 1 : 0;
    ++num_tokens_;
    text.push_back(output->token);
    const auto& texts = rig_.imposed().texts;
    const auto right = texts.find(rig_.imposed().id_of(text));
    if (right != texts.end()) is_equal_ &= right->second[text.size() - 1] == text.back();
  }
  if (output->summary == nullptr) return {};
  --num_running_;
  const FinishReason finish = output->summary->finish;
  if (finish == FinishReason::error || (finish == FinishReason::abort && !is_ending_))
    return std::unexpected(std::move(output->summary->error));
  return {};
}

// Returns the steps with answers so far, of the rank that has most.
int64_t SpeculationPlayer::num_steps() const {
  uint64_t most = 0;
  const SpeculationView view = rig_.engine().speculation();
  if (view.ranks.empty())
    return num_tokens_ / group_.answers;  // no step gives an answer two tokens
  for (const SpeculationView::RankEntry& rank : view.ranks)
    most = std::max(most, rank.gate.totals.num_steps);
  return static_cast<int64_t>(most);
}

// Returns how many more of the drafts verified so far have held than were expected to.
double SpeculationPlayer::surplus_accepted(int percent) const {
  double surplus_accepted = 0;
  for (const SpeculationView::RankEntry& rank : rig_.engine().speculation().ranks)
    for (size_t i = 0; i < rank.counts.drafted_total.size(); ++i)
      surplus_accepted += static_cast<double>(rank.counts.accepted_total[i]) -
                          static_cast<double>(rank.counts.drafted_total[i]) *
                              std::pow(percent / 100.0, static_cast<double>(i + 1));
  return surplus_accepted;
}

ImposedDrafts::Texts quotes_of(const ImposedDrafts::Texts& texts, int prompt_len, int percent,
                               int vocab_size) {
  ImposedDrafts::Texts out;
  for (const auto& [id, text] : texts) {
    std::mt19937 random(static_cast<uint32_t>(id));
    const auto below = [&random](int most) {
      return static_cast<int>(random() % static_cast<uint32_t>(most));
    };
    std::vector<TokenId>& quote = out[id];
    const auto begin = static_cast<size_t>(prompt_len);
    quote.assign(text.begin(), text.begin() + prompt_len);
    for (size_t source = 0; quote.size() < text.size();) {
      if (below(100) < percent) {
        for (int i = 1 + below(3); i > 0; --i) quote.push_back(TokenId{below(vocab_size)});
        source += static_cast<size_t>(below(3));
      }
      quote.push_back(quote[source++ % begin]);
    }
    quote.resize(text.size());
  }
  return out;
}

}  // namespace hocket
