# Compiles the files of each folder of a target together, at most eight at a time.
#
#   switchyard_unity(TARGET)
#
# By folder, and not by CMake's own batches: a new file leaves the other folders' units as they are.
# And names in unnamed namespaces must differ within a folder only. Files of other parts of the
# project and those with SKIP_UNITY_BUILD_INCLUSION are compiled alone.
#
# In a unit, a file may lack an #include that one before it has. So the builds for a sanitizer have
# the files the other way round. What both hide, `make night` finds, which compiles each file alone.
include_guard()

function(switchyard_unity target)
  if(NOT SWITCHYARD_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(IS_ABSOLUTE "${source}" OR NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    get_filename_component(folder "${source}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "files_of_${folder}" group)
    list(APPEND groups ${group})
    list(APPEND ${group}_sources "${source}")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    list(LENGTH ${group}_sources count)
    # In even parts, so that no unit is left with a single file.
    math(EXPR parts "(${count} + 7) / 8")
    math(EXPR size "(${count} + ${parts} - 1) / ${parts}")
    set(index 0)
    foreach(source IN LISTS ${group}_sources)
      math(EXPR part "${index} / ${size}")
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP ${group}_${part})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  if(SWITCHYARD_SANITIZE)
    list(REVERSE sources)
    set_target_properties(${target} PROPERTIES SOURCES "${sources}")
  endif()
endfunction()
