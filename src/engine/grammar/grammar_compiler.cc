#include "engine/grammar/grammar_compiler.h"

#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

TimePoint now() {
  return RealClock().now();
}

std::string key_of(const GrammarSpec& spec) {
  return fmt::format("{}:{}", static_cast<int>(spec.kind), spec.text);
}

}  // namespace

Result<std::shared_ptr<AnswerGrammar>> GrammarTicket::answer() const {
  if (settled_.load(std::memory_order_acquire)) return answer_;
  if (const Duration waited = now() - asked_; waited > patience_)
    return fail(
        error(ErrorCode::timed_out, "its grammar was not ready after {:.0f} s", to_seconds(waited))
            .with_fix("a simpler grammar, or ask again later")
            .with_param(spec_->field));
  return std::shared_ptr<AnswerGrammar>();
}

GrammarCompiler::GrammarCompiler(Options options)
    : options_(std::move(options)), thread_({.name = "grammar"}, [this] { run(); }) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

std::shared_ptr<GrammarTicket> GrammarCompiler::order(std::shared_ptr<const GrammarSpec> spec,
                                                      std::function<void()> done) {
  auto ticket = std::make_shared<GrammarTicket>();
  ticket->spec_ = std::move(spec);
  ticket->done_ = std::move(done);
  ticket->asked_ = now();
  ticket->patience_ = options_.patience;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= options_.max_waiting)
      std::erase_if(waiting_, [](const auto& one) { return one.expired(); });
    if (waiting_.size() < options_.max_waiting) {
      waiting_.push_back(ticket);
      arrived_.notify_one();
      return ticket;
    }
  }
  settle(*ticket, fail(error(ErrorCode::queue_full, "{} grammars wait to be compiled already",
                             options_.max_waiting)
                           .with_fix("ask again later")));
  return ticket;
}

void GrammarCompiler::run() {
  make_vocabulary();
  while (const std::shared_ptr<GrammarTicket> ticket = next()) {
    settle(*ticket, serve(*ticket));
    ticket->done_();
  }
}

void GrammarCompiler::make_vocabulary() {
  const TimePoint begin = now();
  vocabulary_.emplace(
      GrammarVocabulary::create(options_.source, options_.num_logits, options_.end_ids));
  const Duration took = now() - begin;
  counts_->vocabulary_ns = took.count();
  if (*vocabulary_)
    log::info("grammars: a trie of {} tokens in {:.3f} s", options_.num_logits, to_seconds(took));
  else
    log::warning("no structured output: {}", vocabulary_->error().message);
}

// Null at the end.
std::shared_ptr<GrammarTicket> GrammarCompiler::next() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return nullptr;
    auto ticket = waiting_.front().lock();
    waiting_.pop_front();
    if (ticket != nullptr) return ticket;
    ++counts_->num_cancelled;
  }
}

Result<std::shared_ptr<AnswerGrammar>> GrammarCompiler::serve(const GrammarTicket& ticket) {
  if (!*vocabulary_)
    return fail(Error(vocabulary_->error()).with_fix("another tokenizer, or free text"));
  HOCKET_TRY(const std::shared_ptr<const Grammar> grammar, find_or_compile(*ticket.spec_));
  auto answer =
      std::make_shared<AnswerGrammar>(grammar->begin(), (*vocabulary_)->mask_words(), counts_);
  answer->compute_ahead();
  return answer;
}

// What failed is remembered too: clients try again.
GrammarCompiler::Made GrammarCompiler::find_or_compile(const GrammarSpec& spec) {
  std::string key = key_of(spec);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    cache_.splice(cache_.begin(), cache_, found->second);
    ++counts_->num_cache_hits;
    return cache_.front().made;
  }
  const TimePoint begin = now();
  Made made = (*vocabulary_)->compile(spec);
  counts_->compile_ns += (now() - begin).count();
  ++(made ? counts_->num_compiled : counts_->num_failed);
  cached_bytes_ += key.size();
  cache_.push_front({.key = std::move(key), .made = made});
  by_key_.emplace(cache_.front().key, cache_.begin());
  while (cache_.size() > 1 &&
         (cache_.size() > options_.max_cached || cached_bytes_ > options_.max_cached_bytes)) {
    cached_bytes_ -= cache_.back().key.size();
    by_key_.erase(cache_.back().key);
    cache_.pop_back();
  }
  counts_->num_cached = static_cast<int>(cache_.size());
  return made;
}

void GrammarCompiler::settle(GrammarTicket& ticket, Result<std::shared_ptr<AnswerGrammar>> answer) {
  ticket.answer_ = std::move(answer);
  ticket.settled_.store(true, std::memory_order_release);
}

}  // namespace hocket
