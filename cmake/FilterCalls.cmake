# Copies a table of calls, without the rows whose name the installed cuda.h doesn't declare.
#
#   switchyard_filter_calls(<in.def> <out.def>)
#
# A per-thread twin (_ptsz, _ptds) exists when the header wraps its base name so. Of a version that
# a newer one replaced, it exists when the header declares it by its own name.
include_guard()

function(switchyard_filter_calls in out)
  file(READ "${CUDA_INCLUDE_DIR}/cuda.h" header)
  # The declarations there for older headers.
  file(READ "${CMAKE_SOURCE_DIR}/include/switchyard/cuda_checkpoint.h" checkpoint)
  string(APPEND header "${checkpoint}")
  file(STRINGS "${in}" lines)
  set(kept "")
  set(left_out "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(CUDA_CALL|DRIVER_CALL)\\(([A-Za-z0-9_]+)")
      set(name "${CMAKE_MATCH_2}")
      set(pattern "[^A-Za-z0-9_]${name}[^A-Za-z0-9_]")
      if(name MATCHES "^(.*)_(ptsz|ptds)$")
        string(TOUPPER "${CMAKE_MATCH_2}" twin)
        string(APPEND pattern "|__CUDA_API_${twin}\\(${CMAKE_MATCH_1}\\)")
      endif()
      if(NOT header MATCHES "${pattern}")
        list(APPEND left_out "${name}")
        continue()
      endif()
    endif()
    string(APPEND kept "${line}\n")
  endforeach()
  file(GENERATE OUTPUT "${out}" CONTENT "${kept}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${in}")
  list(LENGTH left_out count)
  get_filename_component(table "${in}" NAME)
  if(count GREATER 0)
    message(WARNING "${table}: ${count} calls are not in this cuda.h, so a program with a newer CUDA "
      "makes them past the library. Headers as new as the driver have them. ${left_out}")
  endif()
endfunction()
