#include "base/result.h"

namespace hocket {

std::string code_name(ErrorCode code) {
  return fmt::format("HK{:03}", static_cast<int>(code));
}

int exit_status(ErrorCode code) {
  const int n = static_cast<int>(code);
  if (n < 20) return 2;
  if (n < 40) return 3;
  if (n < 50) return 4;
  if (n < 60 || code == ErrorCode::unauthorized) return 5;  // also for a process that may not join
  if (n < 70) return 6;
  if (code == ErrorCode::port_in_use) return 7;
  return 1;
}

std::string describe(const Error& e) {
  std::string text = fmt::format("error[{}]: {}", code_name(e.code), e.message);
  if (!e.fix.empty()) text += fmt::format("\n  fix: {}", e.fix);
  return text;
}

}  // namespace hocket
