#include "policy/simulation/trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/mix.h"
#include "base/quantile.h"
#include "base/text_file.h"
#include "core/bounded_json.h"
#include "core/setting_ranges.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

// Returns 0 if the key is missing, because figures are optional.
double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// Returns nullopt unless the value is a whole number that Int can hold; get<Int>() would silently
// give another number.
template <class Int>
std::optional<Int> whole(const Json& value) {
  constexpr double kExact = 9007199254740992;  // beyond 2^53 a double cannot count
  const auto fitting = [](auto v) -> std::optional<Int> {
    if (!std::in_range<Int>(v)) return std::nullopt;
    return static_cast<Int>(v);
  };
  if (value.is_number_unsigned()) return fitting(value.get<uint64_t>());
  if (value.is_number_integer()) return fitting(value.get<int64_t>());
  if (!value.is_number_float()) return std::nullopt;
  const double v = value.get<double>();
  if (!(std::abs(v) <= kExact) || v != std::trunc(v)) return std::nullopt;
  return fitting(static_cast<int64_t>(v));
}

template <class Int>
Result<Int> read_whole(const Json& value, std::string_view name) {
  if (const auto number = whole<Int>(value)) return *number;
  return fail(ErrorCode::bad_value, "{} is {}, must be a whole number from {} to {}", name,
              value.is_number() ? value.dump() : value.type_name(), std::numeric_limits<Int>::min(),
              std::numeric_limits<Int>::max());
}

// Reads one setting; a missing one leaves `to` as it is.
template <class Int>
Result<void> read_optional(const Json& object, const char* key, Int& to) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  HOCKET_TRY(to, read_whole<Int>(*found, key));
  return {};
}

template <class Int>
Result<std::vector<Int>> read_list(const Json& object, const char* key) {
  std::vector<Int> all;
  const auto found = object.find(key);
  if (found == object.end()) return all;
  if (!found->is_array()) return fail(ErrorCode::bad_value, "{} is no list", key);
  for (const Json& value : *found) {
    HOCKET_TRY(const Int one, read_whole<Int>(value, key));
    all.push_back(one);
  }
  return all;
}

// Reads the settings that older logs do not have.
Result<void> read_newer_settings(const Json& j, SchedulerOptions& o) {
  const auto seconds = [&](const char* key, double unit = 1) {
    // A century counts as for ever.
    return from_seconds(std::clamp(unit * number(j, key), 0.0, 3.2e9));
  };
  const char* joins = j.value("enable_mixed_chunk", false) ? "mixed" : "prefill-first";
  HOCKET_TRY(o.prefill_policy, parse_prefill_policy(j.value("prefill_policy", joins)));
  HOCKET_TRY(o.eviction, parse_eviction_policy(j.value("radix_eviction_policy", "lru")));
  o.itl_goal = seconds("itl_slo_ms", 1e-3);
  o.prompt_share = number(j, "prompt_share");
  HOCKET_TRY_VOID(read_optional(j, "max_chunked_requests", o.max_chunked_requests));
  HOCKET_TRY_VOID(read_optional(j, "max_queued_tokens", o.max_queued_tokens));
  HOCKET_TRY_VOID(read_optional(j, "prefill_max_requests", o.prefill_max_requests));
  HOCKET_TRY_VOID(read_optional(j, "max_overtaken", o.max_overtaken));
  o.waiting_timeout = seconds("waiting_timeout");
  o.running_timeout = seconds("running_timeout");
  HOCKET_TRY_VOID(read_optional(j, "in_batch_prefix_check", o.in_batch.max_cached));
  HOCKET_TRY_VOID(read_optional(j, "in_batch_prefix_common", o.in_batch.min_common));
  PriorityOptions& p = o.priorities;
  p.enabled = j.value("enable_priority_scheduling", p.enabled);
  p.low_values_first = j.value("schedule_low_priority_values_first", p.low_values_first);
  p.preempt = !j.value("disable_priority_preemption", !p.preempt);
  HOCKET_TRY_VOID(
      read_optional(j, "priority_scheduling_preemption_threshold", p.preemption_threshold));
  HOCKET_TRY_VOID(read_optional(j, "schedule_seed", o.seed));
  return check(o);
}

