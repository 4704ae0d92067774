#if defined(__x86_64__) && defined(__GNUC__)

#define ATH_ISA avx512
#include "kernels/cpu/conv_tiles_code.h"

#endif
