# What `cmake --install` puts where: programs, libgradbus with its headers, pkg-config and CMake package.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradbus)
set_target_properties(gradbus PROPERTIES EXPORT_NAME client)
install(TARGETS gradbus EXPORT gradbus-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT gradbus-targets NAMESPACE gradbus:: DESTINATION ${package_dir})
install(DIRECTORY client_lib/include/gradbus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Relative to the file itself, so that the package may be moved and `--prefix` may be chosen late.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/gradbus.pc.in gradbus.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradbus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/gradbus-config.cmake.in gradbus-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradbus-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradbus-config.cmake ${CMAKE_BINARY_DIR}/gradbus-config-version.cmake
  DESTINATION ${package_dir})
install(TARGETS gradbus-server gradbus-agent gradbus-nccl gradbus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Found by the programs beside them, at ../lib (worker_agent/gpu/cuda_plugin.h).
if(GRADBUS_CUDA_BUILT)
  install(TARGETS gradbus_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
