# hocket_room(NAME DIR dir [LINK libs...] [PRIVATE libs...])
# One library hocket_NAME from src/dir/**.cc and, where *_test.cc exist, one program NAME_test. Where *_testing.cc exist, they
# make a library NAME_testing, which tests and benches link, but no program that serves.
# A folder inside it that is a room of its own stays out; such a room comes first, as it is below.
enable_testing()
# Tests are compiled fast. What they test is compiled for speed.
set(HOCKET_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

# The one file that holds the path of the source tree, so that the compiler's cache serves all others to every checkout.
add_library(hocket_source_dir STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/base/source_dir_testing.cc)
target_include_directories(hocket_source_dir PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(hocket_source_dir PRIVATE HOCKET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")

function(hocket_room name)
  cmake_parse_arguments(ARG "" "DIR" "LINK;PRIVATE" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/*.cc)
  list(FILTER all EXCLUDE REGEX "/source_dir_testing\\.cc$")
  get_property(rooms GLOBAL PROPERTY HOCKET_ROOM_FOLDERS)
  foreach(folder ${rooms})
    if(folder MATCHES "^${ARG_DIR}/")
      list(FILTER all EXCLUDE REGEX "^${CMAKE_SOURCE_DIR}/src/${folder}/")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY HOCKET_ROOM_FOLDERS ${ARG_DIR})
  set(testing ${all})
  list(FILTER testing INCLUDE REGEX "_testing\\.cc$")
  list(FILTER all EXCLUDE REGEX "_testing\\.cc$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_test\\.cc$")
  if(all)
    add_library(hocket_${name} STATIC ${all})
    # Larger units than those of tests, which include more: both need about as much memory.
    set_target_properties(hocket_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 18)
    set(scope PUBLIC)
    target_link_libraries(hocket_${name} PRIVATE ${ARG_PRIVATE})
  else()
    add_library(hocket_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(hocket_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(hocket_${name} ${scope} ${ARG_LINK} Threads::Threads)
  # Kernels keep the order of their source, which spreads what they fetch ahead between the sums: gcc
  # would put all fetches of a block first, where they wait for each other.
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl
    $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns2>)
  foreach(file ${all})
    if(file MATCHES "/kernels/cpu/avx512((_(vnni|vbmi|bf16))*)[^/]*\\.cc$")
      string(REPLACE "_" ";-mavx512" more "${CMAKE_MATCH_1}")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "${avx512}${more}")
    elseif(file MATCHES "/kernels/cpu/amx[^/]*\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "${avx512};-mamx-tile;-mamx-bf16;-mamx-int8")
    endif()
  endforeach()
  if(testing)
    add_library(${name}_testing STATIC EXCLUDE_FROM_ALL ${testing})
    target_link_libraries(${name}_testing PUBLIC hocket_${name})
  endif()
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE hocket_${name} hocket_source_dir
      GTest::gtest_main GTest::gmock)
    if(testing)
      target_link_libraries(${name}_test PRIVATE ${name}_testing)
    endif()
    target_compile_options(${name}_test PRIVATE ${HOCKET_TEST_OPTIONS})
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()
