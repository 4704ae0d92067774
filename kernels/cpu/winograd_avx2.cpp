#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx2
#include "kernels/cpu/winograd_code.h"

#endif
