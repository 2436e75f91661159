#include "engine/grammar/rank_grammars.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "core/client_name.h"
#include "engine/plan/memory_plan.h"

namespace hocket {

RankGrammars::RankGrammars(GrammarCompiler* compiler, std::function<void()> wake,
                           size_t max_running)
    : compiler_(compiler), wake_(std::move(wake)), ahead_(2 * max_running + 1) {
  if (compiler_ != nullptr) thread_ = Thread({.name = "masks"}, [this] { run(); });
}

RankGrammars::~RankGrammars() {
  ahead_.close();
  if (thread_.joinable()) thread_.join();
}

void RankGrammars::run() {
  // The priority is below the workers', but high enough that a worker never waits long for a mask.
  constexpr int kMaskNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kMaskNice);
  while (true) {
    auto grammar = ahead_.wait_pop(std::chrono::seconds(10));
    if (grammar)
      (*grammar)->precompute_mask();
    else if (ahead_.closed())
      return;
  }
}

Result<bool> RankGrammars::ready(const Request& request) {
  if (request.sampling.grammar == nullptr) return true;
  HOCKET_CHECK(compiler_ != nullptr);
  Following& mine = following_[request.id];
  if (mine.grammar != nullptr) return true;
  if (mine.ticket == nullptr)
    mine.ticket = compiler_->enqueue(request.sampling.grammar, wake_, proven_client(request.client),
                                     request.taken_over ? GrammarCompiler::Admission::unlimited
                                                        : GrammarCompiler::Admission::limited);
  auto answer = mine.ticket->answer();
  if (!answer) {
    forget(request.id);
    return std::unexpected(std::move(answer).error());
  }
  if (*answer == nullptr) return false;
  mine.grammar = *std::move(answer);
  mine.ticket.reset();
  for (const TokenId token : request.answer()) {
    if (mine.grammar->accept(token) != GrammarVerdict::failed) continue;
    forget(request.id);
    return fail(error(ErrorCode::invalid_request, "the grammar does not allow the answer so far"));
  }
  return true;
}

AnswerGrammar* RankGrammars::find(const Request& request) const {
  if (request.sampling.grammar == nullptr) return nullptr;
  const auto found = following_.find(request.id);
  HOCKET_CHECK(found != following_.end());
  return found->second.grammar.get();
}

// Returns null if checking would take too much memory or time. A retracted request keeps its
// matcher, since its tokens stay.
DraftCheck* RankGrammars::check_for(Following& mine) {
  if (thread_processor_time() > checks_end_) return nullptr;
  if (mine.check != nullptr) return mine.check.get();
  const auto compiled = mine.grammar->compiled();
  if (compiled == nullptr || compiled->num_bytes() > kDraftCheckBytes ||
      check_bytes_ + compiled->num_bytes() > static_cast<size_t>(kDraftChecksBytes))
    return nullptr;
  mine.check = std::make_unique<DraftCheck>(compiled->begin());
  return mine.check.get();
}

void RankGrammars::count_check(Following& mine) {
  const size_t others = check_bytes_ - mine.check_bytes;
  if (others + mine.check->num_bytes() > static_cast<size_t>(kDraftChecksBytes))
    mine.check->give_up();
  mine.check_bytes = mine.check->num_bytes();
  check_bytes_ = others + mine.check_bytes;
}

size_t RankGrammars::num_allowed(const Request& request, std::span<const TokenId> drafts) {
  if (request.sampling.grammar == nullptr || drafts.empty()) return drafts.size();
  Following& mine = following_.at(request.id);
  DraftCheck* const check = check_for(mine);
  if (check == nullptr) return drafts.size();
  const size_t allowed = check->num_allowed(request.answer(), drafts);
  count_check(mine);
  return allowed;
}

size_t RankGrammars::forced(const Request& request, std::span<TokenId> out) {
  if (request.sampling.grammar == nullptr) return 0;
  Following& mine = following_.at(request.id);
  DraftCheck* const check = check_for(mine);
  if (check == nullptr) return 0;
  const size_t count = check->forced(request.answer(), out);
  count_check(mine);
  return count;
}

void RankGrammars::forget(RequestId id) {
  const auto found = following_.find(id);
  if (found == following_.end()) return;
  check_bytes_ -= found->second.check_bytes;
  following_.erase(found);
}

void RankGrammars::precompute_mask(AnswerGrammar& grammar) {
  // If there is no room, the worker that draws computes the mask.
  [[maybe_unused]] const bool taken = ahead_.push(grammar.shared_from_this());
}

}  // namespace hocket
