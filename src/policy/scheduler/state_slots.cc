#include "policy/scheduler/state_slots.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/last_message.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {
namespace {

// Largest number of states that a prompt may leave in a step besides six fixed ones: those before
// and behind the rows, and those at the four borders that assign_cached() names.
constexpr int kMaxBetween = kMaxStateSlots - 6;
// States inside the last message, if slots are free.
constexpr int kEditSteps = 8;

int ceil_to(int count, int step) {
  return (count + step - 1) / step * step;
}

// True if the rows belong to an answer; its first row may be scheduled before the prompt's last
// chunk is committed.
bool is_answer(const Slice& slice) {
  return slice.request->state == Request::State::running || slice.pending_sample >= 0;
}

}  // namespace

StateSlots::StateSlots(const SchedulerOptions& options, RadixCache& cache)
    : options_(options),
      states_(options.num_states),
      blocks_(options.num_states > 0 ? options.max_running_requests : 0),
      cache_(cache) {}

// States are cached at borders that are the ends of pages, too.
int StateSlots::state_spacing() const {
  return std::max(options_.state_tokens, options_.page_tokens);
}

// Borders whose states a peer continues from are ends of its pages, too.
int StateSlots::border_spacing(const Request& request) const {
  return std::max(state_spacing(), request.border_tokens);
}

bool StateSlots::has_room() const {
  return !enabled() ||
         (blocks_.num_free() > 0 && states_.num_free() + cache_.num_evictable_states() > 0);
}

// Takes a state slot, a cached state's if none is free. Returns -1 if there is none.
int StateSlots::take_state() {
  if (states_.num_free() == 0 && !cache_.evict_state()) return -1;
  return states_.take();
}

void StateSlots::begin(Request& request, PrefixMatch& match) {
  if (!enabled()) return;
  RequestStates& held = request.states;
  held.block = blocks_.take();
  held.own = take_state();
  HOCKET_CHECK(held.own >= 0);
  held.loads_state = true;
  held.last = {match.state.len(), match.state.slot()};
  held.leased = std::move(match.state);
  const int spacing = border_spacing(request);
  // The match may end between two borders of a peer, which takes no state from there.
  held.cached_to = held.last.end / spacing * spacing;
  const int branch = match.longest_len / spacing * spacing;
  held.branches_at = branch > held.last.end ? branch : 0;
  const auto prompt = std::span(request.tokens).first(static_cast<size_t>(request.prompt_len));
  const auto [message, generation_prompt] = last_message(prompt, options_.eos_ids);
  held.message_at = message / spacing * spacing;
  held.generation_prompt_at =
      std::min(generation_prompt / spacing * spacing, last_cached_border(request));
  const int remaining = last_cached_border(request) - std::max(held.message_at, held.last.end);
  held.edit_step =
      generation_prompt > 0 ? ceil_to(std::max(remaining / kEditSteps, 1), spacing) : 0;
}

int StateSlots::last_cached_border(const Request& request) const {
  const int spacing = border_spacing(request);
  return (static_cast<int>(request.tokens.size()) - 1) / spacing * spacing;
}

int StateSlots::rows_before_border(int end) const {
  if (!enabled()) return std::numeric_limits<int>::max();
  return options_.state_tokens - 1 - end % options_.state_tokens;
}

// Returns the next border between those of assign_cached() at which a state is cached.
PlannedState StateSlots::next_between(const Slice& slice) const {
  const RequestStates& held = slice.request->states;
  const int wanted = std::max(options_.cached_state_interval, slice.len / kMaxBetween + 1);
  const int spacing = border_spacing(*slice.request);
  int apart = ceil_to(wanted, spacing);
  // Each request that may still begin (a free block slot) shall find a state slot without an
  // eviction.
  const bool for_edits = held.edit_step > 0 && held.edit_step < apart &&
                         held.cached_to >= held.message_at &&
                         states_.num_free() > blocks_.num_free();
  if (for_edits) apart = held.edit_step;
  const int first = ceil_to(held.last.end + 1, spacing);
  return {{std::max(held.cached_to + apart, first), -1}, for_edits};
}

// Finds slots for the states that the prompt's slice leaves behind, at four borders:
//   where prompts branch,
//   where the last message begins, since clients edit it,
//   where the generation prompt begins, since the next turn's prompt may have none of it,
//   the last one before the prompt's last token, so that an equal prompt hits it.
// Between these, a long prompt leaves a state every cached_state_interval tokens, and the last
// message leaves closer ones if slots are free.
void StateSlots::assign_cached(Slice& slice) {
  if (!options_.prefix_cache || is_answer(slice)) return;
  const Request& request = *slice.request;
  const RequestStates& held = request.states;
  const int end = slice.begin + slice.len;
  std::array borders = {held.branches_at, held.message_at, held.generation_prompt_at,
                        last_cached_border(request), end + 1};
  std::ranges::sort(borders);
  int num_between = 0;
  for (const int border : borders) {
    if (border <= held.last.end) continue;
    while (num_between < kMaxBetween) {
      const auto [next, for_edits] = next_between(slice);
      if (next.end >= border) break;
      if (!cache_at(slice, next.end, for_edits)) return;
      ++num_between;
    }
    if (border > end || !cache_at(slice, border)) return;
  }
}

