#include "policy/scheduler/new_request.h"

#include <limits>
#include <string>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

// Refuses a prompt that can never fit into the pages of window layers, if prompts are not cut. Its
// answer counts too, because after a retraction it is computed like a prompt.
Result<void> check_window(const RequestInput& input, const SchedulerOptions& options) {
  const int max_new_tokens = input.sampling.max_new_tokens;
  const int64_t max_len = std::ssize(input.prompt) + max_new_tokens - 1;
  const int64_t held = int64_t{options.num_window_pages} * options.page_tokens;
  if (!options.window.bounded() || options.chunk_tokens >= 0 || max_len <= held) return {};
  return fail(
      error(ErrorCode::request_too_big,
            "{} prompt tokens and {} new ones can never fit: prompts are computed whole, and the "
            "window layers hold {} tokens in all",
            input.prompt.size(), max_new_tokens, held)
          .with_fix("a shorter prompt, or a server with another --chunked-prefill-size than -1")
          .with_param("max_tokens"));
}

}  // namespace

Result<void> check_request(const RequestInput& input, const SchedulerOptions& options) {
  const auto prompt_len = static_cast<int>(input.prompt.size());
  const int max_new_tokens = input.sampling.max_new_tokens;
  HOCKET_CHECK(prompt_len >= 1);
  HOCKET_CHECK(max_new_tokens >= 1);
  HOCKET_CHECK(std::ssize(input.answer) < max_new_tokens);
  const int64_t max_len = int64_t{prompt_len} + max_new_tokens;
  if (options.context_length > 0 && max_len > options.context_length)
    return fail(error(ErrorCode::context_length_exceeded,
                      "{} prompt tokens and {} new ones are {}; the context holds {}", prompt_len,
                      max_new_tokens, max_len, options.context_length)
                    .with_fix("a shorter prompt, or a smaller max_tokens")
                    .with_param("max_tokens"));
  // The last new token is returned but never computed.
  const int64_t pool_tokens = int64_t{options.num_pages} * options.page_tokens;
  if (max_len - 1 > pool_tokens)
    return fail(
        error(ErrorCode::request_too_big,
              "{} prompt tokens and {} new ones can never fit: the KV cache holds {} tokens in all",
              prompt_len, max_new_tokens, pool_tokens)
            .with_fix(prompt_len <= pool_tokens
                          ? fmt::format("max_tokens of at most {}", pool_tokens + 1 - prompt_len)
                          : std::string("a shorter prompt, or more memory for the KV cache"))
            .with_param("max_tokens"));
  HOCKET_TRY_VOID(check_window(input, options));
  if (input.priority && !options.priorities.enabled && options.priorities.refuse_when_disabled)
    return fail(error(ErrorCode::invalid_request,
                      "the request has priority {}, but priorities are off", *input.priority)
                    .with_fix("leave it out, or start with --enable-priority-scheduling")
                    .with_param("priority"));
  return {};
}

int priority_of(const RequestInput& input, const PriorityOptions& rules) {
  constexpr int kWorst = std::numeric_limits<int>::min();
  if (!rules.enabled) return 0;
  const int given = input.priority.value_or(kWorst);
  if (!input.priority || !rules.low_values_first) return given;
  return given == kWorst ? std::numeric_limits<int>::max() : -given;
}

std::unique_ptr<Request> make_request(RequestInput input, const SchedulerOptions& options) {
  auto request = std::make_unique<Request>();
  request->caches_whole_answer = options.cache_whole_answers;
  request->id = input.id;
  request->prompt_len = static_cast<int>(input.prompt.size());
  request->tokens = std::move(input.prompt);
  request->tokens.insert(request->tokens.end(), input.answer.begin(), input.answer.end());
  request->absorbed_rows = AbsorbedRows(options.answer_begins, options.eos_ids);
  request->form_borders = request->absorbed_rows.take_all(
      std::span(request->tokens).first(static_cast<size_t>(request->prompt_len)));
  request->sampling = std::move(input.sampling);
  request->priority = priority_of(input, options.priorities);
  request->client = input.client;
  request->routing_key = input.routing_key;
  request->cache_namespace = input.cache_namespace;
  request->session = input.session;
  request->prefill_peer = input.prefill_peer;
  const bool needs_borders = options.num_states > 0 || options.window.bounded();
  if (needs_borders && input.border_tokens > options.page_tokens)
    request->border_tokens = input.border_tokens;
  request->prediction = std::move(input.prediction);
  request->taken_over = input.taken_over;
  request->queue_place = std::move(input.queue_place);
  request->times.arrived = input.arrived;
  return request;
}

}  // namespace hocket
