#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx512
#include "kernels/cpu/winograd_code.h"

#endif
