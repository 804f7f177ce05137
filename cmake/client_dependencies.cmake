# What libgradbus needs to be built: Highway's headers (its code is compiled in) and threads.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
