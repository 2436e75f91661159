// Judges a machine and its kernel: which facts are good for serving, which slow it or break it, and
// how to repair them. For `hocket doctor` and for the start of a server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host_facts.h"
#include "base/machine.h"

namespace hocket {

enum class Severity : uint8_t {
  fine,
  hint,  // may matter, or only in some cases
  slow,  // serving is slower than it could be
  bad,   // serving will fail
};
std::string_view severity_name(Severity severity);

struct Finding {
  std::string name, value;
  std::string remedy;  // empty for Severity::fine
  Severity severity = Severity::fine;
};

// Pure.   Thread: any.
std::vector<Finding> judge(const Machine& machine, const HostFacts& facts);
// Judges the level in use, which HOCKET_ISA may have forced. Pure.
Finding judge_level(Isa used, Isa detected);

}  // namespace hocket
