// The last events of this process, kept in memory for the moment when it crashes or hangs: then
// they are written to a file (`hocket crash FILE` reads it).
//
//   note() -> ring of slots (the newest win) ... SIGSEGV, SIGABRT, watchdog ->
//   FOLDER/hocket-crash-*
//
// Each event is formatted when it is noted, so that writing them takes nothing but system calls.
// Nothing is kept unless open() was called. Thread: any; notes take no lock and allocate nothing.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket::black_box {

// Steps are many and must not push requests out.
enum class Ring : uint8_t { requests, steps };

struct Options {
  std::string folder;
  std::string about;  // of the process, a JSON object
  size_t request_slots = 8192, step_slots = 32768;
};
inline constexpr size_t kSlotBytes = 256;  // an event's text is somewhat shorter; longer is cut
inline constexpr int kFilesKept = 16;      // in the folder; the oldest go

// Makes the rings and watches fatal signals from now on. Once. Errors: io (the folder).
Result<void> open(const Options& options);
bool is_open();

// What a process that is about to end says of it, such as a check that failed: the file begins with
// the first of these.
void last_words(std::string_view why);
// Writes the file now. True where that worked. Async-signal-safe; the first call wins.
bool write(std::string_view why);
// Where it will be written; empty unless open.
const char* path();

// An event: members of a JSON object, as `"step":{},"rows":{}`.
void note(Ring ring, std::string_view members);
template <class... Args>
void note(Ring ring, fmt::format_string<Args...> text, Args&&... args) {
  if (!is_open()) return;
  char members[kSlotBytes];
  const auto done = fmt::format_to_n(members, sizeof members, text, std::forward<Args>(args)...);
  note(ring, std::string_view(members, std::min(done.size, sizeof members)));
}

}  // namespace hocket::black_box
