#include "server/reply/reply_job.h"

#include <algorithm>
#include <utility>

#include "server/access/request_meter.h"
#include "server/generation/api.h"

namespace hocket {
namespace {

constexpr int64_t kChoiceBytes = 4096;    // a choice without text: its objects, its parser
constexpr int64_t kHeldStep = 16 << 10;   // bytes that are counted at once
constexpr int64_t kPendingRoom = 64;      // outputs that are counted at once
constexpr int64_t kIdTextBytes = 8;       // one token's id, as digits and a comma
constexpr int64_t kRoutedTextBytes = 16;  // one expert's number, as bytes and in base64

// Returns the bytes of one position whose log-probabilities are not written.
int64_t logprob_bytes(const SamplingParams& sampling) {
  const auto tops = static_cast<int64_t>(std::max(0, sampling.num_top_logprobs));
  return static_cast<int64_t>(sizeof(PositionLogprobs)) +
         tops * static_cast<int64_t>(sizeof(TokenLogprob));
}

// Returns the bytes that one choice of the prompt holds before its first token, besides
// PreparedRequest::held.
int64_t bytes_at_begin_of(const Prompt& prompt, int64_t prompt_tokens) {
  const SamplingParams& s = prompt.sampling;
  int64_t bytes = kChoiceBytes;
  for (const std::string& stop : s.stop)  // its bytes in the matcher, with a number for each
    bytes += 5 * std::ssize(stop) + 64;
  if (s.num_top_logprobs >= 0 && s.prompt_logprobs_from >= 0)
    bytes += (prompt_tokens - s.prompt_logprobs_from) * logprob_bytes(s);
  return bytes;
}

// Returns the bytes of a prompt that the answer repeats: once in its choices, and once in the whole
// answer that is made of them.
int64_t repeated_bytes(const PreparedRequest& prepared, size_t p) {
  const GenerationRequest& request = prepared.request;
  const Prompt& prompt = request.prompts[p];
  int64_t bytes = 0;
  if (request.return_token_ids) bytes += std::ssize(prepared.prompts[p]) * kIdTextBytes;
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&prompt.input);
    bytes += std::ssize(text != nullptr ? *text : prepared.echoes.at(p));
  }
  const bool in_each = request.api->format().repeats_prompt_in_choices(request);
  return 2 * bytes * (in_each ? prompt.n : 1);
}

}  // namespace

ReplyJob::ReplyJob(const std::shared_ptr<HttpExchange>& to, PreparedRequest&& prepared,
                   std::shared_ptr<RequestRecorder> given_recorder)
    : exchange(to),
      answer{.prepared = std::move(prepared)},
      recorder(std::move(given_recorder)),
      held(answer.prepared.request.memory),
      pending(answer.prepared.request.memory) {
  const GenerationRequest& request = answer.prepared.request;
  if (request.stream) stream.emplace(exchange);
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    for (int i = 0; i < request.prompts[p].n; ++i) {
      ChoiceAnswer& choice = answer.choices.emplace_back();
      choice.index = static_cast<int>(answer.choices.size()) - 1;
      choice.prompt = static_cast<int>(p);
      of_choice.emplace_back(answer, answer.choices.size() - 1);
    }
  }
  written.resize(of_choice.size());
  next_event.resize(of_choice.size());
}

int64_t ReplyJob::bytes_at_begin() const {
  int64_t sum = answer.prepared.request.api->format().repeated_bytes(answer.prepared.request);
  for (size_t p = 0; p < answer.prepared.prompts.size(); ++p) {
    const Prompt& prompt = answer.prepared.request.prompts[p];
    sum += prompt.n * bytes_at_begin_of(prompt, std::ssize(answer.prepared.prompts[p]));
    sum += repeated_bytes(answer.prepared, p);
  }
  return sum;
}

