# The headers of others that most files read, compiled once for all libraries and once for all tests. Only in Release, and without
# ccache, whose objects would serve this checkout alone. A file includes what it uses all the same, which lint checks without these.
set(HOCKET_SHARED_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex>
  <numeric> <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)

# hocket_make_headers(NAME OPTIONS options... LINK libs... HEADERS headers...): a target of which others take them.
function(hocket_make_headers name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;LINK;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

function(hocket_use_headers target name)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CCACHE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

hocket_make_headers(hocket_headers LINK fmt::fmt nlohmann_json::nlohmann_json Threads::Threads HEADERS ${HOCKET_SHARED_HEADERS})
# A program's code is -fPIE where a library's is -fPIC.
hocket_make_headers(hocket_test_headers OPTIONS -fPIE LINK fmt::fmt nlohmann_json::nlohmann_json GTest::gtest GTest::gmock
                    HEADERS ${HOCKET_SHARED_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
set_target_properties(hocket_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
