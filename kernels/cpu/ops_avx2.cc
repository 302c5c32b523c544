// The ops on AVX2 with FMA and F16C: the shared bodies over Vec, and products of its own.
// Compiled with this instruction set's flags; see kernels/CMakeLists.txt.

#define RENGA_ISA avx2

#include "kernels/cpu/vec_avx2-inl.h"
//
#include "kernels/cpu/rows-inl.h"
//
#include "kernels/cpu/quantise-inl.h"
//
#include "kernels/cpu/matmul_float-inl.h"
//
#include "kernels/cpu/matmul_quant_avx2-inl.h"
//
#include "kernels/cpu/attention-inl.h"
//
#include "kernels/cpu/int8_dots_avx2-inl.h"
//
#include "kernels/cpu/attention_int8-inl.h"
//
#include "kernels/cpu/kv_close_int8-inl.h"
//
#include "kernels/cpu/sample_rows-inl.h"
//
#include "kernels/cpu/op_table-inl.h"
