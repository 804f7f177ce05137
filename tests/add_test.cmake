# gradbus_add_test(NAME [THREADS] SOURCES... LIBS...): one GoogleTest program; each of its cases is a ctest case.
# THREADS: it runs several threads. ThreadSanitizer's build leaves the others out: they give it nothing to see.
# Builds with sanitizers read GoogleTest's headers once; the other builds find what a file forgets to include.
include(GoogleTest)
if(GRADBUS_SANITIZE)
  add_compile_options(-pthread)  # headers that are read once need the same options everywhere; gRPC brings this one
  add_executable(test_headers ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)  # compiled with an executable's options
  target_link_libraries(test_headers PRIVATE GTest::gtest_main GTest::gmock)
  target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()
function(gradbus_add_test name)
  cmake_parse_arguments(arg "THREADS" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock)
  if(arg_THREADS)
    target_sources(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/log_first.cc)
    target_link_libraries(${name} PRIVATE spdlog::spdlog)
  elseif(GRADBUS_SANITIZE MATCHES thread)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(GRADBUS_SANITIZE)
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
  # What is tested is optimized, what asks the questions need not be: that is half of a build's time. But for races:
  # there the headers' code counts, too.
  if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo AND NOT arg_THREADS)
    target_compile_options(${name} PRIVATE -O0 -g1 -U_FORTIFY_SOURCE)
  endif()
  # For what hangs; the longest ones take half a minute of CPU with sanitizers.
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 300 PROPERTIES TIMEOUT 900)
endfunction()
