#include "engine/grammar/grammar_compiler.h"

#include <utility>

#include "base/log.h"
#include "core/queue_limits.h"

namespace hocket {
namespace {

// The limits of a lane: of all its clients together, and of one.
struct LaneLimits {
  QueueLimit<int64_t> of_all, of_client;
};

constexpr LaneLimits kGrammarLimits{
    {"{} grammars wait to be compiled already", "try again later"},
    {"{} grammars of this client wait to be compiled already", "try again later"}};
constexpr LaneLimits kLargeGrammarLimits{
    {"{} large grammars wait to be compiled already", "try again later, or send a smaller grammar"},
    {"{} large grammars of this client wait to be compiled already",
     "try again later, or send a smaller grammar"}};

TimePoint now() {
  return RealClock().now();
}

std::string_view too_much(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::fits:
      break;
    case TrialVerdict::too_slow:
      return "takes too long to compile";
    case TrialVerdict::too_large:
      return "needs too much memory to compile";
    case TrialVerdict::crashed:
      return "cannot be compiled";
  }
  std::unreachable();
}

std::unexpected<Error> refused(const GrammarSpec& spec, TrialVerdict verdict, TrialLimits limits) {
  return fail(error(ErrorCode::invalid_request,
                    "{}{}this {}: it is given {:.1f} s of computing and {} MiB", spec.field,
                    spec.field.empty() ? "" : ": ", too_much(verdict), to_seconds(limits.time),
                    limits.bytes >> 20)
                  .with_fix("fewer alternatives, optional properties and repetitions")
                  .with_param(spec.field));
}

}  // namespace

Result<std::shared_ptr<AnswerGrammar>> GrammarTicket::answer() const {
  if (settled_.load(std::memory_order_acquire)) return answer_;
  if (const Duration waited = now() - asked_; waited > patience_)
    return fail(
        error(ErrorCode::timed_out, "its grammar was not ready after {:.0f} s", to_seconds(waited))
            .with_fix("a simpler grammar, or try again later")
            .with_param(spec_->field));
  return std::shared_ptr<AnswerGrammar>();
}

GrammarCompiler::GrammarCompiler(Options options)
    : options_(std::move(options)), cache_(options_.max_cached, options_.max_cached_bytes) {
  if (!options_.trials.empty())
    trials_ =
        std::make_unique<GrammarTrials>(GrammarTrials::Options{.command = options_.trials,
                                                               .folder = options_.source.folder,
                                                               .num_logits = options_.num_logits,
                                                               .end_ids = options_.end_ids});
  auto& [quick, slow] = lanes_;
  quick.limits = options_.quick;
  quick.max_waiting = options_.max_waiting;
  quick.max_of_client = options_.max_waiting / 2;
  slow.index = 1;
  slow.limits = options_.slow;
  slow.max_waiting = options_.max_slow;
  slow.max_of_client = options_.max_slow / 2;
  quick.thread = Thread({.name = "grammar"}, [this] { run(lanes_[0]); });
  slow.thread = Thread({.name = "grammar-slow"}, [this] { run(lanes_[1]); });
}

GrammarCompiler::~GrammarCompiler() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (trials_) trials_->stop();
  for (Lane& lane : lanes_) lane.arrived.notify_one();
  for (Lane& lane : lanes_) lane.thread.join();
}

std::shared_ptr<GrammarTicket> GrammarCompiler::enqueue(std::shared_ptr<const GrammarSpec> spec,
                                                        std::function<void()> done, uint64_t client,
                                                        Admission admission) {
  auto ticket = std::make_shared<GrammarTicket>();
  ticket->spec_ = std::move(spec);
  ticket->client_ = client;
  ticket->is_unlimited_ = admission == Admission::unlimited;
  ticket->done_ = std::move(done);
  ticket->asked_ = now();
  ticket->patience_ = options_.patience;
  if (auto entered = enter(lanes_[0], ticket); !entered)
    settle(*ticket, fail(std::move(entered).error()));
  return ticket;
}

