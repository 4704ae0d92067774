#if defined(__x86_64__) && defined(__GNUC__)

#include "kernels/cpu/vector_avx2.h"

#define ATH_ISA avx2
#define ATH_TARGET ATH_AVX2
#include "kernels/cpu/winograd_code.h"

#endif
