#include "bench/load.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kWords = {
    "fox",   "lantern", "river", "small", "walked", "under", "the",   "bridge", "and",  "found",
    "a",     "letter",  "seven", "days",  "ago",    "count", "apple", "green",  "what", "is",
    "north", "of",      "old",   "house", "sings",  "rain",  "told",  "me",     "to",   "wait"};

struct PromptBody {
  Json body;
  int output_len = 0;
};

// Makes the body of request i as a function of the seed and i alone.
class PromptMaker {
 public:
  explicit PromptMaker(const LoadOptions& options) : options_(options) {
    std::mt19937_64 random(options.seed);
    if (options.endpoint == Endpoint::chat)
      prefix_text_ = words(options.shared_prefix_len, random);
    else
      prefix_ = ids(options.shared_prefix_len, random);
  }

  PromptBody make(int i) const {
    std::seed_seq seeds{options_.seed, static_cast<uint64_t>(i) + 1};
    std::mt19937_64 random(seeds);
    const int input_len = length(options_.input_len, random);
    PromptBody prompt;
    prompt.output_len = length(options_.output_len, random);
    Json sampling = {{"temperature", options_.temperature},
                     {"ignore_eos", true},
                     {"seed", static_cast<int64_t>(random() >> 2)}};
    if (options_.endpoint == Endpoint::generate) {
      sampling["max_new_tokens"] = prompt.output_len;
      prompt.body = {{"input_ids", with_prefix(ids(input_len, random))},
                     {"sampling_params", std::move(sampling)},
                     {"stream", true}};
      return prompt;
    }
    prompt.body = std::move(sampling);
    prompt.body.update({{"max_tokens", prompt.output_len},
                        {"stream", true},
                        {"stream_options", {{"include_usage", true}}},
                        {"return_token_ids", true}});
    if (options_.endpoint == Endpoint::completions) {
      prompt.body["prompt"] = with_prefix(ids(input_len, random));
      return prompt;
    }
    Json messages = Json::array();
    if (!prefix_text_.empty()) messages.push_back({{"role", "system"}, {"content", prefix_text_}});
    messages.push_back({{"role", "user"}, {"content", words(input_len, random)}});
    prompt.body["messages"] = std::move(messages);
    return prompt;
  }

 private:
  using Random = std::mt19937_64;

  int length(int most, Random& random) const {
    const int least = std::max(1, static_cast<int>(options_.range_ratio * most));
    return std::uniform_int_distribution<int>(std::min(least, most), most)(random);
  }
  std::vector<int> ids(int count, Random& random) const {
    std::uniform_int_distribution<int> token(0, options_.vocab_size - 1);
    std::vector<int> list(count);
    for (int& id : list) id = token(random);
    return list;
  }
  static std::string words(int count, Random& random) {
    std::uniform_int_distribution<size_t> word(0, kWords.size() - 1);
    std::string text;
    for (int i = 0; i < count; ++i) text += (i == 0 ? "" : " ") + std::string(kWords[word(random)]);
    return text;
  }
  std::vector<int> with_prefix(const std::vector<int>& tail) const {
    std::vector<int> all = prefix_;
    all.insert(all.end(), tail.begin(), tail.end());
    return all;
  }

  const LoadOptions& options_;
  std::vector<int> prefix_;
  std::string prefix_text_;
};

// Gives out the requests: the next index and the time when it is due.   Thread: any.
class Arrivals {
 public:
  explicit Arrivals(const LoadOptions& options) : options_(options), random_(options.seed) {}

  TimePoint start() const { return start_; }

  struct Arrival {
    int index;
    TimePoint due;
  };
  std::optional<Arrival> next() {
    MutexLock lock(mutex_);
    TimePoint due = RealClock().now();
    if (options_.request_rate > 0) {
      gaps_ += std::exponential_distribution<double>(options_.request_rate)(random_);
      due = start_ + from_seconds(gaps_);
    }
    const bool over = options_.seconds > 0 ? due > start_ + from_seconds(options_.seconds)
                                           : index_ == options_.num_prompts;
    if (over) return std::nullopt;
    return Arrival{index_++, due};
  }

 private:
  const LoadOptions& options_;
  const TimePoint start_ = RealClock().now();
  Mutex mutex_;
  std::mt19937_64 random_ HOCKET_GUARDED_BY(mutex_);
  double gaps_ HOCKET_GUARDED_BY(mutex_) = 0;
  int index_ HOCKET_GUARDED_BY(mutex_) = 0;
};

// Reads one streamed answer, event by event.
class StreamedAnswer {
 public:
  StreamedAnswer(Endpoint endpoint, TimePoint due) : endpoint_(endpoint), last_(due), due_(due) {}

  void event(std::string_view data) {
    const TimePoint now = RealClock().now();
    if (data == kSseDone) {
      done_ = true;
      return;
    }
    int fresh = 0;
    try {
      const Json block = Json::parse(data);
      if (block.contains("error")) return note("in stream: " + error_code(block));
      fresh = endpoint_ == Endpoint::generate ? read_generate(block) : read_openai(block);
    } catch (const Json::exception&) {
      return note("event of another form");
    }
    if (fresh == 0) return;
    (tokens_ == 0 ? ttft_ms_ : itl_ms_.emplace_back()) = to_ms(now - last_);
    tokens_ += fresh;
    last_ = now;
  }

