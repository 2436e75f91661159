#include "bench/replay.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/mutex.h"
#include "base/text_file.h"
#include "server/http/sse.h"
#include "server/observe/request_record.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

// Limits of a line, which has one body, and of a file: many times --dump-requests-bytes.
constexpr size_t kMaxLineBytes = 64 << 20, kMaxBytes = size_t{2} << 30;

bool is_openai(std::string_view path) {
  return path == "/v1/chat/completions" || path == "/v1/completions";
}
bool tells_ids(std::string_view path) {
  return is_openai(path) || path == "/generate";
}

// Adds the seed that was drawn, so that the answer can be the same, and asks for token ids, so that
// it can be compared.
void ask_for_the_same(const std::string& path, const Json& line, Json& body) {
  const bool seeded = line.contains("seed");
  if (is_openai(path)) {
    body["return_token_ids"] = true;
    if (seeded && !body.contains("seed") && !body.contains("sampling_seed"))
      body["seed"] = line["seed"];
    return;
  }
  if (path != "/generate" || !seeded) return;
  Json& sampling = body["sampling_params"];
  if (sampling.is_null()) sampling = Json::object();
  if (sampling.is_object() && !sampling.contains("seed") && !sampling.contains("sampling_seed"))
    sampling["seed"] = line["seed"];
}

// Adds one line of a dump to `dump`. Returns false if the request's body was not kept.
bool read_line(const Json& line, std::map<std::string, size_t>& by_id, Dump& dump) {
  const auto id = line.at("id").get<std::string>();
  const bool whole = line.at("status") == 200;
  if (line.at("choice") != 0) {
    const auto first = by_id.find(id);
    if (first != by_id.end() && !dump.requests[first->second].ids_hashes.empty())
      dump.requests[first->second].ids_hashes.push_back(line.at("ids_hash").get<std::string>());
    return true;
  }
  Json body = line.at("body");
  if (!body.is_object()) return false;
  DumpedRequest request;
  request.due_ms = line.at("timestamp").get<double>();
  request.path = line.at("path").get<std::string>();
  request.stream = line.at("stream").get<bool>();
  request.ttft_ms = line.at("ttft_ms").get<double>();
  request.e2e_ms = line.at("e2e_ms").get<double>();
  ask_for_the_same(request.path, line, body);
  request.body = body.dump();
  if (whole && tells_ids(request.path))
    request.ids_hashes.push_back(line.at("ids_hash").get<std::string>());
  by_id[id] = dump.requests.size();
  dump.requests.push_back(std::move(request));
  return true;
}

Result<void> read_file(const std::string& path, Dump& dump) {
  std::ifstream file(path);
  if (!file)
    return fail(error(ErrorCode::io, "the dump {} cannot be read", path)
                    .with_fix("a hocket-requests-*.jsonl of --dump-requests-folder"));
  std::map<std::string, size_t> by_id;
  std::string line;
  size_t num_bytes = 0;
  for (int row = 1;; ++row) {
    const Result<bool> more = next_line(file, line, kMaxLineBytes);
    if (!more) return fail(more.error().code, "line {} of {}: {}", row, path, more.error().message);
    if (!*more) break;
    num_bytes += line.size();
    if (num_bytes > kMaxBytes)
      return fail(ErrorCode::bad_value, "{} has more than {} bytes", path, kMaxBytes);
    if (json_shape(line).too_deep())
      return fail(ErrorCode::bad_value, "line {} of {} is nested deeper than {}", row, path,
                  kMaxJsonDepth);
    try {
      const Json json = Json::parse(line);
      const bool is_head = json.contains("hocket_log");
      if (is_head && !json.contains("hocket_dump"))
        return fail(
            error(ErrorCode::bad_value, "{} has lengths of requests and not their texts", path)
                .with_fix("hocket replay --virtual, or a dump of --dump-requests-folder"));
      if (!is_head && !read_line(json, by_id, dump)) ++dump.num_left_out;
    } catch (const Json::exception& e) {
      // A server that was killed may leave half a line at the end.
      if (file.peek() == std::ifstream::traits_type::eof()) break;
      return fail(ErrorCode::bad_value, "line {} of {} is no request of a dump: {}", row, path,
                  e.what());
    }
  }
  return {};
}

// Collects the token ids of an answer, by choice.
class AnswerIds {
 public:
  explicit AnswerIds(std::string_view path) : is_generate_(path == "/generate") {}

  void read(const Json& block) {
    if (is_generate_) return read_generate(block);
    if (!block.is_object() || !block.contains("choices")) return;
    for (const Json& choice : block["choices"]) {
      auto& ids = by_choice_[choice.value("index", size_t{0})];
      if (const auto found = choice.find("token_ids"); found != choice.end())
        for (const Json& id : *found) ids.push_back(TokenId{id.get<int32_t>()});
    }
  }
  std::vector<std::string> hashes() const {
    std::vector<std::string> all;
    for (const auto& [choice, ids] : by_choice_)
      all.push_back(fmt::format("{:016x}", hash_of_ids(ids)));
    return all;
  }

