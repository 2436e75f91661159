#include "engine/check/checker.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "compute/kernels/rope.h"
#include "engine/check/quantity.h"

namespace hocket {
namespace {

constexpr double kBf16Allowance = 1.5;  // factor on the reference's own bf16 error
// Largest share of rows whose router chose otherwise. In bf16 two experts of nearly equal scores
// may change places, here or in the reference: such a row is another sum, not a worse one.
constexpr double kRoutedOtherwise = 0.02;
// Recorded log-probabilities have five digits; the bf16 bound is three times the observed error.
constexpr Tolerance kRecordedFloat32 = {5e-5, 0};
constexpr Tolerance kRecordedBf16 = {0.05, 0};
constexpr float kComfortableMargin = 1.0f;

struct PlayMode {
  std::string name;
  PlayOptions options;
};
const std::array<PlayMode, 3> kWays = {{
    {"whole", {}},
    {"chunks of 17", {.chunk_tokens = 17}},
    {"batched", {.chunk_tokens = 64, .max_together = 32}},
}};

std::string name_of(DType dtype) {
  return std::string(dtype_name(dtype));
}

// Takes the lines of one way, except for quantities that this model does not have.
void take(std::vector<CheckLine>& lines, std::span<const Quantity* const> quantities,
          const std::string& dtype, const std::string& way) {
  for (const Quantity* quantity : quantities) {
    if (quantity->line().compared == 0) continue;
    lines.push_back(quantity->line());
    lines.back().dtype = dtype;
    lines.back().way = way;
  }
}

int argmax_of(const RowReader::Head& head) {
  return head.stats.finite ? head.stats.argmax : -1;
}

class ReferenceReader final : public RowReader {
 public:
  ReferenceReader(const Reference& reference, const EngineInfo& info)
      : prompts_(reference.prompts),
        exact_(info.dtype == DType::f32),
        routed_(info.model.moe.num_experts > 0) {
    const Tolerance bf16 = {kBf16Allowance * reference.bf16_logits_max_abs, 0};
    const Tolerance logits = exact_ ? reference.logits : bf16;
    logits_last_ = Quantity("logits_last", logits);
    top8_ = Quantity("top8 of every position", logits);
    embeddings_ = Quantity("embeddings", reference.hidden);
    layers_ = Quantity("layer outputs", reference.hidden);
    final_norm_ = Quantity("final norm", reference.hidden);
    logsumexp_ = Quantity("logsumexp", reference.logits);
    greedy_top8_ = Quantity("greedy top8", reference.logits);
    weights_ = Quantity("expert weights", reference.expert_weights);
    router_logits_ = Quantity("router logits", reference.logits);
    module_logits_ = Quantity("mtp logits_last", reference.logits);
    module_top8_ = Quantity("mtp top8", reference.logits);
    module_norm_ = Quantity("mtp final norm", reference.hidden);
  }

  void hidden(ScriptRow row, int layer, std::span<const float> values) override {
    const ReferencePrompt& prompt = prompts_[row.script];
    const auto kept = prompt.hidden.shape[1];  // number of last positions that the file keeps
    const int64_t i = row.position - (std::ssize(prompt.ids) - kept);
    if (!exact_ || i < 0 || i >= kept) return;
    Quantity& quantity = layer == 0 ? embeddings_ : layers_;
    quantity.near(values, prompt.hidden.row(layer * kept + i),
                  {prompt.name, row.position, layer - 1});
  }

