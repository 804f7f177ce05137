# What `cmake --install` puts where: programs, libgradbus with its headers, pkg-config and CMake package.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradbus)
set_target_properties(gradbus PROPERTIES EXPORT_NAME client)
install(TARGETS gradbus EXPORT gradbus-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT library NAMELINK_COMPONENT dev)
install(EXPORT gradbus-targets NAMESPACE gradbus:: DESTINATION ${package_dir} COMPONENT dev)
install(DIRECTORY client_lib/include/gradbus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
# Relative to the file itself, so that the package may be moved and `--prefix` may be chosen late.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/gradbus.pc.in gradbus.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradbus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
configure_file(cmake/gradbus-config.cmake.in gradbus-config.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradbus-config-version.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradbus-config.cmake ${CMAKE_BINARY_DIR}/gradbus-config-version.cmake
  DESTINATION ${package_dir} COMPONENT dev)
install(TARGETS gradbus-agent gradbus-nccl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT agent)
install(TARGETS gradbus-server RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT server)
install(TARGETS gradbus_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
# Found by the programs beside them, at ../lib (worker_agent/gpu/cuda_plugin.h).
if(GRADBUS_CUDA_BUILT)
  install(TARGETS gradbus_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT agent)
endif()