Result<SchedulerOptions> read_scheduler(const Json& j) {
  SchedulerOptions o;
  const std::pair<const char*, int*> counts[] = {{"num_pages", &o.num_pages},
                                                 {"page_size", &o.page_tokens},
                                                 {"max_running_requests", &o.max_running_requests},
                                                 {"max_queued_requests", &o.max_queued_requests},
                                                 {"chunked_prefill_size", &o.chunk_tokens},
                                                 {"max_prefill_tokens", &o.max_prefill_tokens}};
  for (const auto& [key, to] : counts) {
    HOCKET_TRY(*to, read_whole<int>(j.at(key), key));
  }
  o.conservativeness = j.at("schedule_conservativeness").get<double>();
  o.prefix_cache = !j.at("disable_radix_cache").get<bool>();
  HOCKET_TRY(o.policy, parse_schedule_policy(j.at("schedule_policy").get<std::string>()));
  HOCKET_TRY_VOID(read_newer_settings(j, o));
  return o;
}

Result<void> read_head(const Json& j, Trace& trace) {
  HOCKET_TRY_VOID(read_optional(j, "max_concurrency", trace.concurrency));
  trace.concurrency = std::clamp(trace.concurrency, 0, 1'000'000);
  trace.since = number(j, "request_rate") > 0 ? Trace::Since::due : Trace::Since::sent;
  if (const auto found = j.find("scheduler"); found != j.end()) {
    HOCKET_TRY(trace.scheduler, read_scheduler(*found));
    trace.policy = trace.scheduler->policy;
    trace.policy_name = found->at("schedule_policy").get<std::string>();
  }
  if (const auto found = j.find("measured"); found != j.end())
    trace.measured = RunFigures{.seconds = number(*found, "seconds"),
                                .output_tokens_per_s = number(*found, "output_tokens_per_s"),
                                .ttft_p50_ms = number(*found, "ttft_p50_ms"),
                                .ttft_p99_ms = number(*found, "ttft_p99_ms"),
                                .itl_p50_ms = number(*found, "itl_p50_ms"),
                                .itl_p99_ms = number(*found, "itl_p99_ms"),
                                .e2e_p50_ms = number(*found, "e2e_p50_ms"),
                                .cached_share = number(*found, "cached_share")};
  return {};
}

// Reads one request; `row` is its line's number, which is unique.
Result<TraceRequest> read_request(const Json& j, int row) {
  TraceRequest request;
  request.due_ms = j.at("timestamp").get<double>();
  HOCKET_TRY(request.input_len, read_whole<int>(j.at("input_length"), "input_length"));
  HOCKET_TRY(request.output_len, read_whole<int>(j.at("output_length"), "output_length"));
  for (const int length : {request.input_len, request.output_len})
    if (length < 1 || length > kMaxTraceTokens)
      return fail(ErrorCode::bad_value, "input_length and output_length are 1 to {}",
                  kMaxTraceTokens);
  if (!(request.due_ms >= 0 && request.due_ms <= kMaxTraceDueMs))
    return fail(ErrorCode::bad_value, "timestamp is {} ms, must be 0 to {}", request.due_ms,
                kMaxTraceDueMs);
  HOCKET_TRY(const auto ids, read_list<uint64_t>(j, "hash_ids"));
  HOCKET_TRY(const auto lengths, read_list<int>(j, "hash_lengths"));
  if (!lengths.empty() && lengths.size() != ids.size())
    return fail(ErrorCode::bad_value, "{} hash_ids but {} hash_lengths", ids.size(),
                lengths.size());
  int remaining = request.input_len;
  for (size_t i = 0; i < ids.size() && remaining > 0; ++i) {
    const int len = lengths.empty() ? std::min(remaining, kTraceBlockTokens) : lengths[i];
    if (len < 0 || len > remaining)
      return fail(ErrorCode::bad_value, "hash_lengths do not add up to input_length {}",
                  request.input_len);
    if (len > 0) request.blocks.push_back({ids[i], len});
    remaining -= len;
  }
  // Tokens without an id are shared with no other request.
  if (remaining > 0) request.blocks.push_back({mix64(~static_cast<uint64_t>(row)), remaining});
  return request;
}

