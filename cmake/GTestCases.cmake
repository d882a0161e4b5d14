# Registers the cases of a GoogleTest program with ctest.
#
#   switchyard_discover_tests(TARGET [TOGETHER|APART] [PREFIX PREFIX] [PARTS NUMBER]
#                             [PROPERTIES NAME VALUE...])
#
# In a plain build each case is a test: PREFIX and its name. A program takes 12 ms to start there,
# and 28 ms under a sanitizer. Ten cases of a program of unit tests run in that time. So the cases
# run in NUMBER processes, 1 unless said otherwise: everywhere for a program that is TOGETHER, else
# under a sanitizer. GoogleTest deals the cases out and names those that fail. APART: under a
# sanitizer each case is a process. There a test forgets tables as a forked child does, which is a
# leak in the same process.
#
# In a plain build, cases in one process run in another order than the file's. This finds a missing
# reset between two tests. By hand, another order: PROGRAM --gtest_shuffle --gtest_random_seed=0
include_guard()
include(GoogleTest)

function(switchyard_discover_tests target)
  cmake_parse_arguments(cases "TOGETHER;APART" "PREFIX;PARTS" "PROPERTIES" ${ARGN})
  if((SWITCHYARD_SANITIZE AND cases_APART) OR NOT (SWITCHYARD_SANITIZE OR cases_TOGETHER))
    gtest_discover_tests(${target} TEST_PREFIX "${cases_PREFIX}" DISCOVERY_TIMEOUT 60
      PROPERTIES ${cases_PROPERTIES})
    return()
  endif()
  set(order "")
  if(NOT SWITCHYARD_SANITIZE)
    set(order --gtest_shuffle --gtest_random_seed=1)
  endif()
  if(NOT cases_PARTS)
    set(cases_PARTS 1)
  endif()
  foreach(part RANGE 1 ${cases_PARTS})
    set(name ${cases_PREFIX}${target}.Part${part}Of${cases_PARTS})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name} COMMAND ${target} ${order})
    set_tests_properties(${name} PROPERTIES ${cases_PROPERTIES} TIMEOUT 1200)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
      GTEST_TOTAL_SHARDS=${cases_PARTS} GTEST_SHARD_INDEX=${index})
  endforeach()
endfunction()
