// One answer on its way: what has come out of the generator so far, and in which form each API says
// it. Filled by the reply thread, under the answer's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/messages.h"
#include "server/access/request_memory.h"
#include "server/protocol/generation_request.h"
#include "server/protocol/json_body.h"
#include "server/protocol/logprob_columns.h"
#include "text/answers/answer_event.h"

namespace hocket {

class RequestStory;

// One of the texts asked for: prompts x n.
struct ChoiceAnswer {
  int index = 0;   // in the answer
  int prompt = 0;  // in the request
  std::string text;
  std::vector<AnswerEvent> events;         // what it says, by add_event()
  std::vector<TokenId> ids;                // all generated, the end token too
  std::vector<PositionLogprobs> logprobs;  // of each id, if asked for; emptied by say_logprobs()
  size_t num_shown = 0;                    // ids, from the first, whose text is part of `text`
  size_t shown_bytes = 0;                  // of `text`, up to the end of those
  std::vector<PositionLogprobs> prompt_logprobs;
  LogprobColumns said, prompt_said;  // by say_logprobs()
  size_t said_chars = 0;             // of the tokens in both: text_offset
  std::string escaped;               // `text` as it stands in a JSON string, where a form keeps it
  std::string ids_said;              // the same of `ids`, joined by commas

  bool ended = false;
  FinishReason finish = FinishReason::none;
  std::variant<std::monostate, TokenId, std::string> matched_stop;
  int cached_tokens = 0, num_retractions = 0;
  int rank = 0;              // that computed it
  int reasoning_tokens = 0;  // of ids, those of thoughts
  RequestTimes times;
  std::shared_ptr<const RoutedExperts> routed;  // where asked for

  // How much of it a stream has carried already.
  struct Sent {
    bool opening = false, end = false;
    size_t text = 0, ids = 0, logprobs = 0;
    size_t events = 0;      // told whole
    size_t event_text = 0;  // bytes of the next one
    size_t open_part = 0;   // the event that began the part that is open, from 1; 0: none is
    int parts = 0;          // begun
    int blocks = 0;         // written
  };
  Sent sent;
};

struct Answer {
  std::string id;  // "chatcmpl-..."
  int64_t created = 0;
  uint64_t call_seed = 0;  // ids of calls are a function of it
  ServedModel model;
  GenerationRequest request;
  std::vector<std::vector<TokenId>> prompts;  // ids, beside request.prompts
  HeldBytes held;                             // what the prompts take, the generator's copies too
  std::vector<std::string> echoes;            // prompts that came as ids, as text to be repeated
  std::vector<ChoiceAnswer> choices;
  TimePoint received{}, first_token{}, ended{};
  size_t last_ended = 0;                // the choice that ended last
  std::shared_ptr<RequestStory> story;  // null: nobody wants to know
};

// How a stream is cut into events. data: each block is the JSON of one `data:` event, and [DONE]
// closes them; named: blocks are events as they go out, with names, and the last says that it is.
enum class StreamStyle : uint8_t { data, named };

// One API's way of saying an answer: JSON text, without SSE framing unless the stream's style is
// `named`.   Thread: that of the answer.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // A stream: what `choice` has beyond choice.sent, which moves along; one block a call, empty when
  // there is nothing (more) to send now. The block after the last text tells the end.
  virtual std::string next_block(const Answer& answer, ChoiceAnswer& choice) const = 0;
  // A stream's last block before [DONE]; empty: none.
  virtual std::string closing_block(const Answer& answer) const = 0;
  // The answer in one piece.
  virtual std::string whole(const Answer& answer) const = 0;

  // Adds a position to the columns. `found`: null where there is no log-probability.
  virtual void say_position(const Answer&, ChoiceAnswer&, LogprobColumns&, TokenId,
                            const PositionLogprobs* /*found*/) const {}
  // How many of choice.ids may have their log-probabilities written by now.
  virtual size_t num_sayable(const ChoiceAnswer& choice) const { return choice.num_shown; }
  virtual StreamStyle style() const { return StreamStyle::data; }
  // It reads the choices' events, not their text.
  virtual bool tells_events() const { return false; }
  // What a stream that has begun is told when the answer fails; empty: what its client's API says
  // of errors.
  virtual std::string failure_block(const Answer&, ChoiceAnswer&, const Error&) const { return ""; }
  // What is said at once of an answer that nobody waits for; empty: somebody does.
  virtual std::string accepted(const Answer&) const { return ""; }
  // The answer is at its end; `why`: it failed. Told once, unless the client has left before.
  virtual void ended(const Answer&, const Error* /*why*/) const {}
};

const AnswerForm& answer_form(Api api);
const AnswerForm& chat_form();
const AnswerForm& completions_form();
const AnswerForm& generate_form();

// What the forms share.

// Neighbouring pieces of prose, of thoughts, of one call's arguments are joined, so a text of any
// length is one event whose text grows.
void add_event(std::vector<AnswerEvent>& events, AnswerEvent event);

// Writes log-probabilities that are due as JSON text, at most `most` positions: first those of the
// prompt, if asked for. False: more are due, and must be written before the next block.
bool say_logprobs(const AnswerForm& form, const Answer& answer, ChoiceAnswer& choice, size_t most);

// The token's text; where its bytes are no UTF-8, "bytes:\xe2\x96" as OpenAI spells it.
std::string token_text(const Tokenizer& tokenizer, TokenId id);
// -9999 in place of minus infinity, which JSON cannot say.
double finite_logprob(float logprob);
size_t num_chars(std::string_view utf8);
// "stop", "length", "abort"; null while running.
Json finish_reason_json(FinishReason reason);
// Calls of tools that are whole.
int num_calls(const ChoiceAnswer& choice);
Json matched_stop_json(const ChoiceAnswer& choice);
Json ids_json(std::span<const TokenId> ids);
// The same as text, without brackets.
void append_ids(std::string& out, std::span<const TokenId> ids);
std::string ids_text(std::span<const TokenId> ids);  // with them
Json usage_json(const Answer& answer);
// Where the time went, ms: text (parsing, template, tokens), queue, prefill, decode, ttft, total.
Json timings_json(const Answer& answer);
// Of the calendar, since 1970.
int64_t unix_seconds();
// The prompt as text, for echo.
std::string prompt_text(const Answer& answer, int prompt);

}  // namespace hocket
