// `hocket bench --compare OLD [NEW]`: compares the speed of two builds of this program, to find
// changes that make something slower.
#pragma once

#include <string>
#include <vector>

namespace hocket {

struct CompareBuildsOptions {
  std::string before, after;  // paths of the programs; an empty `after` means this program
  std::string shape = "small";
  std::vector<std::string> forms = {"none", "int8", "int4"};  // as --quantization
  std::vector<int> input_lens = {512};
  std::vector<int> batches = {1, 16};
  int output_len = 16;
  int rounds = 5;
  double min_ratio = 0.95;  // a pass fails if its median new/old is lower
  bool json = false;        // one object a line
};

// Prints one line a pass, medians with least and most over the rounds:
//   int8 decode b=16 | old 603 (595-611) | new 712 (700-725) tok/s | new/old 1.18 (1.16-1.20)
// Each round runs both programs as children, one after the other; the first one alternates. Returns
// the exit status: 1 if a pass is slower than `min_ratio` allows, that of an error, else 0.
int compare_builds(const CompareBuildsOptions& options);

}  // namespace hocket