// The record of one text in a dump: when it was asked for, and how long it took.
struct TextTimes {
  double due_ms, ttft_ms, e2e_ms;
  int input_len, output_len, cached_len;
};

std::optional<TextTimes> read_times(const Json& j, const TraceRequest& request) {
  if (!j.contains("e2e_ms") || !j.contains("ttft_ms")) return std::nullopt;
  const double cached =
      std::clamp(number(j, "cached_tokens"), 0.0, static_cast<double>(request.input_len));
  return TextTimes{request.due_ms,    number(j, "ttft_ms"), number(j, "e2e_ms"),
                   request.input_len, request.output_len,   static_cast<int>(cached)};
}

// A dump has no gaps between single tokens, so each text's mean stands for all of its gaps.
RunFigures figures_of(const std::vector<TextTimes>& all) {
  double begin = all.front().due_ms, end = 0, prompt = 0, cached = 0, output = 0;
  std::vector<double> ttft, itl, e2e;
  for (const TextTimes& t : all) {
    begin = std::min(begin, t.due_ms);
    end = std::max(end, t.due_ms + t.e2e_ms);
    prompt += t.input_len;
    cached += t.cached_len;
    output += t.output_len;
    ttft.push_back(t.ttft_ms);
    e2e.push_back(t.e2e_ms);
    for (int i = 1; i < t.output_len; ++i)
      itl.push_back((t.e2e_ms - t.ttft_ms) / (t.output_len - 1));
  }
  const double seconds = (end - begin) / 1e3;
  return {.seconds = seconds,
          .output_tokens_per_s = seconds > 0 ? output / seconds : 0,
          .ttft_p50_ms = quantile(ttft, 0.5),
          .ttft_p99_ms = quantile(ttft, 0.99),
          .itl_p50_ms = quantile(itl, 0.5),
          .itl_p99_ms = quantile(itl, 0.99),
          .e2e_p50_ms = quantile(e2e, 0.5),
          .cached_share = prompt > 0 ? cached / prompt : 0};
}

}  // namespace

Result<Trace> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return fail(error(ErrorCode::io, "the trace {} cannot be read", path)
                    .with_fix("a file of JSON lines: a Mooncake trace, or what bench serving --log "
                              "writes"));
  return read_trace(file, path);
}

