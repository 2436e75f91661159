// One request as the scheduler sees it: tokens, lengths, pages. The scheduler owns it from add()
// until it is finished and its last step has been committed.   Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/sampling_params.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/absorbed_rows.h"
#include "policy/scheduler/request_states.h"
#include "policy/scheduler/request_window.h"
#include "policy/scheduler/sessions.h"

namespace hocket {

enum class FinishReason : uint8_t { none, stop, length, abort, error };

// The caller of Scheduler::add() fills this in. The scheduler reserves the token list at its final
// size when it admits the request, so that decoding never allocates.
struct RequestInput {
  RequestId id{};
  std::vector<TokenId> prompt;  // 1 .. context - max_new_tokens tokens
  SamplingParams sampling;
  std::optional<int> priority;     // see PriorityOptions; without one it gets the worst priority
  uint64_t client = 0;             // identifies the client, for the policy `fair`
  uint64_t routing_key = 0;        // for the policy `routing-key`
  CacheNamespace cache_namespace;  // made of client, cache_salt and extra_key
  SessionKey session;              // zero: the request belongs to no session
  int prefill_peer = -1;           // the service that should compute the prompt; -1: any
  // Size of the pages of the service that awaits the prompt: states are kept at ends of these
  // pages, so that it can go on from there. 0: none awaits it.
  int border_tokens = 0;
  TimePoint arrived{};
  int index_in_request = 0;  // number of texts of the same client's request that come before it
  // The first tokens of the answer, fewer than max_new_tokens, if they are known: the request
  // continues behind them. The engine sends them again as outputs.
  std::vector<TokenId> answer;
  // Text that the answer is expected to be like, a source of drafts; null: none.
  std::shared_ptr<const std::vector<TokenId>> prediction;
  // True: another rank had taken it and was lost. It is taken even while ranks are lost, and waits
  // for them; limits of queues do not count, since they did where it was taken first. So their
  // number is at most the number of requests that all other ranks may have.
  bool taken_over = false;
  // The text's place in its client's share of the queue, until it begins or ends
  // (engine/queue_places.h); null: it has none.
  std::shared_ptr<const void> queue_place;
};

// Times at which a request passed each stage; unset ones are at the epoch. queued: when it last
// entered the queue.
struct RequestTimes {
  TimePoint arrived{}, queued{}, first_scheduled{}, prefill_done{}, finished{};
};

// The drafts of one request: times that it had some in a step, drafts, and those of them that saved
// a step; the same of those from RequestInput::prediction.
struct DraftCounts {
  int num_verified = 0, num_drafts = 0, num_accepted = 0;
  int num_predicted = 0, num_predicted_accepted = 0;

  void add(const DraftCounts& more) {
    num_verified += more.num_verified;
    num_drafts += more.num_drafts;
    num_accepted += more.num_accepted;
    num_predicted += more.num_predicted;
    num_predicted_accepted += more.num_predicted_accepted;
  }
};

struct RequestGroup;

struct Request {
  enum class State : uint8_t { waiting, prefilling, running, finished };

  RequestId id{};
  State state = State::waiting;
  std::vector<TokenId> tokens;  // the prompt, then generated tokens
  int prompt_len = 0;
  SamplingParams sampling;
  int priority = 0;  // larger is first; 0 for all unless priorities are on
  uint64_t client = 0, routing_key = 0;
  CacheNamespace cache_namespace;
  SessionKey session;
  int prefill_peer = -1;
  // RequestInput's; 0 also if the model has neither states nor windows, or if that service's pages
  // are no larger than those here.
  int border_tokens = 0;
  std::shared_ptr<const std::vector<TokenId>> prediction;  // this and the next: RequestInput's
  bool taken_over = false;
  std::shared_ptr<const void> queue_place;  // RequestInput's; null once it has begun
  bool caches_whole_answer = true;          // SchedulerOptions::cache_whole_answers
  // Rows of the prompt at which the form of latents changes.
  std::vector<int> form_borders;
  // Has taken the prompt, and says which rows of the answer a prompt would absorb, too.
  AbsorbedRows absorbed_rows;

