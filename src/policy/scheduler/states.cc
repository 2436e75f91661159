// The states of requests, in models with delta nets: who has which slot, and which states are kept.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {
namespace {

// True if the rows belong to an answer; its first row may be scheduled before the prompt's last
// chunk is committed.
bool is_answer(const Slice& slice) {
  return slice.request->state == Request::State::running || slice.future >= 0;
}

// Returns where the last message of a prompt begins: behind the end token before the last one. 0 if
// the prompt is no conversation.
int last_message(std::span<const TokenId> prompt, const std::vector<TokenId>& end_ids) {
  int num_ends = 0;
  for (auto i = std::ssize(prompt) - 1; i >= 0; --i)
    if (std::ranges::find(end_ids, prompt[static_cast<size_t>(i)]) != end_ids.end() &&
        ++num_ends == 2)
      return static_cast<int>(i) + 1;
  return 0;
}

}  // namespace

bool Scheduler::State::has_room_for_states() const {
  return !has_states() ||
         (blocks.num_free() > 0 && states.num_free() + cache.num_evictable_states() > 0);
}

// Takes a state slot, a kept state's if none is free. Returns -1 if there is none.
int Scheduler::State::take_state() {
  if (states.num_free() == 0 && !cache.evict_state()) return -1;
  return states.take();
}

// Gives the slots to a request that begins behind its match. Pre: has_room_for_states().
void Scheduler::State::begin_states(Request& request, PrefixMatch& match) {
  if (!has_states()) return;
  RequestStates& own = request.states;
  own.block = blocks.take();
  own.own = take_state();
  HOCKET_CHECK(own.own >= 0);
  own.opens = true;
  own.last = {match.state.len(), match.state.slot()};
  own.leased = std::move(match.state);
  own.kept_to = own.last.end;
  const int branch = match.longest_len / kept_step() * kept_step();
  own.branches_at = branch > own.last.end ? branch : 0;
  const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.prompt_len));
  own.message_at = last_message(prompt, options.eos_ids) / kept_step() * kept_step();
}

int Scheduler::State::last_kept_border(const Request& request) const {
  return (static_cast<int>(request.tokens.size()) - 1) / kept_step() * kept_step();
}

// Returns the borders of a slice at which a state is to be kept, ascending, 0 for none: where
// prompts branch, where the last message begins, since that is what gets edited, and at the end of
// the prompt but before its last token, so that an equal prompt hits it. A long prompt also leaves
// one every kept_state_interval tokens.
std::array<int, 3> Scheduler::State::borders_to_keep(const Slice& slice) const {
  const Request& request = *slice.request;
  if (!options.prefix_cache || is_answer(slice)) return {};
  const RequestStates& own = request.states;
  const int end = slice.begin + slice.len, last = last_kept_border(request);
  std::array<int, 3> borders = {own.branches_at, own.message_at, last};
  std::ranges::sort(borders);
  int before = own.last.end;
  for (int& border : borders) {
    if (border <= before || border > end) border = 0;
    before = std::max(before, border);
  }
  const int here = end / kept_step() * kept_step();
  if (borders == std::array<int, 3>{} && here > own.last.end &&
      here - own.kept_to >= options.kept_state_interval)
    borders.back() = here;
  return borders;
}

// Says where the slice finds its last state and where it puts those that it computes. A state to be
// kept is computed into the request's own slot, which the tree gets, and another slot becomes the
// request's; if there is none, the state is not kept.
void Scheduler::State::place_states(Slice& slice) {
  if (!has_states()) return;
  RequestStates& own = slice.request->states;
  const auto add = [&](StatePlace place) {
    slice.places[static_cast<size_t>(slice.num_places++)] = place;
  };
  slice.block = own.block;
  slice.opens_at = std::exchange(own.opens, false) ? slice.begin : -1;
  if (own.last.end > 0) add(own.last);
  const int last = (slice.begin + slice.len) / options.state_tokens * options.state_tokens;
  for (const int border : borders_to_keep(slice)) {
    if (border == 0) continue;
    const int spare = take_state();
    if (spare < 0) break;
    own.last = {border, std::exchange(own.own, spare)};
    own.kept.push_back(own.last);
    own.kept_to = border;
    add(own.last);
  }
  if (own.last.end == last) return;
  if (is_answer(slice)) save_last(own);
  own.last = {last, own.own};
  add(own.last);
}