 private:
  // Each block of /generate holds all ids so far.
  void read_generate(const Json& block) {
    if (block.is_array()) {
      for (size_t i = 0; i < block.size(); ++i) keep(i, block[i]);
    } else {
      keep(block.value("index", size_t{0}), block);
    }
  }
  void keep(size_t choice, const Json& block) {
    if (!block.is_object() || !block.contains("output_ids")) return;
    std::vector<TokenId>& ids = by_choice_[choice];
    ids.clear();
    for (const Json& id : block["output_ids"]) ids.push_back(TokenId{id.get<int32_t>()});
  }

  const bool is_generate_;
  std::map<size_t, std::vector<TokenId>> by_choice_;
};

// The result of sending one request again.
struct Attempt {
  std::string error;  // the kind of error; empty: the request succeeded
  double ttft_ms = 0, e2e_ms = 0;
  std::vector<std::string> hashes;
};

Attempt ask(BlockingHttpClient& client, const DumpedRequest& request) {
  const TimePoint sent = RealClock().now();
  Attempt attempt;
  AnswerIds ids(request.path);
  bool done = false;
  const auto take = [&](std::string_view data) {
    if (attempt.ttft_ms == 0) attempt.ttft_ms = to_ms(RealClock().now() - sent);
    done = true;
    if (data == kSseDone) return;
    const Json block = Json::parse(data, nullptr, false);
    if (block.is_object() && block.contains("error") && !block["error"].is_null())
      attempt.error = "in stream";
    else
      ids.read(block);
  };
  const auto answer = request.stream ? client.stream(request.path, request.body, take)
                                     : client.post(request.path, request.body);
  attempt.e2e_ms = to_ms(RealClock().now() - sent);
  if (!answer) {
    attempt.error = answer.error().code == ErrorCode::request_timeout ? "time-out" : "connection";
  } else if (answer->status != 200) {
    const Json said = Json::parse(answer->body, nullptr, false);
    attempt.error = fmt::format("http {}", answer->status);
    if (said.is_object() && said.contains("error") && said["error"].is_object())
      attempt.error += " " + said["error"].value("code", "");
  } else if (!done) {
    ids.read(Json::parse(answer->body, nullptr, false));
    attempt.ttft_ms = attempt.e2e_ms;
  }
  attempt.hashes = ids.hashes();
  return attempt;
}

void add(const DumpedRequest& request, const Attempt& attempt, ReplayResult& result) {
  if (!attempt.error.empty()) {
    ++result.num_failed;
    ++result.errors[attempt.error];
    return;
  }
  ++result.num_ok;
  result.ttft_ms.push_back(attempt.ttft_ms);
  result.e2e_ms.push_back(attempt.e2e_ms);
  // A client without streaming gets its first token with the whole answer.
  result.was_ttft_ms.push_back(request.stream ? request.ttft_ms : request.e2e_ms);
  result.was_e2e_ms.push_back(request.e2e_ms);
  if (request.ids_hashes.empty()) {
    ++result.num_not_compared;
  } else if (request.ids_hashes == attempt.hashes) {
    ++result.num_same;
  } else {
    ++result.num_different;
    if (result.first_different.empty())
      result.first_different = fmt::format("{} at {:.3f} s", request.path, request.due_ms / 1e3);
  }
}

}  // namespace

Result<Dump> read_dump(const std::vector<std::string>& paths) {
  Dump dump;
  for (const std::string& path : paths) HOCKET_TRY_VOID(read_file(path, dump));
  if (dump.requests.empty())
    return fail(ErrorCode::bad_value, "there is no request in {}", paths.front());
  std::ranges::stable_sort(dump.requests, {}, &DumpedRequest::due_ms);
  const double begin = dump.requests.front().due_ms;
  for (DumpedRequest& request : dump.requests) request.due_ms -= begin;
  return dump;
}

ReplayResult replay_dump(const Dump& dump, const ReplayOptions& options) {
  ReplayResult result;
  Mutex mutex;  // protects result
  std::atomic<size_t> next{0};
  const TimePoint start = RealClock().now();
  const auto client = [&] {
    BlockingHttpClient connection(options.server);
    for (size_t i = 0; (i = next++) < dump.requests.size();) {
      const DumpedRequest& request = dump.requests[i];
      const TimePoint due = start + from_seconds(request.due_ms / 1e3 / options.speed);
      std::this_thread::sleep_until(due);
      const double late_ms = to_ms(RealClock().now() - due);
      const Attempt attempt = ask(connection, request);
      const MutexLock lock(mutex);
      result.max_late_ms = std::max(result.max_late_ms, late_ms);
      add(request, attempt, result);
    }
  };
  {
    std::vector<std::jthread> clients(
        std::min<size_t>(static_cast<size_t>(options.max_concurrency), dump.requests.size()));
    for (std::jthread& thread : clients) thread = std::jthread(client);
  }
  result.seconds = to_seconds(RealClock().now() - start);
  return result;
}

}  // namespace hocket
