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
