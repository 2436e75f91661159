#include "capi/offline_engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "capi/request_rules.h"
#include "core/default_sampling.h"
#include "engine/grammar/grammar_trials.h"
#include "text/grammar/answer_rules.h"
#include "text/tokens/files.h"
#include "text/tokens/stop_matcher.h"

namespace hocket {
namespace {

// Tokens of a chat that are counted even if the context is shorter.
constexpr int64_t kCountedTokens = 64 << 10;

Error no_tokenizer() {
  return error(ErrorCode::no_tokenizer,
               "the model folder has no tokenizer.json, so text cannot be read or written")
      .with_fix("token ids work; or set the option tokenizer-path");
}

// Returns the command of the trials; empty without a program.
Result<std::vector<std::string>> trials_command(const std::string& program) {
  if (program.empty()) return std::vector<std::string>();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(program, ignored) || access(program.c_str(), X_OK) != 0)
    return fail(error(ErrorCode::bad_value,
                      "grammar-trials is {}, which is no program that can "
                      "be started",
                      program)
                    .with_fix("the path of the program hocket, as /usr/bin/hocket")
                    .with_param("grammar-trials"));
  return std::vector<std::string>{program, std::string(kGrammarTrialsCommand)};
}

}  // namespace

// Holds the requests under way, by id, and the thread `events`. Only that thread uses an entry,
// from the moment its request was submitted until the last event erases it.
class OfflineEngine::Table {
 public:
  // The engine, the tokenizer and the marks must outlive this object.
  Table(Engine& engine, const Tokenizer* tokenizer, std::span<const TokenId> reasoning_marks)
      : engine_(engine),
        tokenizer_(tokenizer),
        reasoning_marks_(reasoning_marks),
        outbox_(outbox_size(engine.info().max_running_requests)) {
    thread_ = Thread({.name = "events"}, [this] { run(); });
    engine_.start(outbox_);
  }

