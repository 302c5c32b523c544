# renga_module(<name> SRCS ... [PUBLIC_DEPS <module>...] [DEPS <module>...] [LIBS <external>...])
#
# One folder = one static library renga::<name>. Its include root holds a single link to
# its own folder, so "#include "model/weights.h"" compiles only in targets that list
# `model`. DEPS are for .cc files, PUBLIC_DEPS for what the module's headers show.
# PUBLIC_LIBS are external libraries that its headers show.
set(renga_optimised kernels backend model formats text quantize)
function(renga_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;PUBLIC_DEPS;DEPS;LIBS;PUBLIC_LIBS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "renga_module(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  set(root ${PROJECT_BINARY_DIR}/include_roots/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${name} SYMBOLIC)

  add_library(renga_${name} STATIC ${arg_SRCS})
  add_library(renga::${name} ALIAS renga_${name})
  target_include_directories(renga_${name} PUBLIC ${root} ${PROJECT_SOURCE_DIR}/include)
  # Under a sanitizer only what computes is optimised: the rest then compiles in half the time.
  if(RENGA_SANITIZE AND NOT name IN_LIST renga_optimised)
    target_compile_options(renga_${name} PRIVATE -O0)
  endif()
  list(TRANSFORM arg_PUBLIC_DEPS PREPEND renga::)
  list(TRANSFORM arg_DEPS PREPEND renga::)
  target_link_libraries(renga_${name} PUBLIC ${arg_PUBLIC_DEPS} ${arg_PUBLIC_LIBS}
                        PRIVATE ${arg_DEPS} ${arg_LIBS} renga_flags)
endfunction()

# renga_test(<name> SRCS ... DEPS <module>... [LIBS ...] [LABELS ...]): a gtest program,
# registered with ctest test by test.
function(renga_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS;LIBS;LABELS")
  add_executable(${name} ${arg_SRCS})
  list(TRANSFORM arg_DEPS PREPEND renga::)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE RENGA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  # The code of a test need not be fast, but should compile fast.
  if(RENGA_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} ${arg_LIBS} GTest::gmock GTest::gtest_main renga_flags)
  if(NOT arg_LABELS)
    set(arg_LABELS fast)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()