Result<void> GrammarCompiler::check_room(const Lane& lane, uint64_t client) const {
  const LaneLimits& limits = lane.index == 0 ? kGrammarLimits : kLargeGrammarLimits;
  const auto check = [](const QueueLimit<int64_t>& limit, int64_t used, size_t max) {
    return check_limit(limit, {.used = used, .max = static_cast<int64_t>(max)}, max);
  };
  HOCKET_TRY_VOID(check(limits.of_all, static_cast<int64_t>(lane.num_waiting), lane.max_waiting));
  const auto mine = lane.waiting.find(client);
  return check(limits.of_client, mine == lane.waiting.end() ? 0 : std::ssize(mine->second),
               lane.max_of_client);
}

// Errors: queue_full if too many tickets wait in that lane.
Result<void> GrammarCompiler::enter(Lane& lane, const std::shared_ptr<GrammarTicket>& ticket) {
  const MutexLock lock(mutex_);
  if (!check_room(lane, ticket->client_)) leave_out_expired(lane);
  if (!ticket->is_unlimited_) HOCKET_TRY_VOID(check_room(lane, ticket->client_));
  const auto mine = lane.waiting.try_emplace(ticket->client_).first;
  try {
    mine->second.push_back(ticket);
  } catch (...) {  // next() expects that each client in `waiting` has a ticket
    if (mine->second.empty()) lane.waiting.erase(mine);
    throw;
  }
  ++lane.num_waiting;
  lane.arrived.notify_one();
  return {};
}

void GrammarCompiler::leave_out_expired(Lane& lane) {
  for (auto& [client, tickets] : lane.waiting)
    lane.num_waiting -= std::erase_if(tickets, [](const auto& one) { return one.expired(); });
  std::erase_if(lane.waiting, [](const auto& entry) { return entry.second.empty(); });
}

void GrammarCompiler::run(Lane& lane) {
  if (lane.index == 0) make_vocabulary();
  while (const std::shared_ptr<GrammarTicket> ticket = next(lane)) serve(lane, ticket);
}

void GrammarCompiler::make_vocabulary() {
  const TimePoint begin = now();
  vocabulary_.emplace(
      GrammarVocabulary::create(options_.source, options_.num_logits, options_.end_ids));
  const Duration took = now() - begin;
  counts_->vocabulary_seconds = to_seconds(took);
  if (*vocabulary_)
    log::info("grammars: built the trie of {} tokens in {:.3f} s", options_.num_logits,
              to_seconds(took));
  else
    log::warning("no structured output: {}", vocabulary_->error().message);
}

// Waits for the next ticket, by turns of the clients. Null when the compiler ends.
std::shared_ptr<GrammarTicket> GrammarCompiler::next(Lane& lane) {
  MutexLock lock(mutex_);
  while (true) {
    lane.arrived.wait(lock,
                      [&]() HOCKET_REQUIRES(mutex_) { return stopping_ || !lane.waiting.empty(); });
    if (stopping_) return nullptr;
    auto turn = lane.waiting.upper_bound(lane.last_client);
    if (turn == lane.waiting.end()) turn = lane.waiting.begin();
    lane.last_client = turn->first;
    auto ticket = turn->second.front().lock();
    turn->second.pop_front();
    if (turn->second.empty()) lane.waiting.erase(turn);
    --lane.num_waiting;
    if (ticket != nullptr) return ticket;
    counts_->add(&GrammarCounters::num_cancelled);
  }
}

void GrammarCompiler::serve(Lane& lane, const std::shared_ptr<GrammarTicket>& ticket) {
  Result<std::shared_ptr<AnswerGrammar>> answer;
  if (!*vocabulary_) {
    // Clients do not learn the names of the server's files; the log has the reason.
    answer = fail(error(ErrorCode::invalid_request,
                        "this server makes no structured output: its tokenizer gives no vocabulary "
                        "for grammars")
                      .with_fix("leave it out and ask for the form in the prompt")
                      .with_param(ticket->spec_->field));
  } else if (const auto made = find_or_compile(lane, *ticket->spec_)) {
    answer = *made ? begin(**made, ticket->client_) : fail(Error(made->error()));
  } else {
    counts_->add(&GrammarCounters::num_too_slow);
    auto entered = enter(lanes_[1], ticket);
    if (entered) return;
    answer = fail(std::move(entered).error().with_param(ticket->spec_->field));
  }
  settle(*ticket, std::move(answer));
  ticket->done_();
}