// Leaves the last state of an answer where it is, if the tree could take it, because the rows that
// make the next one may turn out to be behind the answer's end.
void Scheduler::State::save_last(RequestStates& own) {
  if (own.last.end == 0 || own.last.slot != own.own || own.last.end % kept_step() != 0) return;
  const int spare = take_state();
  if (spare < 0) return;
  if (own.before.slot >= 0) states.give_back(own.before.slot);
  own.before = {own.last.end, std::exchange(own.own, spare)};
}

// Hands the states of a prompt, up to token `end` of the committed rows, over to the tree. Pre: the
// request's lease covers them.
void Scheduler::State::keep_states(Request& request, int end) {
  RequestStates& own = request.states;
  while (!own.kept.empty() && own.kept.front().end <= end) {
    const StatePlace kept = own.kept.front();
    own.kept.erase(own.kept.begin());
    StateLease lease = cache.keep_state(request.lease, kept.end, kept.slot);
    if (own.last.end == kept.end) {
      own.last.slot = lease.slot();
      own.leased = std::move(lease);
    }
  }
  if (own.leased && end - own.leased.len() >= options.state_tokens) own.leased = StateLease();
  if (own.before.slot >= 0 && end - own.before.end >= kept_step())
    states.give_back(std::exchange(own.before, {}).slot);
}

// Keeps the last state of a request that ended, as far as its pages are the tree's, because the
// next turn of a conversation begins with it.
void Scheduler::State::end_states(Request& request) {
  if (!has_states() || request.states.block < 0) return;
  RequestStates& own = request.states;
  const int shared = request.lease.len();
  const auto keep = [&](int end, int& slot) {
    if (slot < 0 || end == 0 || end > shared || end % kept_step() != 0) return false;
    cache.keep_state(request.lease, end, std::exchange(slot, -1));
    return true;
  };
  const bool is_own = own.last.slot == own.own;
  if (!is_own || !keep(own.last.end, own.own)) keep(own.before.end, own.before.slot);
  free_states(request);
}

// Gives all slots back. Rows in flight may still use them: who gets them next writes there later.
void Scheduler::State::free_states(Request& request) {
  RequestStates& own = request.states;
  if (own.block < 0) return;
  blocks.give_back(own.block);
  for (const int slot : {own.own, own.before.slot})
    if (slot >= 0) states.give_back(slot);
  for (const StatePlace& kept : own.kept) states.give_back(kept.slot);
  own.kept.clear();
  own.block = own.own = -1;
  own.last = own.before = {};
  own.leased = StateLease();
  own.opens = false;
}

// Recounts the slots: each is free, in the tree, or a request's.
void Scheduler::State::check_states() const {
  int num_states = states.num_free() + cache.num_states(), num_blocks = blocks.num_free();
  const auto count = [&](const Request& request) {
    const RequestStates& own = request.states;
    num_states += (own.own >= 0 ? 1 : 0) + (own.before.slot >= 0 ? 1 : 0);
    num_states += static_cast<int>(own.kept.size());
    num_blocks += own.block >= 0 ? 1 : 0;
  };
  for (const auto& request : chunked) count(*request);
  for (const auto& request : running.requests()) count(*request);
  for (const auto& request : leaving) count(*request);
  HOCKET_CHECK(num_states == states.num_slots());
  HOCKET_CHECK(num_blocks == blocks.num_slots());
}

}  // namespace hocket
