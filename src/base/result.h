// Errors of the outside world (a file, a peer, a client) as values: a stable code, a sentence, a
// remedy. Bugs stop the process (base/check.h); a lack of room that passes is an answer, not an
// error. No exception crosses a room: exceptions of libraries are caught where they are called.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace hocket {

// The number is the stable code that users see (HK041). Tens group codes; see exit_status().
enum class ErrorCode : uint16_t {
  usage = 1,
  unknown_flag = 2,
  bad_value = 3,
  unknown_isa = 4,

  model_not_found = 20,
  bad_safetensors = 21,
  missing_tensor = 22,
  wrong_shape = 23,
  bad_config = 24,
  unsupported_model = 25,
  bad_gguf = 26,  // the file is damaged, or not what its header says
  bad_tokenizer = 27,
  bad_template = 28,

  out_of_memory = 40,
  kv_does_not_fit = 41,
  lost_rank = 50,
  watchdog = 60,
  port_in_use = 70,
  io = 71,

  invalid_request = 100,
  context_length_exceeded = 101,
  not_found = 102,
  unauthorized = 103,
  payload_too_large = 104,
  queue_full = 105,
  shutting_down = 106,
  loading = 107,
  request_timeout = 108,
  no_tokenizer = 109,
  template_failed = 110,
  request_too_big = 111,
  bad_logits = 112,
  method_not_allowed = 113,
  timed_out = 114,
  forbidden = 115,  // made by the server only, as are the next two
  rate_limited = 116,
  taken_over = 117,
  internal = 199,
};

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  // the event, with its numbers; one sentence, no full stop
  std::string fix;      // the remedy; empty if there is none
  std::string param;    // the request field or flag at fault; empty if there is none

  Error&& with_fix(std::string text) && { return fix = std::move(text), std::move(*this); }
  Error&& with_param(std::string name) && { return param = std::move(name), std::move(*this); }
};

template <class T>
using Result = std::expected<T, Error>;

// Example: return fail(ErrorCode::bad_config, "hidden_size is {}", n);
template <class... Args>
Error error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Error{code, fmt::format(text, std::forward<Args>(args)...), {}, {}};
}
template <class... Args>
std::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return std::unexpected(error(code, text, std::forward<Args>(args)...));
}
inline std::unexpected<Error> fail(Error e) {
  return std::unexpected(std::move(e));
}

// Returns for example "HK041".
std::string code_name(ErrorCode code);
// Returns the exit status of the process: 1 failed check or anything else, 2 usage, 3 model files,
// 4 memory, 5 lost rank, 6 watchdog, 7 port in use.
int exit_status(ErrorCode code);
// Returns the last lines that a failed command prints:
//   error[HK041]: the KV cache does not fit
//     fix: --context-length 16384
std::string describe(const Error& e);

}  // namespace hocket

// HOCKET_TRY(auto file, open(path)); sets `file`, or returns the error of open() from this
// function.
#define HOCKET_TRY(declaration, expression) \
  HOCKET_TRY_NAMED(HOCKET_JOIN(hocket_try_, __LINE__), declaration, expression)
#define HOCKET_TRY_NAMED(name, declaration, expression)       \
  auto name = (expression);                                   \
  if (!name) return std::unexpected(std::move(name).error()); \
  declaration = *std::move(name)
// HOCKET_TRY_VOID(write(file)); returns the error of write() from this function.
#define HOCKET_TRY_VOID(expression)                             \
  do {                                                          \
    if (auto hocket_result = (expression); !hocket_result)      \
      return std::unexpected(std::move(hocket_result).error()); \
  } while (false)
#define HOCKET_JOIN(a, b) HOCKET_JOIN_(a, b)
#define HOCKET_JOIN_(a, b) a##b
