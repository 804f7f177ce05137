# Programs are hardened, sanitizers come by GRADBUS_SANITIZE. That warnings are errors is said by
# the presets: a build by hand, with flags or a compiler that nobody has tried, only prints them.
# nvcc knows none of these options (compression/cuda has its own).
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wimplicit-fallthrough>"
                    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
add_compile_definitions(GRADBUS_VERSION="${PROJECT_VERSION}")
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # SVE's vectors have no size at compile time, so they cannot be members: Arm takes NEON.
  set(disabled_targets HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)
elseif(GRADBUS_SANITIZE)
  # The kernels' code is the same for each width: two widths and the scalar one are enough here.
  set(disabled_targets HWY_SSSE3|HWY_SSE4)
endif()
if(disabled_targets)
  add_compile_definitions(HWY_DISABLED_TARGETS=\(${disabled_targets}\))
endif()

if(GRADBUS_SANITIZE)
  add_compile_options(-fsanitize=${GRADBUS_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${GRADBUS_SANITIZE})
else()
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    add_compile_definitions(_FORTIFY_SOURCE=2)
  endif()
  add_link_options(-Wl,-z,relro,-z,now)
endif()

# Paths below the folder of the sources are hashed as relative ones, so clones in other folders share what is compiled.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  # What it needs for precompiled headers.
  set(GRADBUS_PRECOMPILE_OPTIONS "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>"
                                 "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

# A third of the time of GNU's linker.
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options($<$<LINK_LANGUAGE:C,CXX>:-fuse-ld=lld>)
endif()

# gradbus_precompile(TARGET HEADERS...): these large headers are parsed once for all files of the target. One file spends
# up to 9 s in them (nlohmann/json and CLI11), 4 s (gRPC) or 2 s (GoogleTest). The preset dev does without: it finds what
# a file forgets to include.
if(CMAKE_BUILD_TYPE STREQUAL Debug AND NOT GRADBUS_SANITIZE)
  set(GRADBUS_PRECOMPILE OFF)
else()
  set(GRADBUS_PRECOMPILE ON)
endif()
# So do files that are compiled together: headers and templates take nine tenths of a file's time. Names in anonymous
# namespaces must differ within a target. gradbus_alone(FILES...) excepts files of this folder's targets.
set(CMAKE_UNITY_BUILD ${GRADBUS_PRECOMPILE})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)
function(gradbus_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
function(gradbus_precompile target)
  if(GRADBUS_PRECOMPILE)
    target_compile_options(${target} PRIVATE ${GRADBUS_PRECOMPILE_OPTIONS})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# gradbus_quick_compile(TARGETS...): targets that compute nothing for long. -O1 takes two thirds of the time of -O2 (a file of
# cli: 5.5 s of 8.5). The order counts: it stands behind the options of the build type.
function(gradbus_quick_compile)
  if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo AND NOT GRADBUS_SANITIZE)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O1>)
    endforeach()
  endif()
endfunction()

# gradbus_computes(TARGETS...): libraries that spend the time of the tests. With sanitizers they are compiled with -O1: without
# it, each vector instruction is a call, and the tests of codecs take four times as long. The others are not: a file
# with gRPC or JSON would take 30 s in place of 10.
function(gradbus_computes)
  if(GRADBUS_SANITIZE)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
  endif()
endfunction()
