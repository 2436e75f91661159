// Keeps the last events of this process in memory and writes them to a file when the process
// crashes or hangs (`hocket crash FILE` reads it).
//
//   note() -> ring of slots (the newest win) ... SIGSEGV, SIGABRT, watchdog ->
//   FOLDER/hocket-crash-*
//
// Each event is formatted when it is noted, so that writing the file takes only system calls.
// Without open() no event is kept. Thread: any; note() takes no lock and allocates nothing.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket::black_box {

// Steps have a ring of their own, because they are many and must not displace requests.
enum class Ring : uint8_t { requests, steps };

struct Options {
  std::string folder;
  std::string about;  // description of the process, a JSON object
  size_t request_slots = 8192, step_slots = 32768;
};
// An event's text is somewhat shorter; longer text is cut.
inline constexpr size_t kSlotBytes = 256;
inline constexpr int kFilesKept = 16;  // in the folder; the oldest are removed

// Makes the rings and handles fatal signals from here on. Call once. Errors: io (the folder).
Result<void> open(const Options& options);
bool is_open();

// Stores the reason of the end, such as a check that failed; the file begins with the first call's.
void last_words(std::string_view why);
// Writes the file; returns true if that worked. Async-signal-safe; only the first call writes.
bool write(std::string_view why);
// Returns the path that the file will have; empty unless open.
const char* path();

// Notes an event: members of a JSON object, for example `"step":{},"rows":{}`.
void note(Ring ring, std::string_view members);
void format_and_note(Ring ring, fmt::string_view text, fmt::format_args args);
template <class... Args>
void note(Ring ring, fmt::format_string<Args...> text, Args&&... args) {
  if (is_open()) format_and_note(ring, text, fmt::make_format_args(args...));
}

}  // namespace hocket::black_box
