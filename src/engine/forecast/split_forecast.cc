#include "engine/forecast/split_forecast.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hocket {
namespace {

constexpr int kMaxAnswers = 1024;

// The speed of one host for prompts of one length.
class HostSpeed {
 public:
  HostSpeed(const Forecast& forecast, const MachineSpeed& speed, int prompt_len, int answer_len)
      : cost_(forecast.cost),
        speed_(speed),
        prompt_len_(prompt_len),
        answer_len_(answer_len),
        context_(prompt_len + answer_len / 2.0),
        chunk_(std::clamp(forecast.memory.work.max_rows, 1, prompt_len)),
        max_answers_(static_cast<int>(std::clamp<int64_t>(
            forecast.fitting_tokens / (prompt_len + answer_len), 0, kMaxAnswers))) {}

  double prompts_per_s() const {
    return chunk_ / (prompt_len_ * cost_.seconds(prompt_rows(chunk_), speed_));
  }

  // Returns answers a second where nothing else is computed.
  double answers_per_s(double interval_s) const {
    double best = 0;
    for (int batch = 1; batch <= max_answers_; batch = next(batch)) {
      const double step_s = cost_.seconds(answer_rows(batch), speed_);
      if (step_s > interval_s) break;
      best = std::max(best, batch / (answer_len_ * step_s));
    }
    return best;
  }

  // Returns requests a second of a host that computes both.
  double requests_per_s(double interval_s) const {
    double best = 0;
    for (int batch = 1; batch <= max_answers_; batch = next(batch)) {
      const double plain_s = cost_.seconds(answer_rows(batch), speed_);
      const int rows = rows_within(batch, interval_s);
      if (rows == 0) break;
      // While the prompt is computed, the answers beside it continue; what they lack then is
      // computed in steps without it.
      const double with_prompt = static_cast<double>(prompt_len_) / rows;
      const double without = std::max(0.0, static_cast<double>(answer_len_) / batch - with_prompt);
      best = std::max(best, 1 / (with_prompt * step_seconds(batch, rows) + without * plain_s));
    }
    return best;
  }

 private:
  static int next(int batch) { return batch < 8 ? batch + 1 : batch + batch / 8; }
  PassShape prompt_rows(double rows) const {
    return cost_.prefill(rows, std::max(0.0, prompt_len_ / 2.0 - rows / 2));
  }
  PassShape answer_rows(double batch) const { return cost_.decode(batch, context_); }

  // Returns the time of a step with both: weights are read once, operations add up.
  double step_seconds(int batch, int rows) const {
    const PassShape prompt = prompt_rows(rows), answers = answer_rows(batch);
    PassShape both = prompt;
    both.rows += answers.rows;
    both.sequences += answers.sequences;
    both.experts_hit = cost_.expected_experts(both.rows);
    both.kv_tokens += answers.kv_tokens;
    both.pairs += answers.pairs;
    both.outputs += answers.outputs;
    Operations operations = cost_.operations(prompt);
    operations += cost_.operations(answers);
    return ModelCost::seconds(cost_.bytes(both), operations, speed_);
  }

  // Returns how many rows of a prompt fit into a step beside the answers; 0: none do.
  int rows_within(int batch, double interval_s) const {
    if (step_seconds(batch, chunk_) <= interval_s) return chunk_;
    int fits = 0, too_many = chunk_;
    while (too_many - fits > 1) {
      const int middle = fits + (too_many - fits) / 2;
      (step_seconds(batch, middle) <= interval_s ? fits : too_many) = middle;
    }
    return fits;
  }

  const ModelCost& cost_;
  const MachineSpeed& speed_;
  const int prompt_len_, answer_len_;
  const double context_;  // tokens that an answer sees in the mean
  const int chunk_;       // rows of a prompt that one step takes at most
  const int max_answers_;
};

SplitPoint best_split(const Forecast& forecast, const HostSpeed& host, const SplitForecastInput& q,
                      SplitPoint point) {
  point.mixed_per_s = q.num_hosts * host.requests_per_s(point.interval_s);
  const double page_bytes =
      static_cast<double>(forecast.cost.kv_bytes_per_token()) * point.prompt_len;
  for (int prefill = 1; prefill < q.num_hosts; ++prefill) {
    const int decode = q.num_hosts - prefill;
    const double moved = std::min(prefill, decode) * q.link_bytes_per_s / page_bytes;
    const double found = std::min(
        {prefill * host.prompts_per_s(), decode * host.answers_per_s(point.interval_s), moved});
    if (found <= point.split_per_s) continue;
    point.split_per_s = found;
    point.num_prefill = prefill;
  }
  return point;
}

}  // namespace

std::vector<SplitPoint> forecast_split(const Forecast& forecast, const MachineSpeed& speed,
                                       const SplitForecastInput& input) {
  HOCKET_CHECK((input.num_hosts >= 2 && input.answer_len > 0 && forecast.fits()));
  std::vector<SplitPoint> points;
  for (const int prompt_len : input.prompt_lens) {
    HOCKET_CHECK(prompt_len > 0);
    const HostSpeed host(forecast, speed, prompt_len, input.answer_len);
    for (const double interval_s : input.interval_s)
      points.push_back(
          best_split(forecast, host, input, {.prompt_len = prompt_len, .interval_s = interval_s}));
  }
  return points;
}

}  // namespace hocket
