#include "policy/simulation/virtual_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include "base/mix.h"
#include "base/quantile.h"

namespace hocket {
namespace {

// The pause of a refused client; the load generator makes the same.
constexpr Duration kRefusedPause = std::chrono::milliseconds(50);
constexpr Duration kMaxRunTime = std::chrono::years(100);

// Limits the time to kMaxSeconds (base/clock.h), so that several can be added without overflow.
Duration from_us(double us) {
  constexpr double kMaxNs = kMaxSeconds * 1e9;
  return Duration(std::llround(std::isnan(us) ? 0 : std::clamp(us * 1e3, -kMaxNs, kMaxNs)));
}

// Requests that arrived while a host computes, or whose pages arrived; they are added behind the
// step.
struct PendingArrival {
  size_t request = 0;
  TimePoint arrived{};
  bool has_pages = false;
};

struct Host {
  explicit Host(const SchedulerOptions& options) : scheduler(options) {}
  Scheduler scheduler;
  const Batch* batch = nullptr;  // the step that is under way
  Duration took{};
  TimePoint ends{};
  TimePoint link_free{};
  std::deque<PendingArrival> inbox;

  // True if the host has nothing to compute but its inbox: it can then admit at once what no event
  // would wake it for.
  bool can_admit() const { return batch == nullptr && scheduler.idle() && !inbox.empty(); }
};

class Run {
 public:
  Run(const Trace& trace, const StepModel& model, const SchedulerOptions& options,
      const VirtualHosts& hosts)
      : trace_(trace),
        model_(model),
        hosts_of_(hosts),
        pool_tokens_(int64_t{options.num_pages} * options.page_tokens),
        page_tokens_(static_cast<size_t>(options.page_tokens)),
        sent_(trace.requests.size()) {
    for (int i = 0; i < hosts.num_prefill + hosts.num_others; ++i)
      hosts_.push_back(std::make_unique<Host>(options));
    // Clients do not begin at the same instant: the first requests of a log say when each begins.
    const int last = static_cast<int>(trace.requests.size()) - 1;
    for (int i = 0; i < trace.concurrency; ++i)
      free_clients_.push(trace.since == Trace::Since::sent ? due(std::min(i, last)) : begin());
    now_ = begin();
  }

  Result<VirtualRun> run() {
    while (true) {
      for (const auto& host : hosts_)
        if (host->batch != nullptr && host->ends <= now_) end_step(*host);
      deliver();
      for (const auto& host : hosts_)
        if (host->batch == nullptr) admit(*host);
      send_due();
      if (now_ - begin() > kMaxRunTime)
        return fail(ErrorCode::bad_value, "the run takes more than 100 years");
      for (const auto& host : hosts_)
        if (host->batch == nullptr) begin_step(*host);
      const auto next = next_event();
      if (next)
        now_ = *next;
      else if (!std::ranges::any_of(hosts_, [](const auto& host) { return host->can_admit(); }))
        break;
    }
    for (const auto& host : hosts_) {
      if (!host->scheduler.idle() || !host->inbox.empty())
        return fail(ErrorCode::bad_value, "{} requests wait, and the scheduler runs none of them",
                    static_cast<size_t>(host->scheduler.stats().num_waiting) + host->inbox.size());
      result_.num_retractions += host->scheduler.stats().num_retracted_total;
    }
    result_.seconds = to_seconds(last_token_ - begin());
    return std::move(result_);
  }

 private:
  struct RequestProgress {
    TimePoint since{}, last{};
    int moved_len = 0;   // tokens whose pages travel, or are there
    int cached_len = 0;  // prefix that the host of its prompt had
    TimePoint pages_at{};
  };

