#include "server/generation/answer_text.h"

#include "server/generation/api.h"

#include <limits>
#include <utility>

namespace hocket {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

std::span<const TokenId> kept_tokens(const Answer& answer) {
  if (answer.prepared.request.reading.plain() || answer.prepared.model.formats == nullptr)
    return {};
  return answer.prepared.model.formats->kept;
}

AnswerParser::Options parser_options(const Answer& answer, size_t index) {
  const AnswerReading& reading = answer.prepared.request.reading;
  const ChoiceAnswer& choice = answer.choices[index];
  return {.tools_as = reading.tools_as,
          .reasoning = reading.reasoning,
          .reasoning_open =
              answer.prepared.request.prompts[static_cast<size_t>(choice.prompt)].reasoning_open,
          .tools = reading.tools,
          .max_calls = reading.parallel ? AnswerParser::kMaxCalls : 1,
          .id_seed = choice_seed(answer.prepared.call_seed, static_cast<int>(index))};
}

}  // namespace

AnswerText::AnswerText(const Answer& answer, size_t index) {
  const GenerationRequest& request = answer.prepared.request;
  const Tokenizer* tokenizer = answer.prepared.model.tokenizer;
  if (tokenizer == nullptr) return;
  const auto prompt = static_cast<size_t>(answer.choices[index].prompt);
  detokenizer_.emplace(*tokenizer, request.special, kept_tokens(answer));
  matcher_.emplace(request.prompts[prompt].sampling.stop, request.stop_text);
  if (const auto& regex = request.prompts[prompt].stop_regex) regex_.emplace(regex);
  by_tokens_ = request.prompts[prompt].sampling.num_top_logprobs >= 0;
  reads_events_ = request.api->format().reads_events();
  if (!request.reading.plain()) parser_.emplace(parser_options(answer, index));
}

void AnswerText::note_text(std::string_view piece) {
  uncut_ += piece.size();
  if (piece.empty()) return;
  for (; num_whole_ < ends_.size(); ++num_whole_) ends_[num_whole_] = uncut_;
}

// Adds text that the client may see.
void AnswerText::append(std::string_view text, ChoiceAnswer& choice) {
  choice.text += text;
  if (parser_ || !reads_events_) return;
  AnswerEvent piece;
  piece.text = text;
  add_event(choice.events, std::move(piece));
}

// Gives the parser the text that it does not have, up to byte `end`.
void AnswerText::parse_to(ChoiceAnswer& choice, size_t end) {
  std::vector<AnswerEvent> events;
  parser_->push(std::string_view(choice.text).substr(num_read_, end - num_read_), events);
  num_read_ = end;
  for (AnswerEvent& event : events) add_event(choice.events, std::move(event));
}

// Takes text that passed the stop strings. Returns true if the answer ends with it.
Result<bool> AnswerText::show_until_stop(StopMatcher::Piece&& safe, ChoiceAnswer& choice) {
  if (regex_) {
    HOCKET_TRY(const auto found, regex_->push(safe.text));
    if (found) {
      append(safe.text.substr(0, found->kept), choice);
      choice.matched_stop = std::string(found->pattern);
      return true;
    }
  }
  append(safe.text, choice);
  if (safe.match) choice.matched_stop = *std::move(safe.match);
  return std::holds_alternative<std::string>(choice.matched_stop);
}

void AnswerText::count_reasoning(ChoiceAnswer& choice) {
  if (!parser_ || parser_->may_be_calls()) return;
  const int thoughts = std::exchange(num_thoughts_, 0);
  if (!parser_->calls_ended_reasoning()) choice.reasoning_tokens += thoughts;
}

Result<bool> AnswerText::add(TokenId id, ChoiceAnswer& choice) {
  if (!detokenizer_) return false;
  const bool was_thinking = parser_ && parser_->in_reasoning();
  ends_.push_back(kUnknown);
  const std::string_view piece = detokenizer_->step(id);
  note_text(piece);
  HOCKET_TRY(const bool stopped, show_until_stop(matcher_->push(piece), choice));
  if (parser_) {
    if (by_tokens_) count_shown(choice);
    parse_to(choice, by_tokens_ ? choice.shown_bytes : choice.text.size());
  }
  if (was_thinking || (parser_ && parser_->in_reasoning())) ++num_thoughts_;
  count_reasoning(choice);
  whole_ = stopped || (parser_ && parser_->done());
  return whole_;
}

// Adds the text that was held back, and checks if its end completes a stop.
Result<void> AnswerText::emit_held_text(ChoiceAnswer& choice) {
  const std::string_view piece = detokenizer_->flush();
  note_text(piece);
  HOCKET_TRY(bool stopped, show_until_stop(matcher_->push(piece), choice));
  if (stopped) return {};
  HOCKET_TRY(stopped, show_until_stop({matcher_->flush(), std::nullopt}, choice));
  if (stopped || !regex_) return {};
  HOCKET_TRY(const auto found, regex_->finish());
  if (found) choice.matched_stop = std::string(*found);
  return {};
}

Result<void> AnswerText::finish(ChoiceAnswer& choice) {
  if (detokenizer_ && !whole_) HOCKET_TRY_VOID(emit_held_text(choice));
  for (; num_whole_ < ends_.size(); ++num_whole_) ends_[num_whole_] = uncut_;
  if (!parser_) return {};
  parse_to(choice, choice.text.size());
  std::vector<AnswerEvent> events;
  parser_->finish(events);
  count_reasoning(choice);
  for (AnswerEvent& event : events) add_event(choice.events, std::move(event));
  return {};
}

std::span<const std::string> AnswerText::warnings() const {
  if (!parser_) return {};
  return parser_->warnings();
}

// tokens       |--t0--|--t1--|--t2--|     ends_ are the marks
// choice.text  |----------------|         num_shown = 2, shown_bytes = end of t1
// When the answer has ended, t2 counts too, though a stop string has cut its text.
void AnswerText::count_shown(ChoiceAnswer& choice) const {
  size_t& n = choice.num_shown;
  while (n < num_whole_ && ends_[n] <= choice.text.size()) ++n;
  choice.shown_bytes = n == 0 ? 0 : ends_[n - 1];
  if (!choice.ended) return;
  if (n < num_whole_ && choice.shown_bytes < choice.text.size()) ++n;
  choice.shown_bytes = choice.text.size();
}

}  // namespace hocket