  // Engine::stop() ends every request; the thread reports all events in the outbox before it ends.
  ~Table() {
    engine_.stop();
    stopping_ = true;
    outbox_.wake();
    thread_.join();
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void enter(RequestId id, const TextRequest& request, Listener listener) {
    auto entry = std::make_unique<Entry>();
    entry->listener = std::move(listener);
    if (tokenizer_ != nullptr) {
      const bool thinks = request.reasoning_start != ReasoningStart::none;
      entry->detokenizer.emplace(*tokenizer_, request.special,
                                 thinks ? reasoning_marks_ : std::span<const TokenId>());
      entry->matcher.emplace(request.sampling.stop, StopText::trim);
    }
    MutexLock lock(mutex_);
    entries_.emplace(id, std::move(entry));
  }

  void forget(RequestId id) {
    MutexLock lock(mutex_);
    entries_.erase(id);
  }

  bool is_this_thread() const { return thread_.is_current(); }

 private:
  struct Entry {
    Listener listener;
    std::optional<Detokenizer> detokenizer;  // empty without a tokenizer
    std::optional<StopMatcher> matcher;
    std::string text;  // text of the current event
    TextEnding ending;
  };

  void run() {
    while (true) {
      const bool last_round = stopping_;
      auto output = outbox_.wait_pop(std::chrono::milliseconds(last_round ? 0 : 200));
      while (output) {
        take(*output);
        output = outbox_.pop();
      }
      if (last_round) return;
    }
  }

  void take(RequestOutput& output) {
    std::unique_ptr<Entry> ended;
    Entry* entry = nullptr;
    {
      MutexLock lock(mutex_);
      const auto found = entries_.find(output.id);
      if (found == entries_.end()) return;
      entry = found->second.get();
      if (output.summary) {
        ended = std::move(found->second);
        entries_.erase(found);
      }
    }
    entry->text.clear();
    const bool has_token = add_token(*entry, output);
    if (ended) end(*entry, *output.summary);
    if (!has_token && !ended) return;
    const bool wants_more =
        entry->listener({.id = output.id,
                         .token = has_token ? output.token : TokenId{-1},
                         .text = entry->text,
                         .logprobs = has_token ? output.logprobs.get() : nullptr,
                         .ending = ended ? &ended->ending : nullptr});
    if (!wants_more && !ended) engine_.abort(output.id);
  }

  // Returns false if there is no token to report: none came, or the answer is already whole.
  bool add_token(Entry& entry, const RequestOutput& output) {
    if (value(output.token) < 0 || entry.ending.stop_text) return false;
    ++entry.ending.generated_tokens;
    if (!entry.detokenizer) return true;
    const bool ends_it = output.summary && output.summary->finish == FinishReason::stop &&
                         output.summary->matched_stop == output.token;
    if (!ends_it) add_text(entry, entry.detokenizer->step(output.token));
    if (entry.ending.stop_text && !output.summary) engine_.finish_whole(output.id);
    return true;
  }

  static void add_text(Entry& entry, std::string_view piece) {
    auto safe = entry.matcher->push(piece);
    entry.text += safe.text;
    if (safe.match) entry.ending.stop_text = *std::move(safe.match);
  }

  static void end(Entry& entry, const RequestSummary& summary) {
    TextEnding& ending = entry.ending;
    if (entry.detokenizer && !ending.stop_text) {
      add_text(entry, entry.detokenizer->flush());
      if (!ending.stop_text) entry.text += entry.matcher->flush();
    }
    ending.prompt_tokens = summary.prompt_tokens;
    ending.cached_tokens = summary.cached_tokens;
    ending.finish = ending.stop_text ? FinishReason::stop : summary.finish;
    if (ending.finish == FinishReason::stop && !ending.stop_text)
      ending.stop_token = summary.matched_stop;
    if (ending.finish == FinishReason::error) ending.error = summary.error;
  }

  Engine& engine_;
  const Tokenizer* const tokenizer_;
  const std::span<const TokenId> reasoning_marks_;
  Outbox outbox_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::unordered_map<RequestId, std::unique_ptr<Entry>> entries_ HOCKET_GUARDED_BY(mutex_);
  Thread thread_;
};

Result<std::unique_ptr<OfflineEngine>> OfflineEngine::open(const EmbeddedSettings& settings) {
  std::unique_ptr<OfflineEngine> engine(new OfflineEngine);
  HOCKET_TRY_VOID(engine->load(settings));
  return engine;
}

OfflineEngine::~OfflineEngine() = default;

Result<void> OfflineEngine::load(const EmbeddedSettings& settings) {
  if (settings.model.model_path.empty())
    return fail(error(ErrorCode::model_not_found, "no model is named")
                    .with_fix("set the option model-path")
                    .with_param("model-path"));
  const std::filesystem::path folder = settings.model.tokenizer_path.empty()
                                           ? settings.model.model_path
                                           : settings.model.tokenizer_path;
  Engine::Options options{.settings = settings};
  if (has_model_file(folder, "tokenizer.json")) {
    HOCKET_TRY(tokenizer_, Tokenizer::load(folder));
    options.tokenizer_size = tokenizer_->vocab_size();
    options.tokenizer_eos = tokenizer_->eos_id();
    options.grammars = {.tokenizer = tokenizer_->handle(), .folder = folder};
    HOCKET_TRY(options.grammar_trials, trials_command(settings.grammar_trials));
    if (settings.model.chat_template.empty()) {
      HOCKET_TRY(chat_template_, ChatTemplate::load(folder, *tokenizer_));
    } else {
      HOCKET_TRY(chat_template_,
                 ChatTemplate::from_file(settings.model.chat_template, *tokenizer_));
    }
    HOCKET_TRY(reasoning_, choose_reasoning_format(
                               settings.answers.reasoning_parser,
                               chat_template_ ? std::string_view(chat_template_->source()) : ""));
    reasoning_marks_ = control_tokens_of(marks_of(reasoning_), *tokenizer_);
  }
  HOCKET_TRY(engine_, Engine::create(std::move(options)));
  for (const SettingChange& change : engine_->info().changes)
    log::warning("changed: {} {} -> {} because {}", change.flag, change.from, change.to,
                 change.why);
  for (const std::string& note : engine_->info().notes) log::info("note: {}", note);
  table_ = std::make_unique<Table>(*engine_, tokenizer(), reasoning_marks_);
  return {};
}

SamplingParams OfflineEngine::default_sampling() const {
  SamplingParams s = hocket::default_sampling(info().generation_defaults);
  std::random_device random;
  s.seed = static_cast<uint64_t>(random()) << 32 | random();
  return s;
}

Result<std::vector<TokenId>> OfflineEngine::tokenize(std::string_view text) const {
  if (!tokenizer_) return fail(no_tokenizer());
  return tokenizer_->encode(text);
}

Result<ChatTokens> OfflineEngine::chat_tokens(std::string_view messages_json,
                                              std::string_view extra_json) const {
  if (!tokenizer_) return fail(no_tokenizer());
  if (!chat_template_)
    return fail(error(ErrorCode::template_failed, "the model has no chat template")
                    .with_fix("set the option chat-template, or use hocket_tokenize"));
  HOCKET_TRY(const ChatInput input, read_chat(messages_json, extra_json));
  HOCKET_TRY(const RenderedPrompt rendered, chat_template_->render(input));
  const int64_t most = std::max<int64_t>(info().context_length, kCountedTokens);
  HOCKET_TRY_VOID(tokenizer_->check_length(rendered.marked, most));
  ChatTokens chat;
  HOCKET_TRY(chat.ids, tokenizer_->encode(rendered));
  chat.reasoning_start = reasoning_before_structure(
      reasoning_start(input, chat.ids, reasoning_, *tokenizer_), input, *chat_template_);
  return chat;
}

Result<std::string> OfflineEngine::detokenize(std::span<const TokenId> tokens) const {
  if (!tokenizer_) return fail(no_tokenizer());
  return tokenizer_->decode(tokens, SpecialTokens::skip);
}

Result<void> OfflineEngine::settle_reasoning(TextRequest& request) const {
  if (request.reasoning_start == ReasoningStart::none) return {};
  if (!tokenizer_ || !reasoning_)
    return fail(error(ErrorCode::invalid_request,
                      "reasoning is to come first, but nothing says how this model marks it")
                    .with_fix("HOCKET_NO_REASONING, or what hocket_chat_prompt says")
                    .with_param("reasoning"));
  if (request.sampling.grammar == nullptr) return {};
  const AnswerSpec spec{.choice = {},
                        .text = request.sampling.grammar,
                        .reasoning_start = request.reasoning_start,
                        .reasoning = reasoning_};
  HOCKET_TRY(request.sampling.grammar, grammar_of_answer(spec, *tokenizer_));
  return {};
}

// Fills in values that the caller left open, and refuses requests that are not allowed.
Result<void> OfflineEngine::settle(TextRequest& request) const {
  SamplingParams& sampling = request.sampling;
  HOCKET_TRY_VOID(check_sampling(sampling, info().model.vocab_size));
  if (!tokenizer_ && !sampling.stop.empty()) return fail(no_tokenizer());
  HOCKET_TRY_VOID(settle_reasoning(request));
  if (sampling.max_new_tokens > 0) return {};
  const auto used = static_cast<int64_t>(request.prompt.size());
  const int64_t room = std::min<int64_t>(info().context_length, info().max_total_tokens) - used;
  // If no room is left, the engine refuses the request, with the numbers.
  sampling.max_new_tokens = static_cast<int>(std::max<int64_t>(room, 1));
  return {};
}

Result<void> OfflineEngine::submit(RequestId id, TextRequest request, Listener listener) {
  HOCKET_TRY_VOID(settle(request));
  table_->enter(id, request, std::move(listener));
  auto taken = engine_->submit({.id = id,
                                .prompt = std::move(request.prompt),
                                .sampling = std::move(request.sampling),
                                .priority = request.priority,
                                .arrived = RealClock().now()});
  if (!taken) table_->forget(id);
  return taken;
}

bool OfflineEngine::in_listener() const {
  return table_->is_this_thread();
}

}  // namespace hocket
