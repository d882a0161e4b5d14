# The targets that are installed and packaged.
#
#   switchyard_ships(TARGET)
#
# The same bytes come out wherever the sources and the build folder lie: no path of either stands in
# them. Programs bring the C++ run time, so that they start on distributions with an older one.
include_guard()

function(switchyard_ships target)
  # The compiler tries the last one first, and the build folder may lie inside of the sources.
  target_compile_options(${target} PRIVATE
    "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=." "-ffile-prefix-map=${CMAKE_BINARY_DIR}=build")
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_link_options(${target} PRIVATE LINKER:-z,relro,-z,now)
    if(NOT SWITCHYARD_SANITIZE)
      target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
  endif()
endfunction()
