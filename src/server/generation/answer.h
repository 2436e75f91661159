// An answer in progress: the engine's output for it, the part that is already written, and the
// formats of the APIs. The thread `reply` fills the first two, under the answer's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/messages.h"
#include "server/generation/logprob_columns.h"
#include "server/generation/prepared_request.h"
#include "server/http/json_body.h"
#include "text/answers/answer_event.h"

namespace hocket {

// One of the texts that the request asks for; there are prompts x n.
struct ChoiceAnswer {
  int index = 0;   // in the answer
  int prompt = 0;  // in the request
  std::string text;
  std::vector<AnswerEvent> events;         // text, reasoning and calls, by add_event()
  std::vector<TokenId> ids;                // all generated ids with the end token
  std::vector<PositionLogprobs> logprobs;  // one per id, if asked for; emptied by write_logprobs()
  size_t num_shown = 0;                    // ids, from the first, whose text is part of `text`
  size_t shown_bytes = 0;                  // bytes of `text` that those ids cover
  std::vector<PositionLogprobs> prompt_logprobs;

  bool ended = false;
  FinishReason finish = FinishReason::none;
  std::variant<std::monostate, TokenId, std::string> matched_stop;
  int cached_tokens = 0, recomputed_tokens = 0, num_retractions = 0;
  DraftCounts drafts;             // set when it has ended
  PerTier<int> fetched_tokens{};  // those of cached_tokens that were read from there
  int rank = 0;                   // the rank that computed it
  int reasoning_tokens = 0;       // number of ids that are reasoning
  RequestTimes times;
  std::shared_ptr<const RoutedExperts> routed;  // null unless asked for
};

struct Answer {
  PreparedRequest prepared;  // never changes
  std::vector<ChoiceAnswer> choices;
  TimePoint first_token{}, ended{};
  size_t last_ended = 0;  // index of the choice that ended last
};

// The cached tokens of prompts, by where they were found. Every API says this, by names of its own.
struct TokensByTier {
  int64_t total = 0;
  PerTier<int64_t> fetched{};  // those that were read from there

  void add(const ChoiceAnswer& choice);
  int64_t num_fetched() const;
  // Those that did not have to be read.
  int64_t in_memory() const { return total - num_fetched(); }
  // Adds the field cached_tokens_details, such as {"memory": 26, "peer": 64}, to `details`; nothing
  // if all were in memory.
  void write_tiers(Json& details) const;
};

// The part of a choice that the stream has sent.
struct StreamCursor {
  bool opening = false, end = false;
  size_t text = 0, ids = 0, logprobs = 0;
  size_t events = 0;      // events sent to their end
  size_t event_text = 0;  // bytes sent of the next event
  size_t open_part = 0;   // number, from 1, of the event that began the open part; 0: none is open
  int parts = 0;          // parts that were begun
  int blocks = 0;         // blocks that were written
};

// The part of a choice that its format has written as JSON text.
struct WrittenChoice {
  StreamCursor sent;
  LogprobColumns columns, prompt_columns;  // by write_logprobs()
  std::string escaped;     // the choice's text as it is in a JSON string, if the format keeps it
  std::string joined_ids;  // its ids as JSON, joined by commas, if the format keeps it
};
// One for each choice of an answer.
using WrittenChoices = std::span<WrittenChoice>;

// The framing of a stream. data: each block is the JSON of one `data:` event, and [DONE] ends the
// stream. named: each block holds complete SSE events with names, and the last event says that it
// is the last.
enum class StreamStyle : uint8_t { data, named };

// The format in which one API writes an answer: JSON text, without SSE framing unless style() is
// `named`.   Thread: that of the answer.
class ApiFormat {
 public:
  virtual ~ApiFormat() = default;