// The state is computed into the request's own slot, which the tree gets, and another slot becomes
// the request's. Returns false if there is none; the state is not cached then.
bool StateSlots::cache_at(Slice& slice, int border, bool for_edits) {
  RequestStates& held = slice.request->states;
  const int spare = take_state();
  if (spare < 0) return false;
  held.last = {border, std::exchange(held.own, spare)};
  held.planned.push_back({held.last, for_edits});
  held.cached_to = border;
  slice.add_state(held.last);
  return true;
}

void StateSlots::assign_slots(Slice& slice) {
  if (!enabled()) return;
  RequestStates& held = slice.request->states;
  slice.block = held.block;
  slice.load_state_at = std::exchange(held.loads_state, false) ? slice.begin : -1;
  if (held.last.end > 0) slice.add_state(held.last);
  const int last = (slice.begin + slice.len) / options_.state_tokens * options_.state_tokens;
  assign_cached(slice);
  if (held.last.end == last) return;
  if (is_answer(slice)) save_last(held);
  held.last = {last, held.own};
  slice.add_state(held.last);
}

// Keeps the last state of an answer, if the tree could take it: the rows that would produce the
// next one may lie beyond the end of the answer.
void StateSlots::save_last(RequestStates& held) {
  if (held.last.end == 0 || held.last.slot != held.own || held.last.end % state_spacing() != 0)
    return;
  const int spare = take_state();
  if (spare < 0) return;
  if (held.before.slot >= 0) states_.give_back(held.before.slot);
  held.before = {held.last.end, std::exchange(held.own, spare)};
}

void StateSlots::commit(Request& request, int end) {
  if (!enabled()) return;
  RequestStates& held = request.states;
  while (!held.planned.empty() && held.planned.front().state.end <= end) {
    const auto [planned, for_edits] = held.planned.front();
    held.planned.erase(held.planned.begin());
    StateLease lease = cache_.cache_state(request.lease, planned.end, planned.slot);
    if (options_.hooks != nullptr && !for_edits)
      options_.hooks->on_state_cached(request, planned.end, lease.slot());
    if (held.last.end == planned.end) held.last.slot = lease.slot();
    held.leased = std::move(lease);
  }
  if (held.leased && end - held.leased.len() >= state_spacing()) held.leased = StateLease();
  if (held.before.slot >= 0 && end - held.before.end >= state_spacing())
    states_.give_back(std::exchange(held.before, {}).slot);
}

void StateSlots::end(Request& request) {
  if (!enabled() || request.states.block < 0) return;
  RequestStates& held = request.states;
  const int shared = request.lease.len();
  const auto cache = [&](int end, int& slot) {
    if (slot < 0 || end == 0 || end > shared || end % state_spacing() != 0) return false;
    const StateLease lease = cache_.cache_state(request.lease, end, std::exchange(slot, -1));
    if (options_.hooks != nullptr) options_.hooks->on_state_cached(request, end, lease.slot());
    return true;
  };
  const bool is_own = held.last.slot == held.own;
  if (!is_own || !cache(held.last.end, held.own)) cache(held.before.end, held.before.slot);
  free(request);
}

void StateSlots::free(Request& request) {
  RequestStates& held = request.states;
  if (held.block < 0) return;
  blocks_.give_back(held.block);
  for (const int slot : {held.own, held.before.slot})
    if (slot >= 0) states_.give_back(slot);
  for (const PlannedState& planned : held.planned) states_.give_back(planned.state.slot);
  held.planned.clear();
  held.block = held.own = -1;
  held.last = held.before = {};
  held.leased = StateLease();
  held.loads_state = false;
}

void StateSlots::OwnedSlots::add(const Request& request) {
  const RequestStates& held = request.states;
  num_states += (held.own >= 0 ? 1 : 0) + (held.before.slot >= 0 ? 1 : 0);
  num_states += static_cast<int>(held.planned.size());
  num_blocks += held.block >= 0 ? 1 : 0;
}

void StateSlots::check(const OwnedSlots& by_requests) const {
  HOCKET_CHECK(states_.num_free() + cache_.num_states() + by_requests.num_states ==
               states_.num_slots());
  HOCKET_CHECK(blocks_.num_free() + by_requests.num_blocks == blocks_.num_slots());
}

}  // namespace hocket
