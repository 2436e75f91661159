// The language of tests/scenarios: splits lines and reads settings and names. For tests.
#pragma once

#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "policy/scheduler/scheduler.h"

namespace hocket {

using Words = std::vector<std::string>;

inline Words split(const std::string& line, char separator = ' ') {
  Words words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);)
    if (!word.empty()) words.push_back(word);
  return words;
}

inline std::string join(const Words& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

// Reads words of the form key=value; a word without '=' is a key with an empty value.
inline std::map<std::string, std::string> settings(std::span<const std::string> words) {
  std::map<std::string, std::string> result;
  for (const auto& word : words) {
    const size_t equals = word.find('=');
    result[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return result;
}

inline std::string_view finish_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"none", "stop", "length", "abort", "error"};
  return kNames[static_cast<size_t>(reason)];
}

inline std::string error_name(ErrorCode code) {
  using enum ErrorCode;
  static const std::map<ErrorCode, std::string> names = {
      {queue_full, "queue_full"},
      {context_length_exceeded, "context_length_exceeded"},
      {request_too_big, "request_too_big"},
      {bad_logits, "bad_logits"},
      {invalid_request, "invalid_request"},
      {out_of_memory, "out_of_memory"},
      {timed_out, "timed_out"},
  };
  const auto found = names.find(code);
  return found == names.end() ? code_name(code) : found->second;
}

// The settings in the first line of a scenario.
struct ScenarioSetup {
  SchedulerOptions options;
  bool overlapped = false;
  int fixed_us = 1000, row_us = 0;  // duration of a step: fixed_us + row_us * rows
};

// Reads key value pairs into `setup`; returns the first unknown key, or nothing.
inline std::string read_setup(const Words& words, ScenarioSetup& setup) {
  SchedulerOptions& options = setup.options;
  options.vocab_size = 1 << 20;
  options.chunk_tokens = -1;
  const std::map<std::string_view, int*> numbers = {
      {"pages", &options.num_pages},
      {"page_tokens", &options.page_tokens},
      {"chunk_tokens", &options.chunk_tokens},
      {"max_prefill", &options.max_prefill_tokens},
      {"max_running", &options.max_running_requests},
      {"decode_rows", &options.max_decode_rows},
      {"answer_rows", &options.max_decode_rows},  // the same
      {"max_queued", &options.max_queued_requests},
      {"context", &options.context_length},
      {"vocab", &options.vocab_size},
      {"threshold", &options.priorities.preemption_threshold},
      {"prefill_requests", &options.prefill_max_requests},
      {"in_batch_cached", &options.in_batch.max_cached},
      {"in_batch_common", &options.in_batch.min_common},
      {"overtaken", &options.max_overtaken},
      {"chunked_requests", &options.max_chunked_requests},
      {"window", &options.window.window},
      {"window_chunk", &options.window.chunk},
      {"window_pages", &options.num_window_pages},
      {"states", &options.num_states},
      {"state_tokens", &options.state_tokens},
      {"state_interval", &options.cached_state_interval},
      {"max_forced", &options.max_forced},
      {"fixed_us", &setup.fixed_us},
      {"row_us", &setup.row_us},
  };
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string &key = words[i], &text = words[i + 1];
    if (const auto number = numbers.find(key); number != numbers.end())
      *number->second = std::stoi(text);
    else if (key == "max_queued_tokens")
      options.max_queued_tokens = std::stoi(text);
    else if (key == "conservativeness")
      options.conservativeness = std::stod(text);
    else if (key == "prefill")
      options.prefill_policy = parse_prefill_policy(text).value();
    else if (key == "overlap")
      setup.overlapped = text == "on";
    else if (key == "cache")
      options.prefix_cache = text == "on";
    else if (key == "eviction")
      options.eviction = parse_eviction_policy(text).value();
    else if (key == "policy")
      options.policy = parse_schedule_policy(text).value();
    else if (key == "eos")
      options.eos_ids.push_back(TokenId{std::stoi(text)});
    else if (key == "priorities")
      options.priorities.enabled = text != "off",
      options.priorities.low_values_first = text == "low";
    else if (key == "preempt")
      options.priorities.preempt = text == "on";
    else if (key == "when_off")
      options.priorities.refuse_when_disabled = text == "refuse";
    else if (key == "waiting_timeout")
      options.waiting_timeout = std::chrono::milliseconds(std::stoi(text));
    else if (key == "running_timeout")
      options.running_timeout = std::chrono::milliseconds(std::stoi(text));
    else if (key == "itl_us")
      options.itl_goal = std::chrono::microseconds(std::stoi(text));
    else if (key == "prompt_share")
      options.prompt_share = std::stod(text);
    else if (key == "seed")
      options.seed = std::stoul(text);
    else
      return key;
  }
  return "";
}

}  // namespace hocket