  void routing(ScriptRow row, int layer, const Choice& got) override {
    const ReferencePrompt& prompt = prompts_[row.script];
    const auto found = prompt.routing.find(layer);
    if (!exact_ || found == prompt.routing.end() || row.position >= std::ssize(prompt.ids)) return;
    const ReferenceRouting& want = found->second;
    const Origin origin = {prompt.name, row.position, layer};
    order_.resize(got.experts.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::sort(order_, {}, [&](int slot) { return got.experts[slot]; });
    for (size_t i = 0; i < order_.size(); ++i) {
      experts_.equal(got.experts[order_[i]], want.experts.row(row.position)[i], origin);
      weights_.near(got.weights[order_[i]], want.weights.row(row.position)[i], origin);
    }
    router_logits_.near(got.logits, want.router_logits.row(row.position), origin);
  }

  void head(ScriptRow row, const Head& got) override {
    const ReferencePrompt& prompt = prompts_[row.script];
    const auto len = static_cast<int>(prompt.ids.size());
    const Origin origin = {prompt.name, row.position};
    if (row.position < len) compare_logits(row, got);
    if (!exact_) return;
    if (row.position < len) {
      logsumexp_.near(got.stats.logsumexp, prompt.logsumexp.values[row.position], origin);
      argmax_.equal(argmax_of(got), prompt.argmax.values[row.position], origin);
      const auto& norms = prompt.final_norm;
      const auto kept = static_cast<int64_t>(norms.values.size()) / norms.shape.back();
      if (const int64_t i = row.position - (len - kept); i >= 0)
        final_norm_.near(got.final_norm, norms.row(i), origin);
    }
    if (const int step = row.position - (len - 1); step >= 0) {
      greedy_ids_.equal(argmax_of(got), prompt.greedy_ids.values[step], origin);
      compare_top8(greedy_top8_, got.logits, prompt.greedy_top8_ids.row(step),
                   prompt.greedy_top8_logits.row(step), origin);
    }
  }

  void module_head(ScriptRow row, int module, const Head& got) override {
    const ReferencePrompt& prompt = prompts_[row.script];
    const int64_t behind = std::ssize(prompt.ids) - 1 - row.position;
    if (!exact_ || module >= std::ssize(prompt.modules) || behind < 0) return;
    const ReferenceModule& want = prompt.modules[module];
    const Origin origin = {prompt.name, row.position};
    module_argmax_.equal(argmax_of(got), want.argmax.values[row.position], origin);
    compare_top8(module_top8_, got.logits, want.top8_ids.row(row.position),
                 want.top8_logits.row(row.position), origin);
    if (const int64_t last = want.logits_last.shape[0] - 1 - behind; last >= 0)
      module_logits_.near(got.logits, want.logits_last.row(last), origin);
    if (behind == 0) module_norm_.near(got.final_norm, want.hidden_last.values, origin);
  }

  // Modules that are not chained read rows of the model, so the reference's drafts are theirs only
  // where it has computed all those rows: behind the prompt.
  void drafts(ScriptRow row, std::span<const TokenId> tokens) override {
    const ReferencePrompt& prompt = prompts_[row.script];
    if (!exact_ || prompt.drafts.values.empty()) return;
    const int64_t step = row.position + 1 - std::ssize(prompt.ids);
    const int64_t steps = prompt.modules.size() == 1 ? prompt.drafts.shape[0] : 1;
    if (step < 0 || step >= steps) return;
    const std::span<const int32_t> want = prompt.drafts.row(step);
    for (size_t i = 0; i < want.size(); ++i)
      drafts_.equal(i < tokens.size() ? value(tokens[i]) : -1, want[i],
                    {prompt.name, row.position});
  }

  void report(std::vector<CheckLine>& lines, DType dtype, const std::string& way) const {
    const std::array quantities = {&embeddings_,  &layers_,        &final_norm_,    &experts_,
                                   &weights_,     &router_logits_, &logits_last_,   &logsumexp_,
                                   &argmax_,      &top8_,          &greedy_ids_,    &greedy_top8_,
                                   &module_norm_, &module_logits_, &module_argmax_, &module_top8_,
                                   &drafts_};
    take(lines, quantities, name_of(dtype), way);
    if (exact_ || !routed_) return;
    const double share = static_cast<double>(rows_otherwise_) / static_cast<double>(rows_);
    lines.push_back({.dtype = name_of(dtype),
                     .way = way,
                     .quantity = "rows routed otherwise",
                     .measure = "share",
                     .compared = rows_,
                     .worst = share,
                     .tolerance = {kRoutedOtherwise, 0},
                     .ok = share <= kRoutedOtherwise,
                     .first_failure = {}});
  }

 private:
  // Compares a row of a prompt.
  void compare_logits(ScriptRow row, const Head& got) {
    const ReferencePrompt& prompt = prompts_[row.script];
    const Origin origin = {prompt.name, row.position};
    Quantity top8 = top8_, logits_last = logits_last_;
    compare_top8(top8, got.logits, prompt.top8_ids.row(row.position),
                 prompt.top8_logits.row(row.position), origin);
    const int64_t last = row.position - (std::ssize(prompt.ids) - prompt.logits_last.shape[0]);
    if (last >= 0) logits_last.near(got.logits, prompt.logits_last.row(last), origin);
    ++rows_;
    if (!exact_ && routed_ && !(top8.line().ok && logits_last.line().ok)) {
      ++rows_otherwise_;
      return;
    }
    top8_ = std::move(top8);
    logits_last_ = std::move(logits_last);
  }

  // Compares the logits at the reference's ids, and that no other id has a larger one. Equal logits
  // may be in any order.
  void compare_top8(Quantity& quantity, std::span<const float> logits, std::span<const int32_t> ids,
                    std::span<const float> want, const Origin& origin) {
    largest_.resize(want.size());
    std::ranges::partial_sort_copy(logits, largest_, std::greater<>());
    for (size_t i = 0; i < want.size(); ++i) {
      quantity.near(logits[ids[i]], want[i], origin);
      quantity.near(largest_[i], want[i], origin);
    }
  }

  const std::vector<ReferencePrompt>& prompts_;
  const bool exact_, routed_;
  int64_t rows_ = 0, rows_otherwise_ = 0;
  Quantity embeddings_{"", {}}, layers_{"", {}}, final_norm_{"", {}}, logits_last_{"", {}};
  Quantity logsumexp_{"", {}}, top8_{"", {}}, greedy_top8_{"", {}}, weights_{"", {}};
  Quantity router_logits_{"", {}}, experts_{"chosen experts", {}}, argmax_{"argmax", {}};
  Quantity greedy_ids_{"greedy ids", {}};
  Quantity module_logits_{"", {}}, module_top8_{"", {}}, module_norm_{"", {}};
  Quantity module_argmax_{"mtp argmax", {}}, drafts_{"mtp drafts", {}};
  std::vector<int> order_;
  std::vector<float> largest_;
};

CheckLine check_rope(const Runner& runner, const Reference& reference) {
  Quantity quantity("rope.inv_freq", reference.hidden);
  const auto compare = [&](const RopeConfig& config, const ReferenceRope& want) {
    if (want.inv_freq.empty()) return;
    const RopeFrequencies got = rope_frequencies(config);
    quantity.near(got.inv_freq, want.inv_freq, {"rope"});
    quantity.near(got.attention_factor, want.factor, {"rope factor"});
  };
  compare(runner.info().model.rope, reference.rope);
  compare(runner.info().model.local_rope, reference.local_rope);
  CheckLine line = quantity.line();
  line.dtype = name_of(runner.info().dtype);
  return line;
}

class RecordedReader final : public RowReader {
 public:
  RecordedReader(const std::vector<Recorded>& recorded, DType dtype)
      : recorded_(recorded),
        margin_(dtype == DType::f32 ? 0 : kComfortableMargin),
        logprobs_("logprobs of the answers",
                  dtype == DType::f32 ? kRecordedFloat32 : kRecordedBf16) {}