  TimePoint begin() const { return due(0); }
  TimePoint due(size_t i) const { return TimePoint{} + from_us(trace_.requests[i].due_ms * 1e3); }
  bool is_split() const { return hosts_of_.num_prefill > 0; }
  bool prefills(const Host& host) const {
    for (int i = 0; i < hosts_of_.num_prefill; ++i)
      if (hosts_[static_cast<size_t>(i)].get() == &host) return true;
    return false;
  }
  Host& answering(size_t i) {
    const auto others = static_cast<size_t>(hosts_of_.num_others);
    return *hosts_[static_cast<size_t>(hosts_of_.num_prefill) + i % others];
  }
  Host& first_host(size_t i) {
    return is_split() ? *hosts_[i % static_cast<size_t>(hosts_of_.num_prefill)] : answering(i);
  }

  // Returns when the next request of the list is sent; nullopt while all clients wait for answers.
  std::optional<TimePoint> next_sending() const {
    if (next_ == trace_.requests.size()) return std::nullopt;
    if (trace_.concurrency == 0) return due(next_);
    if (free_clients_.empty()) return std::nullopt;
    return trace_.since == Trace::Since::due ? std::max(due(next_), free_clients_.top())
                                             : free_clients_.top();
  }

  std::optional<TimePoint> next_event() const {
    std::optional<TimePoint> next;
    const auto note = [&](TimePoint at) { next = std::min(next.value_or(at), at); };
    for (const auto& host : hosts_)
      if (host->batch != nullptr) note(host->ends);
    if (const auto at = next_sending()) note(std::max(now_ + Duration(1), *at));
    if (!on_the_way_.empty()) note(std::max(now_ + Duration(1), on_the_way_.top().first));
    return next;
  }

  void send_due() {
    for (auto at = next_sending(); at && *at <= now_; at = next_sending()) {
      const size_t i = next_++;
      if (trace_.concurrency > 0) free_clients_.pop();
      sent_[i].since = trace_.since == Trace::Since::due ? due(i) : *at;
      Host& host = first_host(i);
      const PendingArrival arrival{.request = i, .arrived = *at};
      if (trace_.requests[i].input_len > pool_tokens_)  // its prompt need not be made
        refuse(*at);
      else if (host.batch != nullptr)
        host.inbox.push_back(arrival);
      else
        add(host, arrival);
    }
  }

  void refuse(TimePoint arrived) {
    ++result_.num_refused;
    free_client(arrived + kRefusedPause);
  }

  RequestInput input_of(const PendingArrival& arrival) const {
    const TraceRequest& wanted = trace_.requests[arrival.request];
    RequestInput input;
    input.id = RequestId{arrival.request};
    input.prompt = prompt_of(wanted);
    input.sampling.max_new_tokens = is_split() && !arrival.has_pages ? 1 : wanted.output_len;
    input.sampling.ignore_eos = true;
    input.arrived = arrival.arrived;
    return input;
  }

  void add(Host& host, const PendingArrival& arrival) {
    if (!host.scheduler.add(input_of(arrival))) refuse(arrival.arrived);
  }

  // Adds what arrived during the step. Prompts whose pages find no room wait for those that run.
  void admit(Host& host) {
    while (!host.inbox.empty()) {
      const PendingArrival arrival = host.inbox.front();
      if (arrival.has_pages) {
        const int len = trace_.requests[arrival.request].input_len;
        const auto room = host.scheduler.num_available_pages() * static_cast<int64_t>(page_tokens_);
        if (len > room && !host.scheduler.idle()) return;
        const std::vector<TokenId> prompt = prompt_of(trace_.requests[arrival.request]);
        const auto whole = std::span(prompt).first(prompt.size() / page_tokens_ * page_tokens_);
        const bool restored = host.scheduler.restore(
            {}, whole, static_cast<int>(whole.size() / page_tokens_), [](auto) {});
        if (!restored && !host.scheduler.idle()) return;
      }
      host.inbox.pop_front();
      add(host, arrival);
    }
  }

  void begin_step(Host& host) {
    const Batch& batch = host.scheduler.schedule(now_);
    if (!batch.empty()) {
      host.batch = &batch;
      host.took = from_us(model_.us(model_.work_of(batch)));
      host.ends = now_ + host.took;
    } else {
      collect(host);
    }
  }

