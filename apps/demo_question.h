// Asks the services that hocket demo compares, and keeps the answers' tokens.
#pragma once

#include <string>

#include "apps/running_server.h"

namespace hocket {

inline constexpr double kDemoPatienceSeconds = 60;  // time-out of the demo's own questions

struct DemoQuestion {
  const char* text = "";
  int max_tokens = 0;
  bool ignore_eos = false;  // every answer has max_tokens
};

struct DemoAnswer {
  std::string tokens;  // with their log-probabilities, as the server wrote them
  int num_tokens = 0;
};

// Asks one chat question at temperature 0, over HTTP on this host. Thread: any.
// Errors: those of the client; internal: with the server's message.
Result<DemoAnswer> ask_for_tokens(const RunningServer& running, const DemoQuestion& question);

}  // namespace hocket