Result<void> ReplyJob::count(size_t index) {
  const ChoiceAnswer& choice = answer.choices[index];
  const WrittenChoice& done = written[index];
  const size_t num_unwritten = choice.logprobs.size() - done.columns.num;
  // The text is also in events and in the part that a parser holds back.
  size_t sum = 3 * choice.text.size() + done.escaped.size() + done.joined_ids.size() +
               choice.ids.size() * (sizeof(TokenId) + sizeof(size_t)) +
               done.columns.num * sizeof(PositionLogprobs) + done.columns.bytes() +
               done.prompt_columns.bytes();
  if (choice.routed != nullptr) sum += choice.routed->ids.size() * kRoutedTextBytes;
  int64_t now = static_cast<int64_t>(sum) +
                static_cast<int64_t>(num_unwritten) * logprob_bytes(prompt_of(index).sampling);
  // At the end the whole answer exists beside the parts that it is made of.
  const bool repeats = !stream || answer.prepared.request.api->repeats_answer;
  if (choice.ended && repeats) now *= 2;
  bytes += now - std::exchange(of_choice[index].bytes, now);
  if (bytes <= held.bytes()) return {};
  return held.grow(bytes - held.bytes() + kHeldStep);
}

std::vector<TokenId> ReplyJob::known_answer(size_t index, int vocab_size) const {
  const SamplingParams& sampling = prompt_of(index).sampling;
  std::vector<TokenId> known = sent_before_loss->choices[index].ids;
  if (sampling.num_top_logprobs >= 0 || sampling.return_routed_experts || known.empty()) return {};
  known.pop_back();
  const bool fits = std::cmp_less(known.size(), sampling.max_new_tokens) &&
                    std::ranges::all_of(known, [&](TokenId id) { return value(id) < vocab_size; });
  if (!fits) known.clear();
  return known;
}

bool ReplyJob::waits_for_client() const {
  return client_has && !is_over && stream && stream->num_waiting() > kMaxWaiting &&
         !exchange->is_closed();
}

bool ReplyJob::was_sent(int choice) {
  if (!sent_before_loss || client_has) return false;
  if (choice == kClosingBlock) return sent_before_loss->closed;
  const auto index = static_cast<size_t>(choice);
  AnswerProgress::ChoiceProgress& sent = sent_before_loss->choices[index];
  const size_t num_ids = answer.choices[index].ids.size();
  if (num_ids != sent.ids.size()) return num_ids < sent.ids.size();
  return sent.num_blocks-- > 0;
}

// The block behind all choices counts as one of the first.
std::string ReplyJob::events_of(int choice, const std::string& block) {
  const ApiFormat& format = answer.prepared.request.api->format();
  std::string framed;
  if (format.style() == StreamStyle::named)
    framed = block;
  else
    append_sse(framed, block);
  const auto index = static_cast<size_t>(std::max(choice, 0));
  std::optional<uint32_t> number;
  if (format.repeats() && choice != kClosingBlock)
    number = static_cast<uint32_t>(2 * answer.choices[index].ids.size()) +
             (answer.choices[index].ended ? 1u : 0u);
  static const StreamPosition kNothing;
  const bool ids_wanted = answer.prepared.event_ids && answer.prepared.stream_record != nullptr;
  return number_events({framed, index, number}, next_event, client_has ? *client_has : kNothing,
                       ids_wanted ? std::string_view(answer.prepared.id) : "");
}

std::string ReplyJob::with_progress(int choice, const std::string& events) {
  std::string out;
  std::span<const TokenId> new_ids;
  if (choice != kClosingBlock) {
    const auto index = static_cast<size_t>(choice);
    size_t& num_sent = of_choice[index].num_ids_sent;
    new_ids = std::span(answer.choices[index].ids).subspan(num_sent);
    num_sent += new_ids.size();
  }
  append_progress(out, choice, new_ids, events);
  return out;
}

void ReplyJob::end_meter() const {
  if (const auto& meter = answer.prepared.request.meter; meter != nullptr && exchange == nullptr)
    meter->end();
}

int64_t ReplyJob::pending_bytes(size_t choice) const {
  return static_cast<int64_t>(sizeof(PendingOutputs::Output)) +
         logprob_bytes(prompt_of(choice).sampling);
}

void PendingOutputs::add(size_t choice, RequestOutput&& output, int64_t bytes) {
  if (refused_) return;
  if (outputs_.size() == num_counted_) {
    if (auto room = held_.grow(kPendingRoom * bytes); !room)
      refused_ = std::move(room).error();
    else
      num_counted_ += kPendingRoom;
  }
  if (!refused_) outputs_.push_back({choice, std::move(output)});
}

PendingOutputs::Output PendingOutputs::take_first() {
  Output first = std::move(outputs_.front());
  outputs_.pop_front();
  return first;
}

void abort_all_of(Engine& engine, const ReplyJob& job) {
  for (const auto& choice : job.of_choice) engine.abort(choice.id);
}

}  // namespace hocket
