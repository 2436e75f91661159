// The position in a stream up to which a client has it, and the ids of events that say it.
//
//   id: chatcmpl-5f..:7        the answer has one choice, and this is its event 7; the first is 0
//   id: chatcmpl-5f..:7,-,12   three choices; the second has no event yet
//
// Where each block repeats all before it (/generate), blocks may be left out, and the number is
// twice the choice's number of tokens, plus one in its last block.   Thread: values; any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

struct StreamPosition {
  // By choice: the number of the next event, so 0 if the client has none; may be shorter than the
  // answer.
  std::vector<uint32_t> next;
};

inline constexpr size_t kMaxAnswerId = 128;  // bytes of an id that is looked up

std::string event_id(std::string_view answer_id, std::span<const uint32_t> next);

struct NamedPosition {
  std::string answer_id;
  StreamPosition position;
};
// Reads the id of an event. Returns nullopt for other texts, also for more than `max_choices`.
std::optional<NamedPosition> read_event_id(std::string_view text, size_t max_choices);
// Reads the number of an event as starting_after gives it.
std::optional<StreamPosition> read_starting_after(std::string_view text);

// Whole SSE events of one choice. `number` is that of the only event; nullopt: they follow on.
struct ChoiceEvents {
  std::string_view framed;
  size_t choice = 0;
  std::optional<uint32_t> number;
};
// Numbers the events from next[choice] on. Leaves out those that the client has, and gives the
// others an id line if `answer_id` is not empty.
std::string number_events(ChoiceEvents events, std::span<uint32_t> next, const StreamPosition& has,
                          std::string_view answer_id);

}  // namespace hocket
