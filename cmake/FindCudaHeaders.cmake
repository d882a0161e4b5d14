# Finds the directory of cuda.h 12.0 or newer: only headers are needed, never a toolkit's run time.
#
# Looks, in this order, at -DCUDA_INCLUDE_DIR, $CUDA_HOME, /usr/local/cuda, the nvcc on PATH, the
# folders of the pip wheels, the distribution's package, and what scripts/bootstrap.sh fetched. The
# first two are a choice. Else headers that have all calls of our tables come before older ones.
# Result: CUDA_INCLUDE_DIR, and the imported target switchyard::cuda_headers.
include_guard()

function(_switchyard_cuda_version dir out)
  set(${out} 0 PARENT_SCOPE)
  if(EXISTS "${dir}/cuda.h")
    file(STRINGS "${dir}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+")
    if(line MATCHES "CUDA_VERSION ([0-9]+)")
      set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(_chosen "")
if(CUDA_INCLUDE_DIR)
  list(APPEND _chosen "${CUDA_INCLUDE_DIR}")
endif()
if(DEFINED ENV{CUDA_HOME})
  list(APPEND _chosen "$ENV{CUDA_HOME}/include")
endif()
set(_candidates ${_chosen} /usr/local/cuda/include)
find_program(_nvcc nvcc)
if(_nvcc)
  get_filename_component(_nvcc_real "${_nvcc}" REALPATH)
  get_filename_component(_nvcc_dir "${_nvcc_real}" DIRECTORY)
  list(APPEND _candidates "${_nvcc_dir}/../include")
endif()
file(GLOB _toolkits /usr/local/cuda-*/include)
list(APPEND _candidates ${_toolkits})
foreach(_base $ENV{VIRTUAL_ENV} $ENV{HOME}/.local /usr/local /usr)
  file(GLOB _wheels
       "${_base}/lib/python3*/site-packages/nvidia/cu1*/include"
       "${_base}/lib/python3*/site-packages/nvidia/cuda_runtime/include"
       "${_base}/lib/python3*/dist-packages/nvidia/cu1*/include"
       "${_base}/lib/python3*/dist-packages/nvidia/cuda_runtime/include")
  list(APPEND _candidates ${_wheels})
endforeach()
list(APPEND _candidates /usr/include
     # What scripts/fetch_cuda_headers.sh brought.
     "${CMAKE_CURRENT_LIST_DIR}/../build/cuda-headers/nvidia/cu13/include")

set(_found "")
set(_version 0)
set(_too_old "")
foreach(_dir IN LISTS _candidates)
  _switchyard_cuda_version("${_dir}" _this)
  if(_this GREATER_EQUAL 12000)
    if(_this GREATER _version)
      get_filename_component(_found "${_dir}" REALPATH)
      set(_version ${_this})
    endif()
    list(FIND _chosen "${_dir}" _choice)  # IN_LIST is a policy, which `cmake -P` lacks
    # 13.0: kTableVersion of include/switchyard/known_calls.h.
    if(_version GREATER_EQUAL 13000 OR NOT _choice EQUAL -1)
      break()
    endif()
  elseif(_this GREATER 0)
    list(APPEND _too_old "${_dir} (${_this})")
  endif()
endforeach()

if(NOT _found)
  message(FATAL_ERROR
    "cuda.h 12.0 or newer was not found (too old: ${_too_old}). Only the headers are needed. "
    "Install one of: 'pip install nvidia-cuda-runtime' in the active virtual environment; NVIDIA's "
    "package cuda-cudart-dev; or set CUDA_HOME to a toolkit.")
endif()
message(STATUS "CUDA headers: ${_found} (${_version})")
if(CMAKE_SCRIPT_MODE_FILE)  # `cmake -P`: scripts/bootstrap.sh only asks whether they are there
  return()
endif()
set(CUDA_INCLUDE_DIR "${_found}")  # not cached: headers that come later are found
if(NOT TARGET switchyard::cuda_headers)
  add_library(switchyard::cuda_headers INTERFACE IMPORTED)
  set_target_properties(switchyard::cuda_headers PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${CUDA_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${CUDA_INCLUDE_DIR}")
endif()
