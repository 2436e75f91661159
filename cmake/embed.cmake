# hocket_embed_orders(TARGET): src/compute/overlap/orders/*.yaml as strings in TARGET, for embedded_orders.h. Made when CMake runs,
# which it does again when one of them changes, comes or goes.
function(hocket_embed_orders target)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/overlap/orders/*.yaml)
  set(texts "")
  foreach(file ${files})
    file(READ ${file} text)
    string(APPEND texts "R\"yaml(${text})yaml\",\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded_orders.cc @ONLY CONTENT
"#include \"compute/overlap/embedded_orders.h\"

namespace hocket {

std::span<const std::string_view> embedded_orders() {
  static constexpr std::string_view kTexts[] = {
@texts@};
  return kTexts;
}

}  // namespace hocket
")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/embedded_orders.cc)
endfunction()

# hocket_embed_page(TARGET): web/dist, the built page, as bytes in TARGET, for server/page/page.h. Made when CMake runs, as above.
function(hocket_embed_page target)
  set(root ${CMAKE_SOURCE_DIR}/web/dist)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*)
  set(arrays "")
  set(rows "")
  set(number 0)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${file})
    file(READ ${root}/${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],0x[0-9a-f][0-9a-f],)" "\\1\n" bytes "${bytes}")
    file(SHA256 ${root}/${file} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    string(APPEND arrays "constexpr unsigned char kFile${number}[] = {\n${bytes}};\n")
    string(APPEND rows "      {\"${file}\", \"\\\"${hash}\\\"\", text_of(kFile${number})},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded_page.cc @ONLY CONTENT
"#include \"server/page/page.h\"

namespace hocket {
namespace {

@arrays@
template <size_t kSize>
std::string_view text_of(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

std::span<const PageFile> embedded_page() {
  static const PageFile kFiles[] = {
@rows@  };
  return kFiles;
}

}  // namespace hocket
")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/embedded_page.cc)
endfunction()
