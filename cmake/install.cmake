# libhocket.so, the pages made from the flags, and what `cmake --install` puts where. Three parts, each of which can be had alone
# (`cmake --install build/release --component server`): server, library, development.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The C interface. Only the names in hocket.map leave it.
set(HOCKET_SYMBOLS ${CMAKE_SOURCE_DIR}/src/capi/hocket.map)
add_library(hocket_shared SHARED $<TARGET_OBJECTS:hocket_capi>)
target_link_libraries(hocket_shared PRIVATE hocket_engine)
target_link_options(hocket_shared PRIVATE -Wl,--version-script=${HOCKET_SYMBOLS} -Wl,--no-undefined)
target_include_directories(hocket_shared INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(hocket_shared PROPERTIES
  OUTPUT_NAME hocket EXPORT_NAME hocket LINKER_LANGUAGE CXX LINK_DEPENDS ${HOCKET_SYMBOLS}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

# The man page and the completion of bash are what the program says of itself.
set(HOCKET_PAGES ${CMAKE_BINARY_DIR}/pages)
add_custom_command(
  OUTPUT ${HOCKET_PAGES}/hocket.1 ${HOCKET_PAGES}/hocket.bash
  COMMAND ${CMAKE_COMMAND} -E make_directory ${HOCKET_PAGES}
  COMMAND $<TARGET_FILE:hocket> docs man > ${HOCKET_PAGES}/hocket.1
  COMMAND $<TARGET_FILE:hocket> docs completion > ${HOCKET_PAGES}/hocket.bash
  DEPENDS hocket hocket-bench VERBATIM)
add_custom_target(hocket_man ALL DEPENDS ${HOCKET_PAGES}/hocket.1 ${HOCKET_PAGES}/hocket.bash)

# A package may bring libraries of its own (deploy/deb.sh); elsewhere these folders are not there. While building too, because CMake
# would fill the RUNPATH with colons for the time being, and an empty name in it is the current folder.
set_target_properties(hocket hocket-bench PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/hocket" BUILD_WITH_INSTALL_RPATH ON)
set_target_properties(hocket_shared PROPERTIES INSTALL_RPATH "$ORIGIN/libhocket0" BUILD_WITH_INSTALL_RPATH ON)

install(TARGETS hocket hocket-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT server)
install(DIRECTORY models/hocket-tiny-qwen3-moe DESTINATION ${CMAKE_INSTALL_DATADIR}/hocket/models COMPONENT server)
install(FILES ${HOCKET_PAGES}/hocket.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT server)
install(FILES ${HOCKET_PAGES}/hocket.bash RENAME hocket
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT server)

install(TARGETS hocket_shared EXPORT hocketTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY include/hocket DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
set(HOCKET_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hocket)
install(EXPORT hocketTargets FILE hocketConfig.cmake NAMESPACE hocket:: DESTINATION ${HOCKET_CMAKE_DIR} COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hocketConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/hocketConfigVersion.cmake DESTINATION ${HOCKET_CMAKE_DIR} COMPONENT development)
file(RELATIVE_PATH HOCKET_PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/hocket.pc.in ${CMAKE_BINARY_DIR}/hocket.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hocket.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
