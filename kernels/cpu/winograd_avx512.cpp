#if defined(__x86_64__) && defined(__GNUC__)

#include "kernels/cpu/vector_avx512.h"

#define ATH_ISA avx512
#define ATH_TARGET ATH_AVX512
#include "kernels/cpu/winograd_code.h"

#endif
