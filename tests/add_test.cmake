# gradbus_add_test(NAME [THREADS] [SHARDS n] SOURCES... LIBS... [ALONE FILES...]): one GoogleTest program. ctest runs it
# SHARDS times (1), and each run executes its share of the cases. One process for each case took half of the time of CI,
# because a program with sanitizers starts in half a second. scripts/count_tests.py counts the cases in the reports.
# ALONE: sources with names that others of the program have, too (cmake/compiler.cmake).
# THREADS: it runs several threads. ThreadSanitizer's build leaves the others out: they give it nothing to see.
# What is tested is optimized, what asks the questions need not be: that is half of a build's time. But for races: there
# the headers' code counts, too.
if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo)
  set(GRADBUS_TEST_OPTIONS -O0 -g1 -U_FORTIFY_SOURCE)
endif()
# GoogleTest's headers are parsed once for all programs with the same options: those with threads, and the others.
if(GRADBUS_PRECOMPILE)
  add_compile_options(-pthread ${GRADBUS_PRECOMPILE_OPTIONS})  # gRPC brings -pthread in some programs, all need the same
  foreach(kind plain threads)
    add_executable(${kind}_test_headers ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)  # compiled with an executable's options
    target_link_libraries(${kind}_test_headers PRIVATE GTest::gtest_main GTest::gmock)
    target_precompile_headers(${kind}_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endforeach()
  target_compile_options(plain_test_headers PRIVATE ${GRADBUS_TEST_OPTIONS})
endif()
function(gradbus_add_test name)
  cmake_parse_arguments(arg "THREADS" "SHARDS" "SOURCES;LIBS;ALONE" ${ARGN})
  gradbus_alone(${arg_ALONE})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main GTest::gmock)
  if(arg_THREADS)
    target_sources(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/log_first.cc)
    target_link_libraries(${name} PRIVATE spdlog::spdlog)
  elseif(GRADBUS_SANITIZE MATCHES thread)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(arg_THREADS)
    set(kind threads)
  else()
    set(kind plain)
    target_compile_options(${name} PRIVATE ${GRADBUS_TEST_OPTIONS})
  endif()
  if(GRADBUS_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM ${kind}_test_headers)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(run ${name}.${shard})
    add_test(NAME ${run} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${run} PROPERTIES TIMEOUT 900 ENVIRONMENT  # the time limit is for what hangs
      "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test_reports/${run}.xml")
  endforeach()
endfunction()
