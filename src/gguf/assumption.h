// A value that a GGUF file lacks, or is known to have wrong, and what is taken instead; the server
// reports it.
#pragma once

#include <string>

namespace hocket {

struct GgufAssumption {
  std::string key;                           // "deepseek2.expert_group_count"
  std::string from = "missing in the file";  // or the value there
  std::string to;
  std::string why;
};

}  // namespace hocket
