# Registers the cases of a GoogleTest program with ctest.
#
#   switchyard_discover_tests(TARGET [APART] [PREFIX PREFIX] [PARTS NUMBER]
#                             [PROPERTIES NAME VALUE...])
#
# In a plain build each case is a test: PREFIX and its name. Under a sanitizer, a program takes
# 28 ms to start, as long as ten cases run. So its cases run in NUMBER processes, 1 unless said
# otherwise; GoogleTest deals them out and names those that fail. APART: each case is a process
# there, too: a test forgets tables as a forked child does, which is a leak in the same process.
include_guard()
include(GoogleTest)

function(switchyard_discover_tests target)
  cmake_parse_arguments(cases "APART" "PREFIX;PARTS" "PROPERTIES" ${ARGN})
  if(NOT SWITCHYARD_SANITIZE OR cases_APART)
    gtest_discover_tests(${target} TEST_PREFIX "${cases_PREFIX}" DISCOVERY_TIMEOUT 60
      PROPERTIES ${cases_PROPERTIES})
    return()
  endif()
  if(NOT cases_PARTS)
    set(cases_PARTS 1)
  endif()
  foreach(part RANGE 1 ${cases_PARTS})
    set(name ${cases_PREFIX}${target}.Part${part}Of${cases_PARTS})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES ${cases_PROPERTIES} TIMEOUT 1200)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
      GTEST_TOTAL_SHARDS=${cases_PARTS} GTEST_SHARD_INDEX=${index})
  endforeach()
endfunction()
