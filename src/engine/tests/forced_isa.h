// Chooses the instruction set of the engines that are made while it lives. Tests only.
#pragma once

#include <cstdlib>

namespace hocket::testing {

class ForcedIsa {
 public:
  explicit ForcedIsa(const char* name) { setenv("HOCKET_ISA", name, 1); }
  ~ForcedIsa() { unsetenv("HOCKET_ISA"); }
};

}  // namespace hocket::testing
