// The flags, with their values, that a rank must be started with to join a running service.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hocket {

// A switch has the value "true".
using JoinFlags = std::vector<std::pair<std::string, std::string>>;

}  // namespace hocket
