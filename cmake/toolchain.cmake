find_program(CCACHE ccache)
if(CCACHE)
  # Paths below this folder are relative to ccache, so that what one checkout compiled serves all others.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Failed checks name their file below this folder, so that a program does not depend on where it was compiled.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)

# x86-64-v3 (AVX2, FMA) is the least machine hocket runs on; kernels/cpu raises single files above it.
# No contraction and no fast-math: docs/contracts/arithmetic.md fixes every rounding.
add_compile_options(-march=x86-64-v3 -ffp-contract=off -fno-math-errno
                    -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
# Other compilers warn of other things: a warning may stop our own checks, never a stranger's build.
option(HOCKET_WERROR "Warnings are errors (CI)" OFF)
if(HOCKET_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False positives of g++ 12 in optimised library code.
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
else()
  # libstdc++ 12 uses what it deprecates, and clang does not count templates of it as system code.
  add_compile_options(-Wno-deprecated-declarations)
endif()
if(HOCKET_SANITIZE)
  # A finding ends the program; else undefined behaviour is a line in a log, and the test passes.
  add_compile_options(-fsanitize=${HOCKET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HOCKET_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND HOCKET_SANITIZE STREQUAL "thread")
    # ThreadSanitizer does not understand fences; the locks of Asio's queues order the same accesses.
    add_compile_options(-Wno-tsan)
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
add_link_options(-Wl,--gc-sections)
