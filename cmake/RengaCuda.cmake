# The CUDA language: nvcc wherever it is, our architectures, cuBLASLt.
#
# renga_cuda_library(<name> SRCS ...): a static library of .cu files. What ptxas says of
# their kernels (registers, spills, shared memory) is kept beside each object, as
# <object>.ptxas; tests/gpu/check_resources.py reads it.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc
               HINTS $ENV{CUDA_PATH}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
endif()
# 90 also as PTX, from which later GPUs compile their own.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90 CACHE STRING "GPUs to compile for")
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)

function(renga_cuda_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS")
  add_library(${name} STATIC ${arg_SRCS})
  # --fmad=false: as -ffp-contract=off.
  target_compile_options(${name} PRIVATE -O3 --fmad=false -lineinfo -Xptxas=-v
                         $<$<BOOL:${RENGA_WERROR}>:-Werror=all-warnings>)
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas.sh)
  if(CCACHE)
    list(APPEND launcher ${CCACHE})
  endif()
  set_target_properties(${name} PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()
