# hocket_room(NAME DIR dir [LINK libs...] [PRIVATE libs...])
# One library hocket_NAME from src/dir/**.cc and, where *_test.cc exist, one program NAME_test.
# Sub-folders that are rooms of their own are never nested below another room's folder.
enable_testing()

function(hocket_room name)
  cmake_parse_arguments(ARG "" "DIR" "LINK;PRIVATE" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_test\\.cc$")
  if(all)
    add_library(hocket_${name} STATIC ${all})
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
    if(file MATCHES "/kernels/cpu/avx512_(vnni|vbmi)[^/]*\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "${avx512};-mavx512${CMAKE_MATCH_1}")
    elseif(file MATCHES "/kernels/cpu/avx512[^/]*\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "${avx512}")
    elseif(file MATCHES "/kernels/cpu/amx[^/]*\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "${avx512};-mamx-tile;-mamx-bf16;-mamx-int8")
    endif()
  endforeach()
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE hocket_${name} GTest::gtest_main GTest::gmock)
    target_compile_definitions(${name}_test PRIVATE HOCKET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()
