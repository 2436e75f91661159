// Reads and fills the structs of include/hocket/hocket.h.
#pragma once

#include <hocket/hocket.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi/offline_engine.h"

namespace hocket {

// Errors: bad_value with `name`, if the pointer is null.
template <class T>
Result<void> need(const T* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return fail(error(ErrorCode::bad_value, "{} is NULL", name).with_param(name));
}

// Returns the size of the caller's struct: sizeof(T), or less if its header is older. Errors:
// bad_value.
template <class T>
Result<size_t> size_of_callers(const T* theirs, const char* name) {
  HOCKET_TRY_VOID(need(theirs, name));
  const size_t size = theirs->struct_size;
  if (size >= sizeof(size_t) && size <= sizeof(T)) return size;
  return fail(error(ErrorCode::bad_value, "{}->struct_size is {}, the library's own is {}", name,
                    size, sizeof(T))
                  .with_fix(size > sizeof(T) ? "the program was built for a newer libhocket"
                                             : "set it to sizeof of the struct"));
}

template <class T>
Result<void> hand_out(T ours, T* theirs, const char* name) {
  HOCKET_TRY(const size_t size, size_of_callers(theirs, name));
  ours.struct_size = size;
  std::memcpy(theirs, &ours, size);
  return {};
}

std::vector<TokenId> token_ids(const int32_t* ids, size_t count);
hocket_request default_request(const OfflineEngine& engine);
// Errors: bad_value; invalid_request (the grammar cannot be read).
Result<TextRequest> read_request(const OfflineEngine& engine, const hocket_request* theirs);

// Calls the C handler with each event, and keeps the memory that the event's pointers point to.
class HandlerCaller {
 public:
  HandlerCaller(hocket_event_handler handler, void* user) : handler_(handler), user_(user) {}

  // Returns false if the handler wants to cancel the request.
  bool operator()(const TextEvent& event);

 private:
  void fill_logprobs(const PositionLogprobs& logprobs, hocket_event& out);

  hocket_event_handler handler_;
  void* user_;
  std::string text_;
  std::vector<int32_t> top_tokens_;
  std::vector<float> top_logprobs_;
};

}  // namespace hocket
