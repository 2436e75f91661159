#include "policy/simulation/virtual_run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "base/mix.h"
#include "base/quantile.h"

namespace hocket {
namespace {

// The pause of a refused client; the load generator makes the same.
constexpr Duration kRefusedPause = std::chrono::milliseconds(50);
constexpr Duration kLongest = std::chrono::years(100);

// Limits the time to kMaxSeconds (base/clock.h), so that several can be added without overflow.
Duration from_us(double us) {
  constexpr double kMaxNs = kMaxSeconds * 1e9;
  return Duration(std::llround(std::isnan(us) ? 0 : std::clamp(us * 1e3, -kMaxNs, kMaxNs)));
}

class Run {
 public:
  Run(const Trace& trace, const StepModel& model, const SchedulerOptions& options)
      : trace_(trace),
        model_(model),
        scheduler_(options),
        pool_tokens_(int64_t{options.num_pages} * options.page_tokens),
        sent_(trace.requests.size()) {
    // Clients do not begin at the same instant: the first requests of a log say when each begins.
    const int last = static_cast<int>(trace.requests.size()) - 1;
    for (int i = 0; i < trace.concurrency; ++i)
      free_clients_.push(trace.since == Trace::Since::sent ? due(std::min(i, last)) : begin());
    now_ = begin();
  }

  Result<VirtualRun> run() {
    TimePoint last_token = now_;
    while (true) {
      send_due();
      if (now_ - begin() > kLongest)
        return fail(ErrorCode::bad_value, "the run takes more than 100 years");
      const Batch& batch = scheduler_.schedule(now_);
      if (!batch.empty()) {
        step(batch);
        last_token = now_;
      }
      collect();
      if (!batch.empty()) continue;
      if (const auto next = next_sending()) {
        now_ = std::max(now_ + Duration(1), *next);
      } else if (scheduler_.idle()) {
        break;
      } else {
        return fail(ErrorCode::bad_value, "{} requests wait, and the scheduler runs none of them",
                    scheduler_.stats().num_waiting);
      }
    }
    result_.seconds = to_seconds(last_token - begin());
    result_.num_retractions = scheduler_.stats().num_retracted_total;
    return std::move(result_);
  }

 private:
  struct Sent {
    TimePoint since{}, last{};
  };

  TimePoint begin() const { return due(0); }
  TimePoint due(size_t i) const { return TimePoint{} + from_us(trace_.requests[i].due_ms * 1e3); }

  // Returns when the next request of the list is sent; nullopt while all clients wait for answers.
  std::optional<TimePoint> next_sending() const {
    if (next_ == trace_.requests.size()) return std::nullopt;
    if (trace_.concurrency == 0) return due(next_);
    if (free_clients_.empty()) return std::nullopt;
    return trace_.since == Trace::Since::due ? std::max(due(next_), free_clients_.top())
                                             : free_clients_.top();
  }

  void send_due() {
    for (auto at = next_sending(); at && *at <= now_; at = next_sending()) {
      const size_t i = next_++;
      const TraceRequest& wanted = trace_.requests[i];
      if (trace_.concurrency > 0) free_clients_.pop();
      sent_[i].since = trace_.since == Trace::Since::due ? due(i) : *at;
      if (wanted.input_len > pool_tokens_) {  // its prompt need not be made
        ++result_.num_refused;
        free_client(*at + kRefusedPause);
        continue;
      }
      RequestInput input;
      input.id = RequestId{i};
      input.prompt = prompt_of(wanted);
      input.sampling.max_new_tokens = wanted.output_len;
      input.sampling.ignore_eos = true;
      input.arrived = *at;
      if (scheduler_.add(std::move(input))) continue;
      ++result_.num_refused;
      free_client(*at + kRefusedPause);
    }
  }

  void step(const Batch& batch) {
    const Duration took = from_us(model_.us(model_.work_of(batch)));
    now_ += took;
    ++result_.num_steps;
    sampled_.clear();
    for (const Slice& slice : batch.slices) {
      if (!slice.is_sampled) continue;
      const size_t i = value(slice.request->id);
      note_token(sent_[i], slice.request->generated() == 0);
      // The token differs from those of other requests and is no end token.
      const uint64_t bits = mix64((i << 32) + static_cast<uint64_t>(slice.begin));
      sampled_.push_back({.token = TokenId{static_cast<int32_t>(bits >> 33)}});
    }
    scheduler_.note_duration(batch, took);
    scheduler_.commit(batch, sampled_, now_);
  }

  void note_token(Sent& sent, bool first) {
    (first ? result_.ttft_ms : result_.itl_ms)
        .push_back(to_ms(now_ - (first ? sent.since : sent.last)));
    sent.last = now_;
  }

  void collect() {
    for (const auto& request : scheduler_.take_finished()) {
      free_client(now_ + from_us(model_.turnaround_us));
      if (request->finish != FinishReason::length) {
        ++result_.num_failed;
        continue;
      }
      ++result_.num_ok;
      result_.prompt_tokens += request->prompt_len;
      result_.cached_tokens += request->cached_len;
      result_.output_tokens += request->generated();
      result_.e2e_ms.push_back(to_ms(now_ - sent_[value(request->id)].since));
    }
  }

  void free_client(TimePoint at) {
    if (trace_.concurrency > 0) free_clients_.push(at);
  }

  const Trace& trace_;
  const StepModel& model_;
  Scheduler scheduler_;
  const int64_t pool_tokens_;
  TimePoint now_{};
  size_t next_ = 0;  // the first request that was not sent yet
  std::vector<Sent> sent_;
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> free_clients_;
  std::vector<SampledToken> sampled_;
  VirtualRun result_;
};

}  // namespace

RunFigures VirtualRun::figures() const {
  const auto share = [](int64_t part, int64_t all) {
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
  };
  return {.seconds = seconds,
          .output_tokens_per_s = seconds == 0 ? 0 : static_cast<double>(output_tokens) / seconds,
          .ttft_p50_ms = quantile(ttft_ms, 0.5),
          .ttft_p99_ms = quantile(ttft_ms, 0.99),
          .itl_p50_ms = quantile(itl_ms, 0.5),
          .itl_p99_ms = quantile(itl_ms, 0.99),
          .e2e_p50_ms = quantile(e2e_ms, 0.5),
          .cached_share = share(cached_tokens, prompt_tokens)};
}

Result<VirtualRun> run_in_virtual_time(const Trace& trace, const StepModel& model,
                                       const SchedulerOptions& options) {
  return Run(trace, model, options).run();
}

}  // namespace hocket