// nullopt if the trial took longer than the first lane allows. The cache keeps errors too, since
// clients repeat requests that failed.
std::optional<MadeGrammar> GrammarCompiler::find_or_compile(Lane& lane, const GrammarSpec& spec) {
  {
    const MutexLock lock(mutex_);
    if (const MadeGrammar* found = cache_.find(spec)) {
      counts_->add(&GrammarCounters::num_cache_hits);
      return *found;
    }
  }
  if (!trials_ && !std::exchange(said_untried_, true))
    log::info(
        "grammars are compiled without a time or memory limit; if they come from untrusted "
        "clients, set grammar-trials to the path of the program hocket");
  const TimePoint begin = now();
  TrialVerdict verdict = TrialVerdict::fits;
  if (trials_) {
    const auto tried = trials_->attempt(lane.index, spec, lane.limits);
    if (!tried) return fail(Error(tried.error()));
    verdict = *tried;
    if (verdict == TrialVerdict::too_slow && lane.index == 0) return std::nullopt;
  }
  MadeGrammar made = verdict == TrialVerdict::fits
                         ? (*vocabulary_)->compile(spec)
                         : MadeGrammar(refused(spec, verdict, lane.limits));
  counts_->add(&GrammarCounters::compile_seconds_total, to_seconds(now() - begin));
  counts_->add(made ? &GrammarCounters::num_compiled : &GrammarCounters::num_failed);
  const MutexLock lock(mutex_);
  cache_.keep(spec, made);
  counts_->num_cached = cache_.num_entries();
  return made;
}

// Returns the sum of bytes that the matchers of a client's answers hold; the sum is forgotten with
// the last of them.
std::shared_ptr<std::atomic<int64_t>> GrammarCompiler::bytes_of(uint64_t client) {
  const MutexLock lock(mutex_);
  std::weak_ptr<std::atomic<int64_t>>& known = client_bytes_[client];
  auto bytes = known.lock();
  if (bytes == nullptr) {
    known = bytes = std::make_shared<std::atomic<int64_t>>(0);
    std::erase_if(client_bytes_, [](const auto& entry) { return entry.second.expired(); });
  }
  return bytes;
}

Result<std::shared_ptr<AnswerGrammar>> GrammarCompiler::begin(
    const std::shared_ptr<const Grammar>& grammar, uint64_t client) {
  const auto needed = static_cast<int64_t>(grammar->num_bytes());
  const auto client_bytes = bytes_of(client);
  if (const int64_t mine = *client_bytes; mine + needed > options_.max_client_bytes)
    return fail(error(ErrorCode::out_of_memory,
                      "the grammars of this client's answers under way hold {} MiB, at most {} may "
                      "be",
                      mine >> 20, options_.max_client_bytes >> 20)
                    .with_fix("try again later, or ask for a smaller grammar or n"));
  const int64_t held = counts_->answer_bytes;
  if (held + needed > kMaxAnswerGrammarsBytes)
    return fail(error(ErrorCode::out_of_memory,
                      "the grammars of running answers hold {} MiB; the limit is {} MiB",
                      held >> 20, kMaxAnswerGrammarsBytes >> 20)
                    .with_fix("try again later, or ask for a smaller grammar or n"));
  auto answer =
      std::make_shared<AnswerGrammar>(grammar, (*vocabulary_)->mask_words(), counts_, client_bytes);
  answer->precompute_mask();
  return answer;
}

void GrammarCompiler::settle(GrammarTicket& ticket, Result<std::shared_ptr<AnswerGrammar>> answer) {
  ticket.answer_ = std::move(answer);
  ticket.settled_.store(true, std::memory_order_release);
}

}  // namespace hocket