  // Set by the waiting queue.
  int64_t queue_order = 0;       // 0: new; rises with arrival; below 0: retracted, newest lowest
  uint64_t rows_at_arrival = 0;  // rows that the server had computed by then
  uint64_t overdue_at = 0;       // it is next once this many requests have left the queue
  int64_t admitted_as = 0;       // rises with each admission
  uint64_t skipped_in = 0;       // last pass that skipped it; 0: none since it was queued
  RequestGroup* group = nullptr;

  // Counts over batches that are not committed yet: those with rows of this request, and the tokens
  // that they sample for it. pending_sample: index of its sample in the newest such batch (-1:
  // none).
  int num_batches = 0;
  int num_pending = 0;
  int pending_sample = -1;

  // KV: tokens [0, computed_len) have keys and values, or will when the batches in flight are done;
  // pages[i] holds tokens [i P, (i+1) P), where P is page_tokens.
  //   pages   | leased: owned by the tree, read only | own: written by this request |
  //           0                            leased_pages                  pages.size()
  int computed_len = 0;
  int leased_pages = 0;
  std::vector<PageId> pages;
  Lease lease;
  RequestStates states;
  RequestWindow window;

  // Prompt tokens found in the cache when first admitted (reported as cached_tokens).
  int cached_len = 0;
  // Prompt tokens behind those whose pages were found, too, but without a state to continue from.
  int recomputed_len = 0;
  int num_retractions = 0;
  DraftCounts drafts;
  // Counts how often its steps were undone (Scheduler::undo_steps) since it was undone_at tokens
  // long.
  int num_undone = 0, undone_at = 0;
  int logprobs_done = 0;  // prompt rows before this one have reported their log-probabilities
  FinishReason finish = FinishReason::none;
  TokenId matched_stop{-1};  // the token that ended the answer, if one did
  Error error;               // set if finish == error
  RequestTimes times;

  std::span<const TokenId> answer() const {
    return std::span(tokens).subspan(static_cast<size_t>(prompt_len));
  }
  // Ends it with an error; the scheduler then removes it.
  void fail(Error why) {
    finish = FinishReason::error;
    error = std::move(why);
  }
  // Returns how many pages only this request has.
  int num_own_pages() const { return static_cast<int>(pages.size()) - leased_pages; }
  int generated() const { return static_cast<int>(tokens.size()) - prompt_len; }
  // Length in tokens, including those that are being sampled.
  int len() const { return static_cast<int>(tokens.size()) + num_pending; }
  // Returns true if rows will follow those in flight, as far as is known.
  bool decodes() const { return finish == FinishReason::none && remaining_new_tokens() > 0; }
  // Returns how many rows must be computed before a new token can be sampled: while decoding 1,
  // plus 1 for each forced token.
  int uncomputed() const { return len() - computed_len; }
  int remaining_new_tokens() const { return sampling.max_new_tokens - (len() - prompt_len); }

  // Returns the first row that still has to report a prompt log-probability; -1: none. Row i
  // reports on token i + 1, so the prompt's last row has nothing to report.
  int logprobs_from() const {
    if (sampling.prompt_logprobs_from < 0) return -1;
    const int from = std::max(sampling.prompt_logprobs_from - 1, logprobs_done);
    return from < prompt_len - 1 ? from : -1;
  }
  // Returns the first tokens whose pages mean the same to every request. An answer's rows are
  // absorbed; they are shared as far as a prompt's would be.
  size_t num_shareable() const {
    if (caches_whole_answer) return tokens.size();
    auto end = static_cast<size_t>(prompt_len);
    for (AbsorbedRows rows = absorbed_rows; end < tokens.size() && rows.take(tokens[end]);) ++end;
    return end;
  }
  // Returns the tokens that a cached prefix may replace: never the last one, nor rows that must
  // report, nor an answer whose rows differ from those of a prompt. A peer that awaits the prompt
  // continues from its last border, so a prefix behind that would leave nothing there.
  std::span<const TokenId> reusable_tokens() const {
    if (sampling.return_routed_experts) return {};
    const int from = logprobs_from();
    auto count = from >= 0 ? static_cast<size_t>(from) : tokens.size() - 1;
    count = std::min(count, num_shareable());
    if (border_tokens > 0) count -= count % static_cast<size_t>(border_tokens);
    return std::span(tokens).first(count);
  }
};

}  // namespace hocket