  void end_step(Host& host) {
    const Batch& batch = *std::exchange(host.batch, nullptr);
    const bool prompts_alone = prefills(host);
    ++result_.num_steps;
    sampled_.clear();
    for (const Slice& slice : batch.slices) {
      const size_t i = value(slice.request->id);
      if (prompts_alone) move_pages(host, slice, i);
      if (!slice.is_sampled) continue;
      if (!prompts_alone) note_token(sent_[i], slice.request->generated() == 0);
      // The token differs from those of other requests and is no end token.
      const uint64_t bits = mix64((i << 32) + static_cast<uint64_t>(slice.begin));
      sampled_.push_back({.token = TokenId{static_cast<int32_t>(bits >> 33)}});
    }
    last_token_ = now_;
    host.scheduler.note_duration(batch, host.took);
    host.scheduler.commit(batch, sampled_, now_);
    collect(host);
  }

  // The pages of the rows travel, and those before them that the other host lacks.
  void move_pages(Host& host, const Slice& slice, size_t i) {
    Host& to = answering(i);
    RequestProgress& sent = sent_[i];
    if (sent.moved_len == 0) sent.moved_len = to.scheduler.in_tree_len({}, slice.request->tokens);
    const int end = slice.begin + slice.len;
    const double bytes = hosts_of_.kv_bytes_per_token * std::max(0, end - sent.moved_len);
    sent.moved_len = std::max(sent.moved_len, end);
    const TimePoint free = std::max({now_, host.link_free, to.link_free});
    host.link_free = to.link_free = sent.pages_at =
        free + from_us(1e6 * bytes / hosts_of_.link_bytes_per_s);
  }

  void deliver() {
    for (; !on_the_way_.empty() && on_the_way_.top().first <= now_; on_the_way_.pop()) {
      const auto& [at, i] = on_the_way_.top();
      answering(i).inbox.push_back({.request = i, .arrived = at, .has_pages = true});
    }
  }

  void note_token(RequestProgress& sent, bool first) {
    (first ? result_.ttft_ms : result_.itl_ms)
        .push_back(to_ms(now_ - (first ? sent.since : sent.last)));
    sent.last = now_;
  }

  void collect(Host& host) {
    const bool prompts_alone = prefills(host);
    for (const auto& request : host.scheduler.take_finished()) {
      const size_t i = value(request->id);
      const bool ok = request->finish == FinishReason::length;
      if (!prompts_alone || !ok) free_client(now_ + from_us(model_.turnaround_us));
      if (!ok) {
        ++result_.num_failed;
      } else if (prompts_alone) {
        sent_[i].cached_len = request->cached_len;
        on_the_way_.emplace(std::max(now_, sent_[i].pages_at), i);
      } else {
        ++result_.num_ok;
        result_.prompt_tokens += request->prompt_len;
        result_.cached_tokens += is_split() ? sent_[i].cached_len : request->cached_len;
        result_.output_tokens += request->generated();
        result_.e2e_ms.push_back(to_ms(now_ - sent_[i].since));
      }
    }
  }

  void free_client(TimePoint at) {
    if (trace_.concurrency > 0) free_clients_.push(at);
  }

  using Arrival = std::pair<TimePoint, size_t>;  // pages of a request

  const Trace& trace_;
  const StepModel& model_;
  const VirtualHosts hosts_of_;
  std::vector<std::unique_ptr<Host>> hosts_;  // those for prompts come first
  const int64_t pool_tokens_;
  const size_t page_tokens_;
  TimePoint now_{}, last_token_ = begin();
  size_t next_ = 0;  // the first request that was not sent yet
  std::vector<RequestProgress> sent_;
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> free_clients_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> on_the_way_;
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
                                       const SchedulerOptions& options, const VirtualHosts& hosts) {
  return Run(trace, model, options, hosts).run();
}

}  // namespace hocket