  // Returns the next block of a stream, with what `choice` has beyond its StreamCursor, and
  // advances that; empty when there is nothing to send. The block after the last text says how the
  // choice ended.
  virtual std::string next_block(const Answer& answer, const ChoiceAnswer& choice,
                                 WrittenChoices written) const = 0;
  // Returns the last block of a stream before [DONE]; empty: none.
  virtual std::string closing_block(const Answer& answer) const = 0;
  // Returns the whole answer, for a client that does not stream.
  virtual std::string whole(const Answer& answer, WrittenChoices written) const = 0;

  // Returns the bytes of the request that the answer repeats besides its prompts, counting each
  // copy.
  virtual int64_t repeated_bytes(const GenerationRequest&) const { return 0; }
  // True if each choice repeats its prompt; false: each prompt is repeated once.
  virtual bool repeats_prompt_in_choices(const GenerationRequest&) const { return false; }
  // Adds one position to the columns. `found` is null if the position has no log-probability.
  virtual void write_position(const Answer&, const ChoiceAnswer&, LogprobColumns&, TokenId,
                              const PositionLogprobs* /*found*/) const {}
  // Returns the number of choice.ids whose log-probabilities may be written.
  virtual size_t num_writable(const ChoiceAnswer& choice) const { return choice.num_shown; }
  virtual StreamStyle style() const { return StreamStyle::data; }
  // True if each block repeats what the blocks before it said, so that any but a choice's last may
  // be left out.
  virtual bool repeats() const { return false; }
  // True if the format reads the choices' events, not their text.
  virtual bool reads_events() const { return false; }
  // Returns the last events of a stream that has begun and fails; empty: the API's error format is
  // used.
  virtual std::string failure_block(const Answer&, WrittenChoices, const Error&) const {
    return "";
  }
  // Returns the body that is sent at once if the client does not wait for the answer; empty: it
  // waits.
  virtual std::string accepted(const Answer&) const { return ""; }
  // Called once when the answer has ended, unless the client left before. `why`: the error if it
  // failed.
  virtual void ended(const Answer&, const Error* /*why*/) const {}
};

// Functions that the formats share.

inline WrittenChoice& written_of(const ChoiceAnswer& choice, WrittenChoices written) {
  return written[static_cast<size_t>(choice.index)];
}

// Appends an event. Neighbouring pieces of text, of reasoning, or of one call's arguments are
// joined, so a text of any length is one event whose text grows.
void add_event(std::vector<AnswerEvent>& events, AnswerEvent event);

// Writes log-probabilities as JSON text, at most `max_positions`: first those of the prompt, if
// asked for. Returns false if more are due; write them before the next block.
bool write_logprobs(const ApiFormat& format, const Answer& answer, ChoiceAnswer& choice,
                    WrittenChoice& written, size_t max_positions);

// Returns the token's text; if its bytes are not UTF-8, "bytes:\xe2\x96" as OpenAI spells it.
std::string token_text(const Tokenizer& tokenizer, TokenId id);
// Returns -9999 for minus infinity, which JSON cannot express.
double finite_logprob(float logprob);
size_t num_chars(std::string_view utf8);
// Returns "stop", "length" or "abort"; null while running.
Json finish_reason_json(FinishReason reason);
// Returns the number of tool calls that are complete.
int num_calls(const ChoiceAnswer& choice);
Json matched_stop_json(const ChoiceAnswer& choice);
inline constexpr int64_t kTokenTextBytes = 128;  // for one id: in a tree, and as text
Json ids_json(std::span<const TokenId> ids);
// Appends the ids as text, without brackets.
void append_ids(std::string& out, std::span<const TokenId> ids);
std::string ids_text(std::span<const TokenId> ids);  // with brackets
Json usage_json(const Answer& answer);
// Returns the time in ms, in whole microseconds; 0 if one of the moments was not reached.
double ms_between(TimePoint from, TimePoint to);
// Returns the times in ms: text (parsing, template, tokens), queue, prefill, decode, ttft, total.
Json timings_json(const Answer& answer);
// Returns the calendar time, seconds since 1970.
int64_t unix_seconds();

}  // namespace hocket
