// Says what the blocks of a GGUF file become in memory, for the server's report.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "gguf/file.h"

namespace hocket {

struct GgufFootprint {
  std::string_view type;  // "Q4_K"
  std::string format;     // in memory: "q8_0 in groups of 32", "bfloat16"
  int64_t file_bytes = 0, memory_bytes = 0;
  bool keeps_values = true;
  bool in_bytes = false;  // q8_0, which WeightLoader::Options::quantize can change to int4
};

// Returns a line for each type and format of the matrices of blocks, with `dtype` bf16 and
// WeightLoader::Options::quantize.
std::vector<GgufFootprint> gguf_footprints(const GgufFile& file, WeightFormat quantize);

}  // namespace hocket