  // Adds this answer to `result`, as a good answer or as an error.
  void finish(const Result<HttpAnswer>& answer, int output_len, int index, LoadResult& result) {
    if (!answer)
      note(answer.error().code == ErrorCode::request_timeout ? "time-out" : "connection");
    else if (answer->status != 200)
      note(fmt::format("http {} {}", answer->status,
                       error_code(Json::parse(answer->body, nullptr, false))));
    else if (!done_)
      note("stream without an end");
    else if (finish_ != "length")
      note("finish_reason " + finish_);
    else if (tokens_ != output_len)
      note("wrong number of tokens");
    if (!error_.empty()) {
      ++result.num_failed;
      ++result.errors[error_];
      return;
    }
    ++result.num_ok;
    result.prompt_tokens += prompt_tokens_;
    result.cached_tokens += cached_tokens_;
    result.output_tokens += tokens_;
    result.ttft_ms.push_back(ttft_ms_);
    result.e2e_ms.push_back(to_ms(RealClock().now() - due_));
    result.itl_ms.insert(result.itl_ms.end(), itl_ms_.begin(), itl_ms_.end());
    result.answered.push_back({.index = index,
                               .input_len = prompt_tokens_,
                               .cached_len = cached_tokens_,
                               .output_len = tokens_,
                               .ttft_ms = ttft_ms_,
                               .e2e_ms = result.e2e_ms.back()});
  }

 private:
  void note(std::string kind) {
    if (error_.empty()) error_ = std::move(kind);
  }
  static std::string error_code(const Json& body) {
    if (!body.is_object()) return "";
    const Json code = body.value("/error/code"_json_pointer, Json());
    return code.is_string() ? code.get<std::string>() : "";
  }

  // Both return the number of new tokens in the block.
  int read_openai(const Json& block) {
    if (const Json usage = block.value("usage", Json()); usage.is_object()) {
      prompt_tokens_ = usage.value("prompt_tokens", 0);
      cached_tokens_ = usage.value("/prompt_tokens_details/cached_tokens"_json_pointer, 0);
    }
    const Json choices = block.value("choices", Json::array());
    if (choices.empty()) return 0;
    const Json& choice = choices.front();
    if (const Json finish = choice.value("finish_reason", Json()); finish.is_string())
      finish_ = finish.get<std::string>();
    return static_cast<int>(choice.value("token_ids", Json::array()).size());
  }
  int read_generate(const Json& block) {
    const Json meta = block.value("meta_info", Json::object());
    prompt_tokens_ = meta.value("prompt_tokens", 0);
    cached_tokens_ = meta.value("cached_tokens", 0);
    if (const Json finish = meta.value("finish_reason", Json()); finish.is_object())
      finish_ = finish.value("type", "");
    return meta.value("completion_tokens", 0) - tokens_;
  }

  const Endpoint endpoint_;
  TimePoint last_;
  const TimePoint due_;
  bool done_ = false;
  std::string finish_ = "none", error_;
  int tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  double ttft_ms_ = 0;
  std::vector<double> itl_ms_;
};

const char* path_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::chat:
      return "/v1/chat/completions";
    case Endpoint::completions:
      return "/v1/completions";
    case Endpoint::generate:
      break;
  }
  return "/generate";
}

// Runs one client: a connection of its own, one request at a time.
void run_client(const LoadOptions& options, const PromptMaker& prompts, Arrivals& arrivals,
                LoadResult& result) {
  BlockingHttpClient client(options.server);
  while (const auto arrival = arrivals.next()) {
    const PromptBody prompt = prompts.make(arrival->index);
    const std::string body = prompt.body.dump();
    std::this_thread::sleep_until(arrival->due);
    // Without a rate, the clock starts after the body was made. With one, it starts when the
    // request was due, so that a late client counts as latency.
    const TimePoint since = options.request_rate > 0 ? arrival->due : RealClock().now();
    StreamedAnswer answer(options.endpoint, since);
    const int num_ok = result.num_ok;
    const auto got = client.stream(path_of(options.endpoint), body,
                                   [&](std::string_view data) { answer.event(data); });
    answer.finish(got, prompt.output_len, arrival->index, result);
    if (result.num_ok > num_ok) result.answered.back().due_ms = to_ms(since - arrivals.start());
    // After a refusal the client waits, so that it does not ask in a tight loop.
    if (!got || got->status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void add(LoadResult& sum, const LoadResult& part) {
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  sum.num_ok += part.num_ok;
  sum.num_failed += part.num_failed;
  sum.prompt_tokens += part.prompt_tokens;
  sum.cached_tokens += part.cached_tokens;
  sum.output_tokens += part.output_tokens;
  append(sum.ttft_ms, part.ttft_ms);
  append(sum.itl_ms, part.itl_ms);
  append(sum.e2e_ms, part.e2e_ms);
  sum.answered.insert(sum.answered.end(), part.answered.begin(), part.answered.end());
  for (const auto& [kind, count] : part.errors) sum.errors[kind] += count;
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view name) {
  if (name == "chat") return Endpoint::chat;
  if (name == "completions") return Endpoint::completions;
  if (name == "generate") return Endpoint::generate;
  return fail(
      error(ErrorCode::bad_value, "--endpoint {} is not one of chat, completions, generate", name)
          .with_param("endpoint"));
}

LoadResult run_load(const LoadOptions& options) {
  const PromptMaker prompts(options);
  std::vector<LoadResult> parts(options.max_concurrency);
  const TimePoint start = RealClock().now();
  Arrivals arrivals(options);
  {
    std::vector<std::jthread> clients;
    for (LoadResult& part : parts)
      clients.emplace_back([&] { run_client(options, prompts, arrivals, part); });
  }
  LoadResult result;
  for (const LoadResult& part : parts) add(result, part);
  result.seconds = to_seconds(RealClock().now() - start);
  std::ranges::sort(result.answered, {}, &AnsweredRequest::index);
  return result;
}

}  // namespace hocket
