#include "base/source_dir_testing.h"

namespace hocket {

std::filesystem::path source_dir() {
  return HOCKET_SOURCE_DIR;
}

}  // namespace hocket