Result<Trace> read_trace(std::istream& lines, const std::string& name) {
  Trace trace;
  trace.name = name;
  std::vector<TextTimes> times;
  bool is_dump = false;
  std::string line;
  size_t num_blocks = 0, num_outputs = 0;
  for (int row = 1;; ++row) {
    const Result<bool> more = next_line(lines, line, kMaxTraceLineBytes);
    if (!more) return fail(more.error().code, "line {} of {}: {}", row, name, more.error().message);
    if (!*more) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string what;
    try {
      const Json j = parse_bounded_json<Json>(line);
      if (j.is_discarded()) {
        what = "it is no JSON";
      } else if (j.contains("hocket_log")) {
        is_dump = j.contains("hocket_dump");
        const Result<void> head = read_head(j, trace);
        if (head) continue;
        what = head.error().message;
      } else if (Result<TraceRequest> request = read_request(j, row)) {
        if (const auto seen = is_dump ? read_times(j, *request) : std::nullopt)
          times.push_back(*seen);
        num_blocks += request->blocks.size();
        num_outputs += static_cast<size_t>(request->output_len);
        if (num_blocks > kMaxTraceBlocks || num_outputs > kMaxTraceOutputs ||
            trace.requests.size() == kMaxTraceRequests)
          return fail(ErrorCode::bad_value,
                      "{} has more than {} requests, {} hash_ids or {} tokens of answers", name,
                      kMaxTraceRequests, kMaxTraceBlocks, kMaxTraceOutputs);
        trace.requests.push_back(std::move(*request));
        continue;
      } else {
        what = request.error().message;
      }
    } catch (const Json::exception& e) {
      what = e.what();
    }
    return fail(ErrorCode::bad_value, "line {} of {} is no request of a trace: {}", row, name,
                what);
  }
  if (trace.requests.empty())
    return fail(ErrorCode::bad_value, "the trace {} has no requests", name);
  if (!times.empty()) trace.measured = figures_of(times);
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::due_ms);
  return trace;
}

Result<Trace> make_trace(const SyntheticTraffic& traffic) {
  constexpr NumberRange kLens{.low = 1, .high = kMaxTraceTokens};
  HOCKET_TRY_VOID(check_setting("num-requests", traffic.num_requests));
  HOCKET_TRY_VOID(check_number("input-len", traffic.input_len, kLens));
  HOCKET_TRY_VOID(check_number("output-len", traffic.output_len, kLens));
  HOCKET_TRY_VOID(check_number("shared-prefix", traffic.shared_prefix_len,
                               {.low = 0, .high = kMaxTraceTokens}));
  HOCKET_TRY_VOID(check_number("request-rate", traffic.request_rate, {.low = 0, .high = 1e9}));
  const int64_t longest = int64_t{traffic.input_len} + traffic.shared_prefix_len;
  if (longest > kMaxTraceTokens)
    return fail(error(ErrorCode::bad_value,
                      "--input-len and --shared-prefix together are {} tokens, the limit is {}",
                      longest, kMaxTraceTokens)
                    .with_fix("shorter prompts"));
  uint64_t state = mix64(traffic.seed + 1);
  const auto draw = [&] {  // uniform in [0, 1)
    return static_cast<double>(mix64(state += kMixStep) >> 11) * 0x1p-53;
  };
  const auto length = [&](int most) {
    const int least = (most + 1) / 2;
    return least + static_cast<int>(draw() * (most - least + 1));
  };
  Trace trace;
  trace.name = fmt::format("synthetic, seed {}", traffic.seed);
  double due_ms = 0;
  for (int i = 0; i < traffic.num_requests; ++i) {
    if (traffic.request_rate > 0) due_ms -= std::log(1 - draw()) / traffic.request_rate * 1e3;
    if (due_ms > kMaxTraceDueMs)
      return fail(ErrorCode::bad_value, "--request-rate {} takes more than 31 years",
                  traffic.request_rate);
    TraceRequest request{.due_ms = due_ms};
    const int own = length(traffic.input_len);
    request.input_len = traffic.shared_prefix_len + own;
    request.output_len = length(traffic.output_len);
    if (traffic.shared_prefix_len > 0) request.blocks.push_back({0, traffic.shared_prefix_len});
    request.blocks.push_back({static_cast<uint64_t>(i) + 1, own});
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

std::vector<TokenId> prompt_of(const TraceRequest& request) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.input_len) + static_cast<size_t>(request.output_len));
  for (const TraceRequest::Block& block : request.blocks) {
    const uint64_t begin = mix64(block.id + kMixStep);
    for (int i = 0; i < block.len; ++i) {
      const uint64_t bits = mix64(begin + static_cast<uint64_t>(i) * kMixStep);
      tokens.push_back(TokenId{static_cast<int32_t>(bits >> 33)});
    }
  }
  return tokens;
}

}  // namespace hocket
