# tokenizers, minijinja and llguidance in one static library behind rust/hocket_rs.h.
find_program(CARGO NAMES cargo REQUIRED)
set(RUSTC "" CACHE FILEPATH "The rustc that belongs to CARGO; empty: cargo's own choice")
if(RUSTC)
  set(HOCKET_CARGO ${CMAKE_COMMAND} -E env RUSTC=${RUSTC} ${CARGO})
else()
  set(HOCKET_CARGO ${CARGO})
endif()
set(HOCKET_RUST_DIR ${CMAKE_SOURCE_DIR}/rust)
set(HOCKET_RUST_TARGET ${CMAKE_SOURCE_DIR}/build/rust CACHE PATH "Where cargo builds; shared by all presets")
set(HOCKET_RUST_LIB ${HOCKET_RUST_TARGET}/release/libhocket_rs.a)
file(GLOB HOCKET_RUST_SOURCES CONFIGURE_DEPENDS ${HOCKET_RUST_DIR}/src/*.rs)
add_custom_command(
  OUTPUT ${HOCKET_RUST_LIB}
  COMMAND ${HOCKET_CARGO} build --release --locked --quiet --target-dir ${HOCKET_RUST_TARGET}
  COMMAND ${CMAKE_COMMAND} -E touch ${HOCKET_RUST_LIB}
  DEPENDS ${HOCKET_RUST_SOURCES} ${HOCKET_RUST_DIR}/Cargo.toml ${HOCKET_RUST_DIR}/Cargo.lock
  WORKING_DIRECTORY ${HOCKET_RUST_DIR}
  COMMENT "Rust: tokenizers, minijinja, llguidance")
# No target depends on this one: what links the library waits for the file, and compiling waits for nothing.
add_custom_target(hocket_rs_build DEPENDS ${HOCKET_RUST_LIB})
add_library(hocket_rs STATIC IMPORTED GLOBAL)
set_target_properties(hocket_rs PROPERTIES
  IMPORTED_LOCATION ${HOCKET_RUST_LIB}
  INTERFACE_INCLUDE_DIRECTORIES ${HOCKET_RUST_DIR}
  INTERFACE_LINK_LIBRARIES "gcc_s;m;dl;rt;util;Threads::Threads")