  void head(ScriptRow row, const Head& got) override {
    const Recorded& want = recorded_[row.script];
    const auto step = row.position - (std::ssize(want.prompt) - 1);
    if (step < 0) return;
    const Origin origin = {want.kind, row.position};
    const int token = value(want.completion[step]);
    logprobs_.near(got.logits[token] - got.stats.logsumexp, want.logprobs[step], origin);
    if (want.margins[step] >= margin_) tokens_.equal(argmax_of(got), token, origin);
  }

  void module_head(ScriptRow row, int module, const Head& got) override {
    const Recorded& want = recorded_[row.script];
    const auto step = row.position - (std::ssize(want.prompt) - 1);
    if (module > 0 || step < 0 || step >= std::ssize(want.drafts)) return;
    if (want.draft_margins[step] >= margin_)
      drafts_.equal(argmax_of(got), value(want.drafts[step]), {want.kind, row.position});
  }

  void report(std::vector<CheckLine>& lines, DType dtype, const std::string& way) const {
    const std::array quantities = {&tokens_, &logprobs_, &drafts_};
    take(lines, quantities, name_of(dtype), way);
  }

 private:
  const std::vector<Recorded>& recorded_;
  const float margin_;
  Quantity tokens_{"tokens of the answers", {}};
  Quantity drafts_{"first drafts", {}};
  Quantity logprobs_;
};

}  // namespace

std::vector<Script> scripts_of(const Reference& reference) {
  std::vector<Script> scripts;
  for (const ReferencePrompt& prompt : reference.prompts) {
    Script script{.prompt = prompt.ids, .fed = {}};
    for (size_t i = 0; i + 1 < prompt.greedy_ids.values.size(); ++i)
      script.fed.push_back(TokenId{prompt.greedy_ids.values[i]});
    scripts.push_back(std::move(script));
  }
  return scripts;
}

std::vector<Script> scripts_of(const std::vector<Recorded>& recorded) {
  std::vector<Script> scripts;
  for (const Recorded& one : recorded)
    scripts.push_back(
        {.prompt = one.prompt, .fed = {one.completion.begin(), one.completion.end() - 1}});
  return scripts;
}

Result<std::vector<CheckLine>> check_reference(Runner& runner, const Reference& reference) {
  const std::vector<Script> scripts = scripts_of(reference);
  const DType dtype = runner.info().dtype;
  std::vector<CheckLine> lines;
  const bool rotates = !reference.rope.inv_freq.empty() || !reference.local_rope.inv_freq.empty();
  if (rotates) lines.push_back(check_rope(runner, reference));
  for (const PlayMode& way : kWays) {
    ReferenceReader reader(reference, runner.info());
    HOCKET_TRY_VOID(play_scripts(runner, scripts, way.options, reader));
    reader.report(lines, dtype, way.name);
  }
  return lines;
}

Result<std::vector<CheckLine>> check_recorded(Runner& runner,
                                              const std::vector<Recorded>& recorded) {
  const std::vector<Script> scripts = scripts_of(recorded);
  const DType dtype = runner.info().dtype;
  std::vector<CheckLine> lines;
  for (const PlayMode& way : kWays) {
    RecordedReader reader(recorded, dtype);
    HOCKET_TRY_VOID(play_scripts(runner, scripts, way.options, reader));
    reader.report(lines, dtype, way.name);
  }
  return lines;
}

}  // namespace hocket
