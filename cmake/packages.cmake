# Debian packages by CPack: `scripts/packages.sh` builds and checks them. A component of cmake/install.cmake is one package;
# deploy/debian/stage.sh adds units, manual pages and settings, which `cmake --install` leaves out.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # packages.sh has built what is packed; the tests are not
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gradbus)
set(CPACK_PACKAGE_VENDOR Gradbus)
set(CPACK_PACKAGE_CONTACT "Gradbus developers <packages@gradbus.invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_SOURCE_DIR}/build/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENTS_ALL agent server cli library dev python)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/deploy/debian/stage.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # packages.sh compresses again
set(CPACK_DEBIAN_PACKAGE_SECTION science)

# gradbus_package(COMPONENT PACKAGE SUMMARY TEXT): what every package has.
macro(gradbus_package component package summary text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${text}")
  file(GLOB CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/${component}/*)
endmacro()

gradbus_package(agent gradbus-agent "gradient bus: the daemon of each node"
  "Gradbus exchanges the gradients of training jobs. This daemon runs once on each\nnode: training processes attach to it, and it moves gradients between nodes.")
gradbus_package(server gradbus-server "gradient bus: the coordinator and the parameter-server shard"
  "Gradbus exchanges the gradients of training jobs. This package has the\ncoordinator, of which a cluster has one, and shards of a parameter server.")
gradbus_package(cli gradbus "gradient bus: the command that runs and shows jobs"
  "Gradbus exchanges the gradients of training jobs. The gradbus command starts\njobs, shows their state, measures and traces them, and explains errors.")
gradbus_package(library libgradbus0 "gradient bus: the library of training processes"
  "Gradbus exchanges the gradients of training jobs. Training processes attach to\nthe agent of their node with this library. It needs the C library only.")
gradbus_package(dev libgradbus-dev "gradient bus: headers of the library"
  "Gradbus exchanges the gradients of training jobs. This package has what\nprograms in C and C++ are built with: headers, pkg-config and CMake files.")
gradbus_package(python python3-gradbus "gradient bus: Python package with the PyTorch optimizer"
  "Gradbus exchanges the gradients of training jobs. This package has\ngradbus.torch and gradbus.elastic, and Horovod's names for them.")

set(own_version "(= ${PROJECT_VERSION})")
foreach(component AGENT SERVER)
  set(CPACK_DEBIAN_${component}_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers, init-system-helpers (>= 1.52)")
endforeach()
set(CPACK_DEBIAN_AGENT_PACKAGE_SUGGESTS "ibverbs-providers")
set(CPACK_DEBIAN_CLI_PACKAGE_DEPENDS "libgradbus0 ${own_version}")
set(CPACK_DEBIAN_CLI_PACKAGE_RECOMMENDS "gradbus-agent ${own_version}, gradbus-server ${own_version}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# As dpkg-shlibdeps and ldconfig want them; CPack's own are maintainer scripts that call ldconfig.
file(WRITE ${CMAKE_BINARY_DIR}/debian/shlibs "libgradbus ${PROJECT_VERSION_MAJOR} libgradbus0 (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/shlibs
  ${CMAKE_SOURCE_DIR}/deploy/debian/library/triggers)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libgradbus0 ${own_version}")
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
# The module is built for one version of Python: that of the Debian that builds it.
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  "libgradbus0 ${own_version}, python3 (>= 3.11), python3 (<< 3.12), python3:any")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-torch, gradbus ${own_version}")
# Already built by scripts/setup.sh for Debian's Python; stage.sh makes it use the library of libgradbus0.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/.venv-debian/lib/python3.11/site-packages/gradbus
  DESTINATION lib/python3/dist-packages COMPONENT python EXCLUDE_FROM_ALL
  PATTERN __pycache__ EXCLUDE PATTERN "libgradbus.so*" EXCLUDE)
include(CPack)
